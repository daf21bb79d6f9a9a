//! The decision of all limits about a request.

use std::cmp::Reverse;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use sluicegate_counters::{Ask, Verdict, decide_send};
use sluicegate_limiter::{Refusal, Span, Time, Usage};
use smallvec::SmallVec;

use crate::built::{Applies, BuiltLimit, Shared};
use crate::ending::{LateLimit, RequestHolds};
use crate::headers::Reported;
use crate::layer::Applied;
use crate::outcome::{Outcome, ShadowRefused};
use crate::refusal::{Reason, Refused};

/// The wait of a request that waits for another one to end: it is not known when that will be.
const BUSY: Span = Span::SECOND;

/// What all limits say about a request.
pub(crate) enum Decided {
    Admitted(Admitted),
    Refused(Response<Bytes>),
}

/// An admitted request.
pub(crate) struct Admitted {
    pub(crate) holds: RequestHolds,
    /// Its limits whose cost is settled late.
    pub(crate) late: Vec<LateLimit>,
    /// The limit that headers report, and what its key has left; `None` if no enforced limit applies.
    pub(crate) reported: Option<(usize, Usage)>,
    /// The time of the decision.
    pub(crate) now: Time,
}

/// The indexes of limits of a request.
type Indexes = SmallVec<[usize; 4]>;

/// Decides about a request, and tells the observer.
pub(crate) fn decide(shared: &Shared, applied: &Applied, head: &mut Parts) -> Decided {
    let now = shared.clock.now();
    let mut asks: SmallVec<[Ask<'_>; 2]> = SmallVec::new();
    let (mut asked, mut denying) = (Indexes::new(), Indexes::new());
    for index in &applied.limits {
        let limit = &shared.limits[*index];
        match limit.applies(head, &shared.secret) {
            Applies::To(key, cost) => {
                asks.push(Ask::new(&limit.counted, key, cost, now));
                asked.push(*index);
            }
            Applies::Not => {}
            Applies::Skips => shared.observe(limit, Outcome::Skipped),
            Applies::Denies => denying.push(*index),
        }
    }
    if let Some(index) = denying.iter().find(|index| shared.limits[**index].enforces()) {
        return Decided::Refused(deny(shared, head, *index));
    }
    let decision = decide_send(&asks, false);
    let verdicts = &decision.verdicts[..];
    if shared.is_watched() {
        report(shared, head, (&asked, verdicts), &denying);
    }
    let reported = reported(shared, (&asked, verdicts), decision.admitted);
    if !decision.admitted {
        return Decided::Refused(refuse(shared, applied, head, (&asked, verdicts), reported, now));
    }
    let is_late = |at: &usize| shared.limits[asked[*at]].late.is_some() && verdicts[*at].answer.is_ok();
    let late = (0..asked.len()).filter(is_late);
    let late = late.map(|at| LateLimit { limit: asked[at], key: asks[at].key }).collect();
    let reported = reported.map(|at| (asked[at], verdicts[at].usage));
    Decided::Admitted(Admitted { holds: decision.holds, late, reported, now })
}

/// Tells what each limit did with the request.
fn report(shared: &Shared, head: &mut Parts, (asked, verdicts): (&[usize], &[Verdict]), denying: &[usize]) {
    let asked = asked.iter().zip(verdicts).map(|(index, verdict)| {
        let limit = &shared.limits[*index];
        (limit, Outcome::of(verdict.answer.is_ok(), limit.enforces()))
    });
    let denying = denying.iter().map(|index| (&shared.limits[*index], Outcome::ShadowRefused));
    let all: SmallVec<[(&BuiltLimit, Outcome); 4]> = asked.chain(denying).collect();
    for (limit, outcome) in &all {
        shared.observe(limit, *outcome);
    }
    let shadow = all.iter().filter(|(_, outcome)| *outcome == Outcome::ShadowRefused);
    let mut shadow = shadow.map(|(limit, _)| limit.name().into()).peekable();
    if shadow.peek().is_some() {
        head.extensions.insert(ShadowRefused::new(shadow));
    }
}

/// The place of the limit that headers report: of the enforced limits, the one with the longest wait if the request is refused,
/// otherwise the one with the smallest remaining share.
fn reported(shared: &Shared, (asked, verdicts): (&[usize], &[Verdict]), admitted: bool) -> Option<usize> {
    let enforced = (0..asked.len()).filter(|at| shared.limits[asked[*at]].enforces());
    if admitted {
        return enforced.min_by(|a, b| {
            let (a, b) = (verdicts[*a].usage, verdicts[*b].usage);
            // a.remaining / a.capacity against b's, without dividing
            let left = u128::from(a.remaining) * u128::from(b.capacity);
            left.cmp(&(u128::from(b.remaining) * u128::from(a.capacity)))
        });
    }
    let refusing = enforced.filter(|at| verdicts[*at].answer.is_err());
    refusing.min_by_key(|at| Reverse(wait(&verdicts[*at]).unwrap_or(Span::MAX)))
}

/// The wait until a limit admits the request; `None` if it never does.
fn wait(verdict: &Verdict) -> Option<Span> {
    match verdict.answer {
        Ok(_) => Some(Span::ZERO),
        Err(Refusal::Until(span) | Refusal::Banned(span)) => Some(span),
        Err(Refusal::Busy) => Some(BUSY),
        Err(Refusal::Never) => None,
    }
}

#[cold]
fn refuse(
    shared: &Shared,
    applied: &Applied,
    head: &Parts,
    (asked, verdicts): (&[usize], &[Verdict]),
    reported: Option<usize>,
    now: Time,
) -> Response<Bytes> {
    let refuses = |at: &usize| shared.limits[asked[*at]].enforces() && verdicts[*at].answer.is_err();
    let violated: SmallVec<[&str; 4]> =
        (0..asked.len()).filter(refuses).map(|at| shared.limits[asked[at]].name()).collect();
    let at = reported.expect("a refusal has a limit that refuses");
    let limit = &shared.limits[asked[at]];
    let retry_after = wait(&verdicts[at]).map(Duration::from);
    let refused = Refused {
        request: head,
        reason: Reason::Limit,
        limit: limit.name(),
        violated: &violated,
        retry_after,
    };
    let mut response = made(shared, &refused);
    let usage = verdicts[at].usage;
    let reported = Reported { limit, usage, policies: &applied.policies, now };
    reported.add_refusal(shared.families, refused.retry_after_secs(), response.headers_mut());
    response
}

/// Refuses a request that does not have the key of a limit.
#[cold]
fn deny(shared: &Shared, head: &Parts, index: usize) -> Response<Bytes> {
    let limit = &shared.limits[index];
    shared.observe(limit, Outcome::Denied);
    let violated = [limit.name()];
    let (reason, limit) = (Reason::MissingKey, limit.name());
    made(shared, &Refused { request: head, reason, limit, violated: &violated, retry_after: None })
}

fn made(shared: &Shared, refused: &Refused<'_>) -> Response<Bytes> {
    shared.refusals.as_ref().map_or_else(|| refused.response(), |make| make(refused))
}
