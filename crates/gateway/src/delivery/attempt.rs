//! One attempt to deliver a request.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use http::{Method, Version};
use tokio::sync::oneshot;

use super::held::Hold;
use crate::queue::{
    Claimed, End, Next, Queue, Retries, Sealed, StoredAnswer, StoredRequest, StoredTls, millis, of_characters,
};
use crate::request::{Deferred, Delivery, Outcome, Services, retry_after};
use sluicegate_auth::Answers;
use sluicegate_base::boxed_future::boxed_future;
use sluicegate_base::message::RequestId;
use sluicegate_base::queue_event::QueueEvent;
use sluicegate_base::tls::{ClientCertificate, TlsSession};
use sluicegate_downstream::{Connection, CountGuard, Listener};
use sluicegate_wire::{Headers, RequestHead, RequestTarget};

/// The longest pause of a queue or a consumer, in milliseconds: limits may be changed, and keys pardoned.
const MAX_PAUSE: u64 = 60_000;
/// The group of deadlines that belongs to no listener.
const NO_GROUP: u64 = u64::MAX;
/// The pause of a consumer after no server took its request, in milliseconds.
const AFTER_UNSENT: u64 = 1_000;
/// The pause after the end of an attempt could not be written.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// One attempt to deliver a request.
pub(super) struct Attempt {
    services: Rc<Services>,
    queue: Arc<Queue>,
    claimed: Claimed,
}

/// What the limits of a request have decided.
pub(super) enum Verdict {
    /// It is sent, or cannot be.
    Admitted,
    /// It has to wait.
    Deferred(Deferred),
}

impl Attempt {
    pub(super) fn new(services: Rc<Services>, queue: Arc<Queue>, claimed: Claimed) -> Self {
        Self { services, queue, claimed }
    }

    /// Puts the request back into the queue. Its consumer has no turn before `until`.
    pub(super) async fn release(self, until: u64) {
        let until = (until > 0).then_some(until);
        self.end(End::Released { until }).await;
    }

    /// Makes the attempt. Returns whether a server took the request, if that was tried.
    pub(super) async fn make(
        mut self,
        place: CountGuard,
        verdict: oneshot::Sender<Verdict>,
        hold: &Hold,
    ) -> Option<bool> {
        let stored = std::mem::take(&mut self.claimed.request);
        let request = StoredRequest::decode(&stored).ok();
        let sealed = request.as_ref().and_then(|request| request.open(self.queue.seal.as_ref()?));
        let head = request.as_ref().and_then(|request| self.head(request, sealed.as_ref()));
        if self.claimed.attempt > self.queue.config.max_attempts {
            self.fail("`max_attempts` is reached".to_owned()).await;
            return None;
        }
        if sealed.is_none() && request.as_ref().is_some_and(|request| request.sealed.is_some()) {
            self.fail("its credentials or keys are encrypted with another key (`key_file`)".to_owned()).await;
            return None;
        }
        let (Some(request), Some(head)) = (request, head) else {
            self.fail("this release cannot read the stored request".to_owned()).await;
            return None;
        };
        let keys = request.keys(sealed.as_ref());
        let StoredRequest { listener, peer, tls, request_id, identity, body, .. } = request;
        let connection = Rc::new(connection(&self.services, (listener, peer, tls), place));
        let id = RequestId::received(request_id.as_bytes());
        let answers = Answers::of_accepted(identity, keys);
        let delivery =
            Delivery { connection: &connection, head, body, id, answers, limit: self.queue.state.limit() };
        let decided = |deferred: Option<Deferred>| {
            // The queue is not served any more, so the result is not needed.
            _ = verdict.send(deferred.map_or(Verdict::Admitted, Verdict::Deferred));
        };
        let outcome = tokio::select! {
            biased; // a lost claim is noticed first: nothing is sent then
            // Another gateway makes the attempt.
            () = hold.lost(self.services.process.clock) => return None,
            () = self.queue.state.cut.notified() => None,
            outcome = boxed_future(|| delivery.serve(&self.services, decided)) => Some(outcome),
        };
        let was_sent = match &outcome {
            Some(Outcome::Unsent(_)) => Some(false),
            Some(Outcome::Unanswered(_) | Outcome::Answered(_)) => Some(true),
            Some(Outcome::Deferred(_) | Outcome::Rejected(_)) | None => None,
        };
        match outcome {
            None => self.end(End::Released { until: None }).await,
            Some(Outcome::Deferred(Deferred { until, all })) => {
                let until = millis(until).min(self.now() + MAX_PAUSE);
                if all {
                    self.queue.state.pause_until(until);
                }
                self.end(End::Released { until: (!all).then_some(until) }).await;
            }
            Some(Outcome::Unsent(_)) => {
                let until = Some(self.now() + AFTER_UNSENT);
                self.end(End::Released { until }).await;
            }
            Some(Outcome::Rejected(reason)) => self.fail(reason).await,
            Some(Outcome::Unanswered(reason)) => self.try_again(reason, None).await,
            Some(Outcome::Answered(answer)) => self.answered(answer).await,
        }
        was_sent
    }

