//! An external check: a service of somebody else says whether a request is admitted, and who sends it.
//!
//! As for [introspection](super::introspection), matching a request waits for nobody: `Check::check` says that
//! the service must be [asked](Question::ask) first. Answers are remembered only where the configuration names the
//! headers that they depend on.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{COOKIE, HOST, RETRY_AFTER, USER_AGENT, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use hyper::body::Bytes;
use sluicegate_limiter::{MAX_COUNT, Span, Time};

use super::headers::{disown, reads_like};
use super::identity::{Admission, Refusal, Stop, Unproven};
use super::outside::{Call, Flights, Reply, Service};
use super::read::{check_name, check_plan};
use super::remembered::{Digest, Remembered, hash};
use sluicegate_base::clock::Clock;
use sluicegate_base::incoming::Request;
use sluicegate_config::{CheckConfig, OnFailure, PathError, normalize, normalize_encoded_slashes};
use sluicegate_wire::{Headers, RequestHead};

const CONSUMER: &str = "x-sluicegate-consumer";
const PLAN: &str = "x-sluicegate-plan";
const CACHE: &str = "x-sluicegate-cache";
const RATE: &str = "x-sluicegate-rate";
const COST: &str = "x-sluicegate-cost";
/// Headers of answers that no client may write to the upstream.
const OWN: [&str; 5] = [CONSUMER, PLAN, CACHE, RATE, COST];
/// The longest that a refusal is remembered that does not say itself how long.
const REFUSED: Duration = Duration::from_secs(5);
/// The longest that an answer is remembered, whatever it says.
const LONGEST: u64 = 86_400;

/// Has requests checked.
pub struct Check {
    config: CheckConfig,
    service: Service,
    admitted: Remembered<Known>,
    refused: Remembered<Known>,
    flights: Flights<CheckVerdict>,
    /// Numbers calls whose answers are not shared.
    calls: AtomicU64,
}

/// An answer that is remembered.
#[derive(Clone)]
struct Known {
    verdict: CheckVerdict,
    /// Until when it is used without asking again.
    fresh: Time,
    /// Until when it is used while the service is away.
    stale: Time,
}

/// What the service says of a request.
#[derive(Clone)]
pub enum CheckVerdict {
    /// It is admitted.
    Admitted(Arc<Admission>),
    /// It is not.
    Refused(Arc<Refusal>),
    /// Nothing that can be used: the service is away, or its answer for this request says nothing.
    Unknown,
    /// The service was not asked in time, because too many other calls were in flight.
    Busy,
}

/// A request that the service must be asked about.
pub struct Question {
    check: Arc<Check>,
    /// What its answer is remembered by.
    digest: Option<Digest>,
}

impl Check {
    /// Checks by `config`. It is `before` if that does the same.
    pub fn next(config: &CheckConfig, before: Option<&Arc<Self>>) -> Arc<Self> {
        if let Some(same) = before.filter(|before| before.config == *config) {
            return Arc::clone(same);
        }
        Arc::new(Self {
            service: Service::new(&config.service),
            admitted: Remembered::new(config.service.max_cached),
            refused: Remembered::new(config.service.max_cached),
            flights: Flights::new(config.service.max_in_flight),
            calls: AtomicU64::new(0),
            config: config.clone(),
        })
    }

