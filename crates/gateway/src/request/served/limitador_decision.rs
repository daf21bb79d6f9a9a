//! The decision about a question as limitador is asked it, by the limits that are in force.

use sluicegate_limiter::{Span, Time};
use sluicegate_rls::limitador::{Limit, Limits, Question};
use sluicegate_rls::plan::{Hits, Outcome};
use sluicegate_rls::wire::status::{Code, Status};

use super::counting::{check, decide_all, report, usages};
use super::item::{Decider, Item, Judged};
use crate::request::View;
use crate::resources::LimitadorLimits;
use crate::respond::rls_refusal;

/// What is done with the hits of a question.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// They are counted if all limits admit them.
    CheckAndReport,
    /// They are not counted.
    Check,
    /// They are counted whatever limits say.
    Report,
}

/// What a question is answered.
pub(super) struct Answer<'v> {
    /// The limits that apply, with what each has decided.
    pub(super) outcomes: Vec<(&'v Limit, Outcome)>,
    /// The headers and the body of a refusal.
    pub(super) refusal: Option<(Vec<(&'static str, String)>, String)>,
}

/// The most counters of a list.
const MAX_COUNTERS: usize = 1_000;

/// The limits that are in force.
///
/// # Errors
/// If there are none since a reload.
pub(super) fn limits(view: &View) -> Result<&LimitadorLimits, Status> {
    let limits = view.snapshot.config.resources.limitador.as_deref();
    limits.ok_or_else(|| {
        Status::unavailable("there are no limits for this listener since the configuration was last loaded")
    })
}

/// Decides about a question, which arrived at `now`.
///
/// # Errors
/// If the store must decide and cannot, and no other limit refuses.
pub(super) async fn decide<'v>(
    view: &'v View,
    now: Time,
    question: &Question,
    action: Action,
) -> Result<Answer<'v>, Status> {
    let known = limits(view)?;
    let applied = known.limits.applied(question);
    let hits = Hits { count: question.hits, negative: false };
    let items = applied.iter().map(|one| Ok(item(view, now, known, (one.limit, &one.key), hits))).collect();
    let judged = match action {
        Action::CheckAndReport => decide_all(view, now, items).await,
        Action::Check => check(view, now, items).await,
        Action::Report => report(view, now, items).await,
    };
    let all = applied.iter().map(|one| &known.limits.all()[one.limit]).zip(judged);
    let (mut outcomes, mut failure) = (Vec::with_capacity(applied.len()), None);
    let mut longest: Option<(&Limit, Option<Span>)> = None;
    for (limit, judged) in all {
        match judged {
            Err(status) => failure = Some(status),
            Ok(Judged { outcome, wait }) => {
                outcomes.push((limit, outcome));
                let length = |wait: Option<Span>| wait.unwrap_or(Span::MAX); // `None` is never
                if !outcome.admitted && longest.is_none_or(|(_, other)| length(wait) > length(other)) {
                    longest = Some((limit, wait));
                }
            }
        }
    }
    let refusal = longest.filter(|_| action != Action::Report).map(|(limit, wait)| {
        let name = limit.name.as_deref().unwrap_or(&limit.namespace);
        rls_refusal(name, wait.map(|wait| wait.ceil_secs().max(1)))
    });
    // A refusal is known whatever failed: most proxies let a request pass after an error.
    match failure.filter(|_| refusal.is_none()) {
        Some(status) => Err(status),
        None => Ok(Answer { outcomes, refusal }),
    }
}

/// The counters of a namespace.
///
/// # Errors
/// If they cannot be listed: counters are found by a hash of their key, and do not know the values of variables. If the store has
/// them, and does not answer.
pub(super) async fn counters<'v>(
    view: &'v View,
    now: Time,
    namespace: &str,
) -> Result<Vec<(&'v Limit, Outcome)>, Status> {
    let known = limits(view)?;
    let of_namespace: Vec<&Limit> = limits_of(&known.limits, namespace).collect();
    if let Some(limit) = of_namespace.iter().find(|limit| !limit.variables.is_empty()) {
        let (name, variable) = (limit.name.as_deref().unwrap_or(namespace), &limit.variables[0].0);
        let text = format!(
            "the counters of `{name}` cannot be listed, because they are kept without the values of `{variable}`; ask the admin API for a single one"
        );
        return Err(Status::new(Code::Unimplemented, text));
    }
    if of_namespace.len() > MAX_COUNTERS {
        let text = format!("the namespace has more than {MAX_COUNTERS} counters");
        return Err(Status::new(Code::Unimplemented, text));
    }
    let none = Hits { count: 0, negative: false };
    let key = sluicegate_rls::descriptors::counter_key(namespace, []);
    let indices = known.limits.of_namespace(namespace);
    let items = indices.iter().map(|index| item(view, now, known, (*index, &key), none)).collect();
    let judged = usages(view, now, items).await;
    let outcomes = of_namespace.into_iter().zip(judged);
    outcomes.map(|(limit, judged)| Ok((limit, judged?.outcome))).collect()
}

/// The limits of a namespace.
pub(super) fn limits_of<'l>(limits: &'l Limits, namespace: &str) -> impl Iterator<Item = &'l Limit> {
    limits.of_namespace(namespace).iter().map(|index| &limits.all()[*index])
}

fn item<'v>(
    view: &'v View,
    now: Time,
    known: &LimitadorLimits,
    (limit, key): (usize, &str),
    hits: Hits,
) -> Item<'v> {
    let snapshot = &view.snapshot;
    let decider = match known.indices[limit] {
        Some(index) => Decider::limit(snapshot, (index, &snapshot.limits[index]), (key, hits), now),
        None => Decider::zero(known.limits.all()[limit].seconds),
    };
    Item { decider, hits, is_advisory: false }
}
