//! What the gateway would answer to a request, and why: the route, the keys, the state of each limit, the headers. Nothing is
//! charged, no refusal is counted, and no ban begins.
//!
//! A request that was refused is explained from what is [remembered](sluicegate_observe::refusals) of it.

mod client;
mod limits;
mod question;
mod refused;
mod text;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use sluicegate_counters::{RemoteBan, RemoteState, preview};
use sluicegate_limiter::{Span, Time};
use sluicegate_wire::{Headers, RequestHead};

pub use self::limits::ExplainedLimit;
pub use self::question::Question;
use crate::found_keys::meant_consumer;
use crate::limit::{Ask, SlowerLane, Store, preview_shares};
use crate::queue::{Figures, millis};
use crate::request::early_reject::{EarlyReject, response};
use crate::request::matching::{Matching, Step};
use crate::request::verdict::{Evaluated, Matched};
use crate::request::{queued_by, seconds_to_place};
use crate::respond::{LocalError, QUEUE_PATH, RateLimitHeaders, refusal, unavailable};
use crate::snapshot::{Snapshot, Target};
use sluicegate_auth::Answers;
use sluicegate_auth::client_address;
use sluicegate_base::clock::Clock;
use sluicegate_base::incoming::{Peer, Request};
use sluicegate_base::message::{LocalResponse, RequestId};
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_observe::access_log::Outcome;
use sluicegate_observe::shown_key::ShownKeys;
use sluicegate_route::{Misses, RouteQuery, host};

/// The answer to "what happens to this request, and why?".
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// The id of the request, if it is one that was served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// When it was served (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The route.
    pub route: Option<String>,
    /// The address of the client.
    pub client: Option<IpAddr>,
    /// How it was determined, and which proxies were trusted.
    pub client_why: String,
    /// The consumer.
    pub consumer: Option<String>,
    /// The plan.
    pub plan: Option<String>,
    /// `admitted`, `refused` or `unmatched`.
    pub outcome: String,
    /// The reason of the refusal, as in the access log.
    pub reason: Option<String>,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The limit that the headers report.
    pub limit: Option<String>,
    /// All limits of the route.
    pub limits: Vec<ExplainedLimit>,
    /// The other routes, in the order of the file.
    pub passed_over: Vec<PassedOver>,
    /// The status of the answer; `None` if the upstream answers.
    pub status: Option<u16>,
    /// The headers that the gateway adds.
    pub headers: BTreeMap<String, String>,
}

/// A route that does not take the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOver {
    /// Its name.
    pub route: String,
    /// Why not.
    pub why: String,
}

/// A gateway that serves, for explanations of what it would do now.
#[derive(Clone)]
pub struct Live {
    /// The store.
    pub store: Option<Rc<Store>>,
    /// The clock.
    pub clock: Clock,
}

impl Snapshot {
    /// Explains what would happen to a request at `now`. Without `live`, nobody outside is asked and all counters are at zero,
    /// unless the snapshot has some.
    ///
    /// # Errors
    /// What is wrong with the question.
    pub async fn explain(
        &self,
        question: &Question,
        live: Option<&Live>,
        now: Time,
    ) -> Result<Explanation, String> {
        let mut head = question.head()?;
        self.underscores.clean(&mut head.headers);
        let listener = match &question.listener {
            None => 0,
            Some(name) => {
                let found = self.config.listeners.iter().position(|listener| listener.name == *name);
                found.ok_or_else(|| format!("there is no listener called `{}`", name.escape_debug()))?
            }
        };
        let answers = self.answers_for(question.consumer.as_deref())?;
        let config = &self.config;
        let (proxies, lists) = (&config.client_ip, &config.resources.lists);
        let client = client_address::resolve(proxies, lists, question.from, &head.headers);
        let mut explanation = Explanation {
            client: Some(client),
            client_why: client::why(self, question.from, client, &head.headers),
            ..Explanation::default()
        };
        if config.limits.iter().any(|limit| limit.queue.is_some())
            && head.target.path().starts_with(QUEUE_PATH)
        {
            explanation.outcome = Outcome::Unmatched.name().to_owned();
            explanation.detail =
                Some("the outcome of a queued request: the gateway answers its owner itself".to_owned());
            return Ok(explanation);
        }
        self.decide(&mut explanation, &head, (listener, client), answers, live, now).await;
        explanation.passed_over = self.passed_over(&head, listener, explanation.route.as_deref());
        Ok(explanation)
    }

    /// Who sends the request, if the question names a consumer.
    fn answers_for(&self, consumer: Option<&str>) -> Result<Answers, String> {
        let Some(name) = consumer else { return Ok(Answers::default()) };
        let Some((_, known)) = self.config.known_consumers() else { return Ok(Answers::of_consumer(name)) };
        let unknown = || {
            format!(
                "there is no consumer called `{}`, and none with such an API key or digest",
                name.escape_debug()
            )
        };
        Ok(Answers::of_consumer(meant_consumer(known, name).ok_or_else(unknown)?.name))
    }

