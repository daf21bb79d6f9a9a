//! The responses to refused requests.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Makes the response to a refused request.
pub(crate) type Refusals = dyn Fn(&Refused<'_>) -> Response<Bytes> + Send + Sync;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The key has used up a limit.
    Limit,
    /// The request does not have the key of a limit with [`OnMissing::Deny`](crate::OnMissing::Deny).
    MissingKey,
}

/// A refused request.
#[derive(Clone, Copy, Debug)]
pub struct Refused<'a> {
    pub(crate) request: &'a Parts,
    pub(crate) reason: Reason,
    pub(crate) limit: &'a str,
    pub(crate) violated: &'a [&'a str],
    pub(crate) retry_after: Option<Duration>,
}

impl Refused<'_> {
    /// The head of the request.
    pub const fn request(&self) -> &Parts {
        self.request
    }

    /// Why it is refused.
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// The name of the limit that refuses it; of several, the one that refuses longest.
    pub const fn limit(&self) -> &str {
        self.limit
    }

    /// The names of all limits that refuse it.
    pub const fn violated(&self) -> &[&str] {
        self.violated
    }

    /// The time after which the request is admitted if nobody else uses the key; `None` if it never will be. A request that waits
    /// for another one to end may try again after one second.
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The same in whole seconds, rounded up and at least 1, as in Retry-After.
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after.map(|wait| (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1))
    }

    /// Whether the request is a gRPC call.
    pub fn is_grpc(&self) -> bool {
        const GRPC: &[u8] = b"application/grpc";
        let kind = self.request.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let Some((kind, rest)) = kind.split_at_checked(GRPC.len()) else { return false };
        kind.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';' | b' ' | b'\t'))
    }

    /// The response without a [hook](crate::Builder::refusal): the status 429, or 401 if the key is missing, with a problem
    /// document (RFC 9457); for a gRPC call the status RESOURCE_EXHAUSTED or UNAUTHENTICATED.
    ///
    /// The layer adds the rate limit headers to this or any other response.
    pub fn response(&self) -> Response<Bytes> {
        let mut response = if self.is_grpc() { self.grpc() } else { self.problem() };
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// A response without a message ("Trailers-Only"). Clients take an HTTP 429 for UNAVAILABLE and retry at once.
    fn grpc(&self) -> Response<Bytes> {
        let (status, message) = match self.reason {
            Reason::Limit => ("8", "rate limit exceeded"),
            Reason::MissingKey => ("16", "the call carries no key of its limits"),
        };
        let mut response = Response::new(Bytes::new());
        let headers: &mut HeaderMap = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from_static(status));
        headers.insert(GRPC_MESSAGE, HeaderValue::from_static(message));
        // Milliseconds, rounded up; -1 tells the client not to try again.
        let pushback = match self.retry_after {
            Some(wait) => {
                let millis = wait.as_nanos().div_ceil(1_000_000).max(1);
                HeaderValue::from(u64::try_from(millis).unwrap_or(u64::MAX))
            }
            None => HeaderValue::from_static("-1"),
        };
        headers.insert(GRPC_PUSHBACK, pushback);
        response
    }

    fn problem(&self) -> Response<Bytes> {
        let (status, body) = match self.reason {
            Reason::Limit => (StatusCode::TOO_MANY_REQUESTS, self.quota_exceeded()),
            Reason::MissingKey => (StatusCode::UNAUTHORIZED, self.unauthenticated()),
        };
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("ApiKey"));
        }
        response
    }

    /// A problem document. Nothing in it needs escaping: names of limits are validated, and the rest is constant.
    fn quota_exceeded(&self) -> String {
        let seconds = self.retry_after_secs();
        let (detail, last) = match seconds {
            None => {
                let detail =
                    "this request costs more than the quota can ever hold; it will not be admitted later";
                (detail.to_owned(), String::new())
            }
            Some(seconds) => {
                let unit = if seconds == 1 { "second" } else { "seconds" };
                let detail = format!("the quota is used up; try again in {seconds} {unit}");
                (detail, format!(",\"retry_after\":{seconds}"))
            }
        };
        let names: Vec<String> = self.violated.iter().map(|name| format!("\"{name}\"")).collect();
        format!(
            "{{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
             \"title\":\"Too Many Requests\",\"status\":429,\"detail\":\"{detail}\",\"reason\":\"limit\",\
             \"violated-policies\":[{}]{last}}}\n",
            names.join(",")
        )
    }

    fn unauthenticated(&self) -> String {
        "{\"type\":\"about:blank\",\"title\":\"Unauthorized\",\"status\":401,\
         \"detail\":\"the request does not carry the key of a limit\",\"reason\":\"unauthenticated\"}\n"
            .to_owned()
    }
}