    fn now(&self) -> u64 {
        millis(self.services.process.clock.now())
    }

    /// The upstream has answered.
    async fn answered(self, answer: StoredAnswer) {
        let is_temporary =
            matches!(answer.status, 408 | 425 | 429) || (answer.status >= 500 && answer.status != 501);
        if is_temporary {
            let wait = answer.headers.iter().find(|(name, _)| name == "retry-after");
            let wait = wait.and_then(|(_, value)| retry_after(Some(value.as_bytes())));
            let wait = wait.map(|wait| wait.as_nanos() / 1_000_000);
            return self.try_again(format!("the upstream answered {}", answer.status), wait).await;
        }
        self.queue.state.counts.count(QueueEvent::Delivered);
        self.end(End::Delivered { answer: answer.encode() }).await;
    }

    /// The attempt has failed, and another one may follow.
    async fn try_again(self, reason: String, wait: Option<u64>) {
        let retries = Retries { max_attempts: self.queue.config.max_attempts };
        match retries.after(self.claimed.attempt, self.claimed.id, self.now(), wait) {
            Next::Again(due) => {
                self.queue.state.counts.count(QueueEvent::Retried);
                self.end(End::Again { due, reason }).await;
            }
            Next::Dead => self.fail(reason).await,
        }
    }

    /// The request becomes a dead letter.
    async fn fail(self, reason: String) {
        let (id, limit) = (self.claimed.id, self.queue.state.limit());
        tracing::warn!("queued request {id} of the limit `{limit}` has failed: {reason}");
        self.queue.state.counts.count(QueueEvent::Failed);
        self.end(End::Failed { reason }).await;
    }

    /// Writes how the attempt ended. Repeats that until it succeeds.
    async fn end(self, end: End) {
        let state = &self.queue.state;
        let claim = (self.claimed.id, self.claimed.claim);
        loop {
            let (now, end) = (self.now(), end.clone());
            match state.end(claim, end, now, self.queue.keep()).await {
                Ok(_) => break,
                // The process that has the file makes the attempt again.
                Err(error) if error.is_handed_over() => break,
                Err(error) => {
                    state.counts.count(QueueEvent::Error);
                    state.warn(now, &format!("were sent, but the outcome cannot be written: {error}"));
                    tokio::time::sleep(AFTER_ERROR).await;
                }
            }
        }
    }

    /// The head that is sent; `None` if it is not valid.
    fn head(&self, request: &StoredRequest, sealed: Option<&Sealed>) -> Option<RequestHead> {
        let mut headers = Headers::new();
        let credentials = sealed.map(|sealed| &sealed.headers);
        for (name, value) in request.headers.iter().chain(credentials.into_iter().flatten()) {
            headers.append(name, of_characters(value));
        }
        if !headers.contains_key("idempotency-key") {
            headers.append("idempotency-key", format!("\"{}\"", self.claimed.id));
        }
        if !request.body.is_empty() {
            headers.append("content-length", request.body.len().to_string());
        }
        let target = sealed.and_then(|sealed| sealed.target.as_ref()).unwrap_or(&request.target);
        Some(RequestHead {
            method: Method::from_bytes(request.method.as_bytes()).ok()?,
            target: RequestTarget::origin(target.as_bytes())?,
            version: Version::HTTP_11,
            headers,
        })
    }
}

/// The connection on which a request came, as far as it is stored.
fn connection(
    services: &Services,
    (listener, peer, tls): (String, SocketAddr, Option<StoredTls>),
    place: CountGuard,
) -> Connection {
    let view = services.last_view();
    let listener = Rc::new(Listener::new(listener, NO_GROUP));
    let (configs, states) = (&view.snapshot.config.listeners, &view.snapshot.listener_states);
    listener.find_in(configs, states, &services.process.metrics, services.index);
    let alone = CountGuard::one(&Arc::new(AtomicI64::new(0)), 1);
    let alone = alone.unwrap_or_else(|| unreachable!("it counts to one"));
    let mut connection = Connection::new(&services.worker, &listener, peer, [place, alone]);
    connection.tls = tls.map(|client| {
        let client = client.map(|(subject, fingerprint)| ClientCertificate { subject, fingerprint });
        Box::new(TlsSession::of_accepted(client))
    });
    connection
}