    /// Matches the request and evaluates its limits on copies of their states.
    async fn decide(
        &self,
        explanation: &mut Explanation,
        head: &RequestHead,
        (listener, client): (usize, IpAddr),
        answers: Answers,
        live: Option<&Live>,
        now: Time,
    ) {
        let request = Request { head, peer: Peer::plain(listener, client) };
        let mut matching = Matching::new(self, request, now);
        matching.inputs.answers = answers;
        let mut matched = loop {
            match matching.step(&|_| false) {
                Step::Decide(matched) | Step::Refuse(matched) => break matched,
                Step::LoadRules { questions, .. } => match (&self.rules, live) {
                    (Some(in_force), Some(_)) if matching.inputs.rules.is_empty() => {
                        matching.inputs.rules = in_force.rules.load(&questions).await;
                        matching.inputs.without_rules = true; // what is still not known
                    }
                    _ => matching.inputs.without_rules = true,
                },
                Step::Ask { question, .. } => {
                    let clock = live.map(|live| live.clock);
                    let assumed = matching.inputs.answers.ask_or_assume(*question, clock).await;
                    explanation.detail = explanation.detail.take().or(assumed.map(str::to_owned));
                }
                Step::Answer(reject) => return self.rejected(explanation, &reject, head),
            }
        };
        let reject = matched.reject.take();
        let mut selection = matching.selection;
        let stored = self.stored(&mut selection.asks_mut(), live).await;
        explanation.route = Some(matched.route.name.clone());
        explanation.consumer = matched.identity.consumer().map(str::to_owned);
        explanation.plan = matched.identity.plan().map(str::to_owned);
        let unavailable = stored.iter().any(|stored| matches!(stored, Stored::Away));
        let states: Vec<_> = stored.into_iter().map(Stored::state).collect();
        let mut decision = preview(&selection.selected, &states);
        preview_shares(&selection.selected, now, &mut decision);
        let decision = match SlowerLane::after(decision, &selection.selected) {
            Err(decision) => *decision,
            Ok(lane) => {
                // Of the lane, only what this process knows.
                let known = lane.asks.iter().map(|one| states[one.at].clone().filter(|_| !one.is_lane));
                let decision = preview(&lane.asks, &known.collect::<Vec<_>>());
                lane.decided(decision)
            }
        };
        let evaluated = matched.with_decision(&selection, &decision, now);
        explanation.limits = self.explained(evaluated, &states).await;
        let full = self.full_queue(evaluated, head, now).await;
        self.answered(explanation, evaluated, (reject.as_deref(), full), unavailable, head);
    }

