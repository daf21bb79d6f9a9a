//! One attempt to deliver a request.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use http::{Method, Version};
use tokio::sync::oneshot;

use super::held::Hold;
use crate::queue::{
    Claimed, End, Next, Queue, Retries, Sealed, StoredAnswer, StoredRequest, millis, of_characters,
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
pub(super) const MAX_PAUSE: u64 = 60_000;
/// The group of deadlines that belongs to no listener.
const NO_GROUP: u64 = u64::MAX;
/// The pause of a consumer whose request no server took, in milliseconds.
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
        let request = std::mem::take(&mut self.claimed.request);
        let Some(delivery) = StoredRequest::decode(&request).ok().and_then(|request| self.prepare(request))
        else {
            let reason = "what is stored of it cannot be read by this release".to_owned();
            self.fail(reason).await;
            return None;
        };
        let (connection, parts) = delivery;
        let connection = Rc::new(connection(&self.services, place));
        let (head, body, id, answers) = parts;
        let delivery = Delivery { connection: &connection, head, body, id, answers };
        let decided = |deferred: Option<Deferred>| {
            // Nobody waits for it if the queue is not served any more.
            _ = verdict.send(deferred.map_or(Verdict::Admitted, Verdict::Deferred));
        };
        let outcome = tokio::select! {
            outcome = boxed_future(|| delivery.serve(&self.services, decided)) => Some(outcome),
            () = self.queue.state.cut.notified() => None,
            // Another gateway makes the attempt.
            () = hold.lost(self.services.process.clock) => return None,
        };
        let was_sent = match &outcome {
            Some(Outcome::Unsent(_)) => Some(false),
            Some(Outcome::Unanswered(_) | Outcome::Answered(_)) => Some(true),
            Some(Outcome::Deferred(_) | Outcome::Rejected(_)) | None => None,
        };
        match outcome {
            None => self.end(End::Released { until: None }).await,
            Some(Outcome::Deferred(Deferred { until, all })) => {
                let until = (!all).then(|| millis(until).min(self.now() + MAX_PAUSE));
                self.end(End::Released { until }).await;
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

    /// Writes how the attempt ended, as often as it takes.
    async fn end(self, end: End) {
        let keep = u64::try_from(self.queue.config.keep.as_millis()).unwrap_or(u64::MAX);
        let state = &self.queue.state;
        let attempt = (self.claimed.id, self.claimed.attempt);
        loop {
            let (now, end) = (self.now(), end.clone());
            match state.end(attempt, end, now, keep).await {
                Ok(_) => break,
                // The process that has the file makes the attempt again.
                Err(error) if error.is_handed_over() => break,
                Err(error) => {
                    state.counts.count(QueueEvent::Error);
                    state.warn(now, &format!("were sent, and that cannot be written: {error}"));
                    tokio::time::sleep(AFTER_ERROR).await;
                }
            }
        }
    }

    /// What is sent, and on which connection it would have come; `None` if it is no valid request.
    #[allow(clippy::type_complexity, reason = "it is taken apart at once")]
    fn prepare(
        &self,
        request: StoredRequest,
    ) -> Option<(
        impl FnOnce(&Services, CountGuard) -> Connection + use<>,
        (RequestHead, bytes::Bytes, Option<RequestId>, Answers),
    )> {
        let sealed = self.queue.seal.as_ref().and_then(|seal| request.open(seal));
        let keys = request.keys(sealed.as_ref());
        let Sealed { headers: credentials, target, .. } = sealed.unwrap_or_default();
        let mut headers = Headers::new();
        for (name, value) in request.headers.iter().chain(&credentials) {
            headers.append(name, of_characters(value));
        }
        if !headers.contains_key("idempotency-key") {
            headers.append("idempotency-key", format!("\"{}\"", self.claimed.id));
        }
        if !request.body.is_empty() {
            headers.append("content-length", request.body.len().to_string());
        }
        let head = RequestHead {
            method: Method::from_bytes(request.method.as_bytes()).ok()?,
            target: RequestTarget::origin(target.unwrap_or(request.target).as_bytes())?,
            version: Version::HTTP_11,
            headers,
        };
        let (peer, listener, tls) = (request.peer, request.listener, request.tls);
        let connection = move |services: &Services, place: CountGuard| {
            let view = services.last_view();
            let process = &services.process;
            let of_process = Rc::new(Listener::new(listener, NO_GROUP));
            let (configs, states) = (&view.snapshot.config.listeners, &view.snapshot.listener_states);
            of_process.find_in(configs, states, &process.metrics, services.index);
            let alone = CountGuard::one(&Arc::new(AtomicI64::new(0)), 1);
            let alone = alone.unwrap_or_else(|| unreachable!("it counts to one"));
            let mut connection = Connection::new(&services.worker, &of_process, peer, [place, alone]);
            connection.tls = tls.map(|client| {
                let client = client.map(|(subject, fingerprint)| ClientCertificate { subject, fingerprint });
                Box::new(TlsSession::of_accepted(client))
            });
            connection
        };
        let id = RequestId::received(request.request_id.as_bytes());
        let answers = Answers::of_accepted(request.identity, keys);
        Some((connection, (head, request.body, id, answers)))
    }
}
