//! Queued requests: `/queues`, `/queues/{limit}/requests`, and dead letters that are queued again or dropped.

#![allow(clippy::result_large_err, reason = "an answer is made once for each request of an operator")]

use std::net::IpAddr;
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use super::asking::Asking;
use super::body::body;
use super::query::parameter;
use super::{Admin, Answer, not_with_that_method, problem, reply};
use crate::queue::{
    Cancelled, DeadLetters, Entry, Id, MAX_DEAD_LETTERS, Queue, QueueError, Queues, State, millis, time,
};
use crate::request::queue_status::document;
use sluicegate_base::clock::rfc3339;
use sluicegate_base::queue_event::QueueEvent;
use sluicegate_config::{Role, percent_decode};

/// The largest body, in bytes.
const LARGEST: usize = 1 << 10;
/// The requests of a page, and the most of them.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;

/// What is queued again or dropped: one request, or all dead letters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    id: Option<String>,
    #[serde(default)]
    all: bool,
}

impl Admin {
    /// Answers a request about queues.
    pub(super) async fn queues(&self, request: Request<Incoming>, parts: &[&str], peer: IpAddr) -> Answer {
        let get = matches!(*request.method(), Method::GET | Method::HEAD);
        let answered = match parts {
            [] if get => self.all_queues().await,
            [limit, "requests"] if get => self.queued(limit, request.uri().query()).await,
            [limit, "requests", id] if get => {
                let may_read = self.actor(&request, Role::Read).is_ok();
                self.one_queued(limit, id, may_read).await
            }
            [limit, change @ ("retry" | "drop")] if *request.method() == Method::POST => {
                self.change_queue(request, limit, change, peer).await
            }
            [] | [_, "requests"] | [_, "requests", _] => Ok(not_with_that_method("GET, HEAD")),
            [_, "retry" | "drop"] => Ok(not_with_that_method("POST")),
            _ => Ok(problem(StatusCode::NOT_FOUND, super::NOTHING_HERE)),
        };
        answered.unwrap_or_else(|refusal| refusal)
    }

    /// The figures of all queues.
    async fn all_queues(&self) -> Result<Answer, Answer> {
        let queues = self.shared.snapshot.load().queues.clone();
        let now = millis(self.shared.clock.now());
        let mut all = Vec::new();
        for queue in queues.iter().flat_map(|queues| queues.iter()) {
            let figures = queue.state.figures(now).await.map_err(|error| away(&error))?;
            let paused_until = queue.state.standing().paused_until;
            let paused = (paused_until > now).then(|| rfc3339(time(paused_until)));
            all.push(json!({
                "limit": queue.state.limit(),
                "place": queue.state.place(),
                "length": figures.length,
                "bytes": figures.bytes,
                "dead_letters": figures.failed,
                "oldest_accepted_at": figures.oldest.map(|oldest| rfc3339(time(oldest))),
                "paused_until": paused,
                "max_length": queue.config.max_length,
                "max_bytes": queue.config.max_bytes,
            }));
        }
        Ok(reply(&Value::from(all)))
    }

    /// The queues, as far as is known without reading them.
    pub(super) fn known_queues(&self) -> Value {
        let queues = self.shared.snapshot.load().queues.clone();
        let now = millis(self.shared.clock.now());
        let describe = |queue: &Arc<Queue>| {
            let (figures, counts) = (queue.state.standing().figures, &queue.state.counts);
            json!({
                "limit": queue.state.limit(),
                "place": queue.state.place(),
                "length": figures.length,
                "max_length": queue.config.max_length,
                "dead_letters": figures.failed,
                "oldest_seconds": figures.oldest.map(|oldest| now.saturating_sub(oldest) as f64 / 1e3),
                "delivered": counts.get(QueueEvent::Delivered),
                "full": counts.get(QueueEvent::Full),
                "errors": counts.get(QueueEvent::Error),
            })
        };
        queues.iter().flat_map(|queues| queues.iter()).map(describe).collect()
    }