    /// What the store says of the limits that it counts. Their asks get the time of the store.
    async fn stored(&self, asks: &mut [&mut Ask<'_>], live: Option<&Live>) -> Vec<Stored> {
        let mut all = Vec::with_capacity(asks.len());
        for ask in asks {
            let store = live.and_then(|live| live.store.as_ref()).filter(|_| ask.limit.shared.is_some());
            let Some(store) = store else {
                all.push(Stored::Here);
                continue;
            };
            let peeked = store.peek(ask.limit, ask.key, &ask.text, Span::SECOND).await;
            all.push(match peeked {
                Some(peeked) => {
                    (ask.now, ask.at) = (peeked.at, peeked.at);
                    Stored::Store(Box::new((peeked.state, peeked.ban)))
                }
                None if ask.limit.enforced && ask.limit.is_closed_without_store() => Stored::Away,
                None => Stored::Here,
            });
        }
        all
    }

    /// Why the other routes did not take the request.
    pub(crate) fn passed_over(
        &self,
        head: &RequestHead,
        listener: usize,
        taken: Option<&str>,
    ) -> Vec<PassedOver> {
        let Ok(host) = host(head) else { return Vec::new() };
        let written = head.target.path();
        let query = RouteQuery {
            listener,
            host: &host,
            method: &head.method,
            path: written,
            headers: &head.headers,
            query: head.target.query().unwrap_or_default(),
        };
        let others = self.config.routes.iter().filter(|route| taken != Some(route.name.as_str()));
        others
            .map(|route| {
                let path = route.normal_path(written).unwrap_or(Cow::Borrowed(written));
                let query = RouteQuery { path: &path, ..query };
                let misses: Vec<&str> = Misses::of(&route.matches, &query).names().collect();
                let why = match misses.is_empty() {
                    true => "it matches too, but comes later in the file".to_owned(),
                    false => format!("no match: {}", misses.join(", ")),
                };
                PassedOver { route: route.name.clone(), why }
            })
            .collect()
    }

    /// The answer to a request that is rejected before its limits are evaluated.
    fn rejected(&self, explanation: &mut Explanation, reject: &EarlyReject, head: &RequestHead) {
        explanation.route = reject.route().map(|route| self.routes[route].name.clone());
        explanation.outcome = reject.outcome().name().to_owned();
        if let Some(error) = reject.error() {
            explanation.reason = Some(error.reason().name().to_owned());
            explanation.detail = Some(error.detail().to_owned());
        }
        if matches!(reject, EarlyReject::Preflight { .. }) {
            explanation.detail =
                Some("a CORS preflight request, which the gateway answers itself".to_owned());
            return;
        }
        explanation.set_answer(&response(reject, head, &RequestId::of(0)));
    }

    /// The answer to a request that would be queued, if the queue has no place for it.
    async fn full_queue(
        &self,
        evaluated: Evaluated<'_, '_>,
        head: &RequestHead,
        now: Time,
    ) -> Option<LocalError> {
        let decided = evaluated.decided();
        let place = queued_by(decided, head)?;
        let one = decided.at(place.at).selected;
        let queue = self.queues.as_ref()?.of(one.index)?;
        let Figures { length, failed, bytes, .. } = queue.state.figures(millis(now)).await.ok()?;
        let is_full = length + failed >= queue.config.max_length || bytes >= queue.config.max_bytes;
        is_full.then(|| LocalError::QueueFull(seconds_to_place(queue, one, &place, now)))
    }

    /// The answer to a request whose limits are evaluated.
    fn answered(
        &self,
        explanation: &mut Explanation,
        evaluated: Evaluated<'_, '_>,
        (reject, full): (Option<&EarlyReject>, Option<LocalError>),
        unavailable_store: bool,
        head: &RequestHead,
    ) {
        let (Matched { route, .. }, decided) = (evaluated.matched, evaluated.decided());
        let id = RequestId::of(0);
        let mut set = |outcome: Outcome, reason: Option<RefusalReason>| {
            explanation.outcome = outcome.name().to_owned();
            explanation.reason = reason.map(|reason| reason.name().to_owned());
        };
        if reject.is_none() && matches!(route.target, Target::Usage) {
            set(Outcome::Admitted, None);
            explanation.status = Some(200);
            return;
        }
        if unavailable_store {
            set(Outcome::Refused, Some(RefusalReason::Store));
            explanation.set_answer(&unavailable(head, &id));
            return;
        }
        let reported = decided.reported().map(|at| decided.at(at));
        let limit = reported.map(|one| one.selected.limit.config.name.clone());
        if let Some(place) = queued_by(decided, head) {
            let name = &decided.at(place.at).selected.limit.config.name;
            if let Some(full) = full {
                set(Outcome::Refused, Some(full.reason()));
                explanation.detail = Some(format!("the queue of the limit `{name}` is full"));
                explanation.limit = limit;
                explanation.set_answer(&full.response(&id));
                return;
            }
            set(Outcome::Queued, None);
            explanation.detail =
                Some(format!("it is put into the queue of the limit `{name}`, and delivered later"));
            explanation.limit = limit;
            explanation.status = Some(202);
            let mut headers = Headers::new();
            if let Some(limits) = RateLimitHeaders::new(evaluated.results) {
                limits.write(http::StatusCode::ACCEPTED, &mut headers);
            }
            explanation.set_headers(&headers);
            return;
        }
        if !evaluated.decision().admitted {
            let mut reason = None;
            let answer =
                refusal(head, evaluated.results, route.reject.as_ref(), &id, |why| reason = Some(why));
            set(Outcome::Refused, reason);
            explanation.limit = limit;
            explanation.set_answer(&answer);
            return;
        }
        let mut headers = match reject {
            Some(reject) => {
                set(Outcome::Refused, reject.error().map(|error| error.reason()));
                explanation.detail = reject.error().map(|error| error.detail().to_owned());
                let answer = response(reject, head, &id);
                explanation.status = Some(answer.status.as_u16());
                explanation.limit = match reject {
                    EarlyReject::KeyMissing { limit, .. } => Some(limit.clone()),
                    _ => limit,
                };
                answer.headers
            }
            None => {
                set(Outcome::Admitted, None);
                explanation.limit = limit;
                explanation.status = match &route.target {
                    Target::Answer { status, .. } | Target::Redirect { status, .. } => Some(status.as_u16()),
                    Target::Upstream { .. } | Target::Usage => None,
                };
                Headers::new()
            }
        };
        if let Some(limits) = RateLimitHeaders::new(evaluated.results) {
            limits.write(http::StatusCode::OK, &mut headers);
        }
        explanation.set_headers(&headers);
    }

    /// Keys as operators see them.
    pub fn shown_keys(&self) -> ShownKeys<'_> {
        ShownKeys::for_operators(&self.config)
    }
}

impl Explanation {
    fn set_answer(&mut self, answer: &LocalResponse) {
        self.status = Some(answer.status.as_u16());
        self.set_headers(&answer.headers);
    }

    fn set_headers(&mut self, headers: &Headers) {
        let shown = headers.iter().map(|(name, value)| {
            (String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(value).into_owned())
        });
        // Each answer has an id of its own.
        self.headers = shown.filter(|(name, _)| name != "x-request-id").collect();
    }
}

/// What is known of the state of a key.
enum Stored {
    /// It is in this process.
    Here,
    /// The store has answered.
    Store(Box<(RemoteState, Option<RemoteBan>)>),
    /// The store does not answer, and the limit refuses without it.
    Away,
}

impl Stored {
    fn state(self) -> Option<(RemoteState, Option<RemoteBan>)> {
        match self {
            Self::Store(state) => Some(*state),
            Self::Here | Self::Away => None,
        }
    }
}