    /// How often the service was asked, by what became of it.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.service.counts()
    }

    /// Why the service is away, for /status.
    pub fn trouble(&self) -> Option<String> {
        self.service.trouble()
    }

    /// Whether the upstream is told the consumer and the plan.
    pub(super) const fn forwards(&self) -> bool {
        self.config.forward
    }

    /// Removes the headers that only the service may write.
    pub fn clean(headers: &mut Headers) {
        disown(headers, |name| OWN.iter().any(|own| reads_like(name, own.as_bytes())));
    }

    /// Who sends a request to the route of this name; `None` if that cannot be found out and need not be. `verdict` is what
    /// the service said, if it was asked for this request.
    ///
    /// # Errors
    /// When the service refuses the request, or is away, or must be asked.
    pub(super) fn check(
        self: &Arc<Self>,
        route: &str,
        headers: &Headers,
        verdict: Option<&CheckVerdict>,
        now: Time,
    ) -> Result<Option<Arc<Admission>>, Stop<Question>> {
        let digest = self.digest(route, headers);
        let verdict = match verdict {
            Some(verdict) => verdict.clone(),
            None => match self.known(digest.as_ref(), now) {
                Some(known) => known,
                None if self.service.is_paused(now) => CheckVerdict::Unknown,
                None => {
                    let check = Arc::clone(self);
                    return Err(Stop::Ask(Question { check, digest }));
                }
            },
        };
        let verdict = match (verdict, &digest) {
            (verdict @ (CheckVerdict::Unknown | CheckVerdict::Busy), Some(digest)) => {
                let old = self.admitted.get(digest).filter(|known| now < known.stale);
                old.map_or(verdict, |known| known.verdict)
            }
            (verdict, _) => verdict,
        };
        match verdict {
            CheckVerdict::Admitted(admission) => Ok(Some(admission)),
            CheckVerdict::Refused(refusal) => Err(Stop::Unproven(Unproven::Refused(refusal))),
            CheckVerdict::Unknown if self.service.config().on_failure == OnFailure::Anonymous => Ok(None),
            CheckVerdict::Unknown | CheckVerdict::Busy => Err(Stop::Unproven(Unproven::Away)),
        }
    }

    /// What the answer for a request is remembered by; `None` if it is not remembered.
    fn digest(&self, route: &str, headers: &Headers) -> Option<Digest> {
        let cache = self.config.cache.as_ref()?;
        let mut text = Vec::with_capacity(256);
        let mut add = |bytes: &[u8]| {
            text.extend_from_slice(&(bytes.len() as u64).to_be_bytes()); // so that no two lists read alike
            text.extend_from_slice(bytes);
        };
        add(route.as_bytes());
        for name in &cache.key {
            add(name.as_ref());
            headers.get_all(name).for_each(&mut add);
        }
        Some(hash(&text))
    }

    /// What is known without asking.
    fn known(&self, digest: Option<&Digest>, now: Time) -> Option<CheckVerdict> {
        let digest = digest?;
        let fresh = |known: &Known| now < known.fresh;
        let known = self.admitted.get(digest).filter(fresh);
        known.or_else(|| self.refused.get(digest).filter(fresh)).map(|known| known.verdict)
    }

    fn remember(&self, digest: Digest, verdict: &CheckVerdict, ttl: Span, now: Time) {
        let fresh = now.plus(ttl);
        match verdict {
            CheckVerdict::Admitted(_) if ttl.is_zero() => self.admitted.remove(&digest),
            CheckVerdict::Admitted(_) => {
                let stale = fresh.plus(Span::from(self.service.config().stale));
                self.admitted.insert(digest, Known { verdict: verdict.clone(), fresh, stale });
            }
            CheckVerdict::Refused(_) => {
                self.admitted.remove(&digest);
                self.refused.insert(digest, Known { verdict: verdict.clone(), fresh, stale: fresh });
            }
            CheckVerdict::Unknown | CheckVerdict::Busy => {}
        }
    }

    fn call(&self, request: Request<'_>) -> Call {
        let head = request.head;
        let host = head.target.authority().map(str::as_bytes).or_else(|| head.headers.get(HOST));
        let mut headers = HeaderMap::new();
        let mut add = |name: &'static str, value: &[u8]| {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.insert(name, value);
            }
        };
        add("x-forwarded-method", head.method.as_str().as_bytes());
        add("x-forwarded-proto", request.scheme().as_bytes());
        add("x-forwarded-host", host.unwrap_or_default());
        add("x-forwarded-uri", uri(head).as_bytes());
        add("x-forwarded-for", request.peer.client.to_string().as_bytes());
        headers.insert(USER_AGENT, HeaderValue::from_static("sluicegate"));
        for name in &self.config.headers {
            headers.remove(name);
            let mut values: Vec<Cow<'_, [u8]>> = head.headers.get_all(name).map(Cow::Borrowed).collect();
            if *name == COOKIE && values.len() > 1 {
                values = vec![Cow::Owned(values.join(&b"; "[..]))]; // HTTP/2 splits it, which services do not expect
            }
            for value in values {
                headers.extend(HeaderValue::from_bytes(&value).map(|value| (name.clone(), value)));
            }
        }
        Call { target: None, method: Method::GET, headers, body: Bytes::new() }
    }

    /// Understands an answer, and how long it is remembered.
    fn read(&self, reply: Reply) -> Result<(CheckVerdict, Span), String> {
        let Reply { status, headers, .. } = reply;
        let said = match text(&headers, CACHE)? {
            None => None,
            Some(seconds) => {
                let seconds: u64 =
                    seconds.parse().map_err(|_| format!("its {CACHE} is not a number of seconds"))?;
                Some(Span::from_secs(seconds.min(LONGEST)))
            }
        };
        let ttl = self.config.cache.as_ref().map_or(Duration::ZERO, |cache| cache.ttl);
        match status {
            status if status.is_success() => {
                let consumer = text(&headers, CONSUMER)?;
                let plan = text(&headers, PLAN)?;
                consumer.map_or(Ok(()), check_name)?;
                plan.map_or(Ok(()), check_plan)?;
                let admission = Admission {
                    consumer: consumer.map(Into::into),
                    plan: plan.map(Into::into),
                    rate: number(&headers, RATE).map(Into::into),
                    cost: number(&headers, COST).and_then(cost),
                };
                Ok((CheckVerdict::Admitted(Arc::new(admission)), said.unwrap_or(Span::from(ttl))))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => {
                let usual = if status == StatusCode::TOO_MANY_REQUESTS { Duration::ZERO } else { REFUSED };
                let refusal = Refusal {
                    status,
                    challenges: headers.get_all(WWW_AUTHENTICATE).iter().cloned().collect(),
                    retry_after: headers.get(RETRY_AFTER).cloned(),
                };
                Ok((CheckVerdict::Refused(Arc::new(refusal)), said.unwrap_or(Span::from(ttl.min(usual)))))
            }
            status => Err(format!("it answered with status {}", status.as_u16())),
        }
    }
}

