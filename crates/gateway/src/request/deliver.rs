//! A request that was accepted earlier is served: it is matched anew, with the identity that was verified then, and all of its
//! limits decide anew.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::{StatusCode, header};
use http_body_util::BodyExt;
use sluicegate_limiter::{Span, Time};

use super::disposition::Admitted;
use super::matching::{Matching, Step};
use super::pipeline::{finish, match_waiting, respond};
use crate::limit::SelectedLimit;
use crate::queue::{StoredAnswer, characters};
use crate::request::{RequestContext, Services};
use sluicegate_auth::Answers;
use sluicegate_base::boxed_future::boxed_future;
use sluicegate_base::incoming::Request;
use sluicegate_base::message::{LocalResponse, RequestId};
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_downstream::{Connection, RequestBody};
use sluicegate_wire::RequestHead;

/// The most bytes of an answer's body that are stored.
const MAX_ANSWER: usize = 64 << 10;
/// The most bytes of an answer's header fields that are stored.
const MAX_HEADERS: usize = 16 << 10;
/// How long a request waits after a refusal because a service that decides on it is unavailable or overloaded.
const UNAVAILABLE: Span = Span::SECOND;

/// A request to be served.
pub struct Delivery<'d> {
    /// Its connection, on which nothing is sent.
    pub connection: &'d Rc<Connection>,
    /// Its head.
    pub head: RequestHead,
    /// Its body.
    pub body: Bytes,
    /// The id that it was accepted with.
    pub id: Option<RequestId>,
    /// Who has sent it.
    pub answers: Answers,
    /// The limit whose queue it is in.
    pub limit: &'d str,
}

/// What became of an attempt to serve it.
#[derive(Debug)]
pub enum Outcome {
    /// It was not sent, and is to be tried again.
    Deferred(Deferred),
    /// It cannot be sent.
    Rejected(String),
    /// It could not be sent: no server of the upstream took the connection.
    Unsent(String),
    /// The upstream did not answer.
    Unanswered(String),
    /// The upstream answered.
    Answered(StoredAnswer),
}

/// Why a request was not sent, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Deferred {
    /// Not before this time.
    pub until: Time,
    /// Whether the same holds for all requests of the queue.
    pub all: bool,
}

impl Delivery<'_> {
    /// Serves the request. `decided` is called as soon as its limits have decided.
    pub async fn serve(self, services: &Services, decided: impl FnOnce(Option<Deferred>)) -> Outcome {
        let Self { connection, mut head, body, id, answers, limit } = self;
        let view = services.view();
        let now = connection.worker.clock().now();
        let mut context = RequestContext::new(connection, &connection.deadline, &view, now, Some(&head));
        if let Some(id) = id {
            context.exchange().adopt_id(id);
        }
        let admitted = {
            let request = Request { head: &head, peer: context.peer(connection) };
            let mut matching = Matching::new(&view.snapshot, request, now);
            matching.inputs.answers = answers;
            boxed_future(|| decide(&view, &mut context, matching, limit)).await
        };
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(outcome) => {
                context.discard();
                decided(match &outcome {
                    Outcome::Deferred(deferred) => Some(*deferred),
                    _ => None,
                });
                return outcome;
            }
        };
        decided(None);
        let body = &mut Some(if body.is_empty() { RequestBody::None } else { RequestBody::Stored(body) });
        let answered = {
            let answering = std::pin::pin!(respond(
                &view,
                connection,
                &mut context,
                &mut head,
                body,
                Some(Box::new(admitted))
            ));
            connection.deadline.within_total(&connection.worker.deadlines, answering).await
        };
        let Some(response) = answered else {
            let response = context.refuse(crate::respond::LocalError::TimedOut);
            context.finish(&view.snapshot, response.with_body());
            return Outcome::Unanswered("no answer within the timeout of the route".to_owned());
        };
        let failed = failure(&context, response.status, &response.headers, now);
        let mut response = context.finish(&view.snapshot, response);
        if let Some(outcome) = failed {
            return outcome;
        }
        let (mut stored, mut truncated) = (BytesMut::new(), false);
        while let Some(frame) = response.body.frame().await {
            let Ok(frame) = frame else {
                truncated = true; // it was delivered: the upstream has answered
                break;
            };
            let Ok(data) = frame.into_data() else { continue };
            let fits = data.len().min(MAX_ANSWER - stored.len());
            stored.extend_from_slice(&data[..fits]);
            if fits < data.len() {
                truncated = true;
                response.body.leave();
                break;
            }
        }
        let mut room = MAX_HEADERS;
        let headers = response.headers.iter().filter_map(|(name, value)| {
            room = room.checked_sub(name.len() + value.len())?;
            Some((characters(name), characters(value)))
        });
        Outcome::Answered(StoredAnswer {
            status: response.status.as_u16(),
            headers: headers.collect(),
            truncated,
            body: stored.freeze(),
        })
    }
}