    /// A page of the requests of a queue.
    async fn queued(&self, limit: &str, query: Option<&str>) -> Result<Answer, Answer> {
        let queue = self.known_queue(limit)?;
        let number = |name: &str, usual: u64| match parameter(query, name) {
            None => Ok(usual),
            Some(text) => text.parse::<u64>().map_err(|_| {
                problem(StatusCode::BAD_REQUEST, &format!("`{name}` is a number, not `{text}`"))
            }),
        };
        let (after, most) = (number("after", 0)?, number("most", PAGE as u64)?);
        let most = usize::try_from(most).unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE);
        let failed = match parameter(query, "state").as_deref() {
            None | Some("queued") => false,
            Some("failed") => true,
            Some(other) => {
                let why = format!("`state` is queued or failed, not `{other}`");
                return Err(problem(StatusCode::BAD_REQUEST, &why));
            }
        };
        let entries = queue
            .state
            .list(failed, after, most, millis(self.shared.clock.now()))
            .await
            .map_err(|error| away(&error))?;
        let next = entries.last().filter(|_| entries.len() == most).map(|last| last.number);
        let requests: Vec<Value> = entries.iter().map(shown).collect();
        Ok(reply(&json!({ "requests": requests, "next": next })))
    }

    /// A request. The answer of the upstream may be confidential, so it is shown only with a token.
    async fn one_queued(&self, limit: &str, id: &str, may_read: bool) -> Result<Answer, Answer> {
        let queue = self.known_queue(limit)?;
        let entry = self.entry(&queue, id).await?;
        let answer = entry.answer.clone().filter(|_| may_read);
        Ok(reply(&shown(&Entry { answer, ..entry })))
    }

    /// Queues dead letters again, or drops requests.
    async fn change_queue(
        &self,
        request: Request<Incoming>,
        limit: &str,
        change: &str,
        peer: IpAddr,
    ) -> Result<Answer, Answer> {
        let actor = self.actor(&request, Role::All)?;
        let queue = self.known_queue(limit)?;
        let text = body(request, LARGEST).await?;
        let which: Which = serde_json::from_str(&text).map_err(|error| {
            problem(StatusCode::BAD_REQUEST, &format!("the body cannot be read: {error}"))
        })?;
        let count = match (which.id.as_deref(), which.all) {
            (Some(id), false) => self.change_one(&queue, id, change).await?,
            (None, true) => {
                let (mut all, which) = (0, DeadLetters::AllOf(queue.state.limit().to_owned()));
                loop {
                    let count = self.change_failed(&queue, which.clone(), change).await?;
                    all += count;
                    // Those that fail again meanwhile are left.
                    if count < MAX_DEAD_LETTERS {
                        break all;
                    }
                }
            }
            _ => {
                let why = "say which request: `{\"id\": \"…\"}`, or `{\"all\": true}` for all dead letters";
                return Err(problem(StatusCode::BAD_REQUEST, why));
            }
        };
        self.audit_queue(&Asking { actor, peer }, queue.state.limit(), change, which.id.as_deref(), count);
        Ok(reply(&json!({ "limit": queue.state.limit(), "changed": count })))
    }

    /// Changes one request. Only dead letters are queued again; a request that waits can be dropped too.
    async fn change_one(&self, queue: &Arc<Queue>, id: &str, change: &str) -> Result<u64, Answer> {
        let entry = self.entry(queue, id).await?;
        match entry.state {
            State::Failed => self.change_failed(queue, DeadLetters::One(entry.id), change).await,
            State::Waiting | State::Blocked if change == "drop" => {
                let now = millis(self.shared.clock.now());
                let cancelled = queue.state.cancel(entry.id, entry.owner, now, queue.keep());
                match cancelled.await.map_err(|error| away(&error))? {
                    Cancelled::Done => Ok(1),
                    Cancelled::TooLate(state) => Err(too_late(state, change)),
                    Cancelled::NotFound => Err(not_found(id)),
                }
            }
            state => Err(too_late(state, change)),
        }
    }

    async fn change_failed(
        &self,
        queue: &Arc<Queue>,
        which: DeadLetters,
        change: &str,
    ) -> Result<u64, Answer> {
        let now = millis(self.shared.clock.now());
        let changed = match change {
            "retry" => queue.state.retry(which, now, queue.ttl()).await,
            _ => queue.state.drop_failed(which).await,
        };
        changed.map_err(|error| away(&error))
    }

    async fn entry(&self, queue: &Queue, id: &str) -> Result<Entry, Answer> {
        let parsed: Id = id.parse().map_err(|_| not_found(id))?;
        let entry =
            queue.state.get(parsed, millis(self.shared.clock.now())).await.map_err(|error| away(&error))?;
        entry.filter(|entry| entry.limit == queue.state.limit()).ok_or_else(|| not_found(id))
    }

    /// The queue of the limit of this name, as the path has it.
    fn known_queue(&self, limit: &str) -> Result<Arc<Queue>, Answer> {
        let name = percent_decode(limit);
        let queues = self.shared.snapshot.load().queues.clone();
        let found = queues.as_ref().and_then(|queues| queues.named(&name)).map(Arc::clone);
        found.ok_or_else(|| {
            let names = |queues: &Arc<Queues>| {
                queues.iter().map(|queue| queue.state.limit().to_owned()).collect::<Vec<_>>().join(", ")
            };
            let why = match &queues {
                Some(queues) => {
                    format!("no limit called `{name}` has a queue; those that have one: {}", names(queues))
                }
                None => format!("no limit called `{name}` has a queue"),
            };
            problem(StatusCode::NOT_FOUND, &why)
        })
    }
}

/// A request as operators see it.
fn shown(entry: &Entry) -> Value {
    let mut shown = document(entry);
    shown["limit"] = json!(entry.limit);
    shown["consumer"] = json!(entry.consumer);
    shown["size"] = json!(entry.size);
    shown["number"] = json!(entry.number);
    shown
}

fn not_found(id: &str) -> Answer {
    problem(StatusCode::NOT_FOUND, &format!("the queue has no request `{id}`"))
}

fn too_late(state: State, change: &str) -> Answer {
    let why = match change {
        "retry" => format!("the request is {}: only a failed one can be queued again", state.name()),
        _ => format!("the request is {}: only one that waits or has failed can be dropped", state.name()),
    };
    problem(StatusCode::CONFLICT, &why)
}

fn away(error: &QueueError) -> Answer {
    problem(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
}