impl Question {
    /// What the service says. The answer is remembered where the configuration says so, and of equal questions one is
    /// asked.
    pub async fn ask(self, request: Request<'_>, clock: Clock) -> CheckVerdict {
        let Self { check, digest } = self;
        let call = check.call(request);
        let key = digest.unwrap_or_else(|| {
            let number = check.calls.fetch_add(1, Ordering::Relaxed);
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            key
        });
        let known = || check.known(digest.as_ref(), clock.now());
        let asking = Arc::clone(&check);
        let call = async move {
            let verdict = asking.service.ask(&call, clock, |reply| asking.read(reply)).await;
            let Some((verdict, ttl)) = verdict else { return CheckVerdict::Unknown };
            if let Some(digest) = digest {
                asking.remember(digest, &verdict, ttl, clock.now());
            }
            verdict
        };
        let patience = check.service.config().timeout;
        let verdict = check.flights.join(key, patience, known, call).await;
        verdict.unwrap_or_else(|| {
            check.service.skip();
            CheckVerdict::Busy
        })
    }
}

/// Path and query of a request, the path in the normal form in which routes match it: a service that looks at it must
/// not see another one. Encoded slashes stay encoded.
fn uri(head: &RequestHead) -> String {
    let path = head.target.path();
    let path = match normalize(path) {
        Err(PathError::EncodedSlash) => normalize_encoded_slashes(path).map(|(kept, _)| Cow::Owned(kept)),
        normal => normal,
    };
    let path = path.unwrap_or_default(); // any other is rejected earlier
    match head.target.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.into(),
    }
}

/// The value of a header that occurs at most once.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, String> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| format!("its {name} is not text")),
        (Some(_), Some(_)) => Err(format!("its {name} is given twice")),
    }
}

/// The value of a header that has a number. As nobody is identified by it, an unreadable one counts as none.
fn number<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    text(headers, name).inspect_err(|why| tracing::debug!("the answer of the check: {why}")).ok()?
}

/// A cost: a whole number, 1 if it is less, and not more than any limit has.
fn cost(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        tracing::debug!("the answer of the check: its {COST} is not a whole number");
        return None;
    }
    Some(text.parse().unwrap_or(MAX_COUNT).clamp(1, MAX_COUNT))
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn answers_that_make_no_sense_are_none() {
        let config = |name: &str| HeaderName::from_bytes(name.as_bytes()).unwrap();
        let headers = |lines: &[(&str, &str)]| -> HeaderMap {
            lines.iter().map(|(name, value)| (config(name), HeaderValue::from_str(value).unwrap())).collect()
        };
        assert_eq!(text(&headers(&[("x-a", "1")]), "x-a"), Ok(Some("1")));
        assert_eq!(text(&headers(&[]), "x-a"), Ok(None));
        let mut twice = headers(&[("x-a", "1")]);
        twice.append("x-a", HeaderValue::from_static("2"));
        assert!(text(&twice, "x-a").is_err());
    }

    #[test]
    fn clients_do_not_write_what_only_the_service_says() {
        let lines = [("X-Sluicegate-Consumer", "a"), ("x_sluicegate_plan", "b"), ("x-other", "c")];
        let mut headers: Headers = lines.into_iter().map(|(n, v)| (n.to_ascii_lowercase(), v)).collect();
        Check::clean(&mut headers);
        assert_eq!(headers.iter().collect::<Vec<_>>(), [(&b"x-other"[..], &b"c"[..])]);
    }
}