/// Matches the request and evaluates its limits.
///
/// # Errors
/// Why it is not sent.
async fn decide<'s>(
    view: &'s super::View,
    context: &mut RequestContext,
    mut matching: Matching<'s, '_>,
    limit: &str,
) -> Result<Admitted<'s>, Outcome> {
    // Nothing has to be verified, so that no limit needs to be asked before that.
    let step = matching.step(&|_| false);
    let matched = match step {
        Step::Decide(matched) if matched.reject.is_none() => {
            context.set_matched(&view.snapshot, &matched, matching.request.head);
            match context.shed_by_load(view, matching.request.head, &matched.identity) {
                None => Ok(matched),
                Some(response) => Err(response),
            }
        }
        step => match_waiting(view, &mut matching, step, context).await,
    };
    let now = context.now();
    let mut matched = matched.map_err(|response| answered(context, &response, now))?;
    if let Some(reject) = matched.reject {
        let why = reject.error().map_or("the gateway answers it itself", |error| error.detail());
        return Err(Outcome::Rejected(why.to_owned()));
    }
    matching.inputs.now = now;
    matching.selection.selected.iter_mut().for_each(|one| one.ask.renew(now));
    let store = view.store_of(&matching.selection).cloned();
    let mut decision = matching.selection.decide_on(store.as_ref(), now).await;
    if decision.unavailable {
        return Err(deferred(now, UNAVAILABLE, true));
    }
    if !decision.admitted {
        let decided = matched.with_decision(&matching.selection, &decision, now).decided();
        let Some(refusing) = decided.reported().map(|at| decided.at(at)) else {
            return Err(deferred(now, UNAVAILABLE, true));
        };
        let config = &refusing.selected.limit.config;
        return Err(match refusing.retry_after() {
            Some(wait) => deferred(now, wait, config.name == limit && refuses_all(refusing.selected)),
            None => {
                Outcome::Rejected(format!("the limit `{}` never admits a request of this cost", config.name))
            }
        });
    }
    finish(&matching, &mut matched, &mut decision, view, context)
        .admitted()
        .map_err(|response| answered(context, &response, now))
}

/// Whether this limit, when it refuses one request, refuses all requests of its queue.
fn refuses_all(one: &SelectedLimit<'_>) -> bool {
    let config = &one.limit.config;
    config.key.is_constant()
        && config.plans.is_empty()
        && config.identity_rate.is_none()
        && one.fair.is_none()
}

fn deferred(now: Time, wait: Span, all: bool) -> Outcome {
    Outcome::Deferred(Deferred { until: now.plus(wait), all })
}

/// The gateway itself has answered a request before its limits were evaluated.
fn answered(context: &RequestContext, response: &LocalResponse, now: Time) -> Outcome {
    match retry_after(response.headers.only(header::RETRY_AFTER)) {
        Some(wait) => deferred(now, wait, true),
        None => Outcome::Rejected(refusal(context, response.status)),
    }
}

/// The outcome of a response that the upstream did not give, or that asks for another attempt.
fn failure(
    context: &RequestContext,
    status: StatusCode,
    headers: &sluicegate_wire::Headers,
    now: Time,
) -> Option<Outcome> {
    match context.reason() {
        None | Some(RefusalReason::Respond) => None,
        Some(_) if context.is_unsent() => Some(Outcome::Unsent(refusal(context, status))),
        // It was not sent, so this is neither an error of the upstream nor of the client.
        Some(RefusalReason::Shed | RefusalReason::UpstreamDrained | RefusalReason::Overload) => {
            let wait = retry_after(headers.only(header::RETRY_AFTER)).unwrap_or(UNAVAILABLE);
            Some(deferred(now, wait, true))
        }
        Some(RefusalReason::Malformed | RefusalReason::TooLarge) => {
            Some(Outcome::Rejected(refusal(context, status)))
        }
        Some(_) => Some(Outcome::Unanswered(refusal(context, status))),
    }
}

/// Why the gateway did not get an answer.
fn refusal(context: &RequestContext, status: StatusCode) -> String {
    let reason = context.reason().map_or("error", RefusalReason::name);
    format!("{reason} ({})", status.as_u16())
}

/// The seconds of `Retry-After`.
pub fn retry_after(value: Option<&[u8]>) -> Option<Span> {
    let seconds = std::str::from_utf8(value?).ok()?.trim().parse::<u32>().ok()?;
    Some(Span::from_secs(seconds.into()))
}
