//! Error responses of the gateway: problem documents (RFC 9457) with the id of the request, without internal details.

use bytes::Bytes;
use http::{StatusCode, header};
use sluicegate_limiter::Span;

use super::grpc::{PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAUTHENTICATED, UNAVAILABLE, grpc, is_grpc};
use sluicegate_auth::jwt::TokenError;
use sluicegate_base::message::{LocalBody, LocalResponse, RequestId};
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_wire::{HeadError, RequestHead};

pub(super) const NO_STORE: &str = "no-store";
pub(super) const X_REQUEST_ID: &str = "x-request-id";
/// The value of Allow.
const SERVED: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// The type of a temporary problem (draft-ietf-httpapi-ratelimit-headers).
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// Why the gateway answers with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalError {
    /// 400: the request is malformed, or servers could interpret it in different ways.
    Malformed(&'static str),
    /// 401: the request lacks the key that a limit requires.
    KeyMissing,
    /// 401: the request lacks the token with the user that a limit requires.
    UserMissing,
    /// 401: the request lacks the required API key.
    NoApiKey,
    /// 401: the API key is unknown.
    UnknownApiKey,
    /// 401: the token is invalid or missing.
    Token(TokenError),
    /// 401: the external check wants other credentials.
    CheckUnproven,
    /// 403: the external check refuses the request.
    CheckForbids,
    /// 429: the external check refuses the request for now.
    CheckDefers,
    /// 503: who sends the request cannot be found out.
    AuthAway,
    /// 429: the queue of a limit is full; the client may try again after so many seconds.
    QueueFull(u32),
    /// 503: the queue of a limit cannot be written.
    QueueAway,
    /// 422: another request with the same `Idempotency-Key` is queued.
    IdempotencyKeyReused,
    /// 404: no such request is queued for this client.
    NotQueued,
    /// 403: the listener decides for other proxies, and the peer is none of them.
    CallerDenied,
    /// 503: a reload has removed the listener, which decided for other proxies.
    ListenerRemoved,
    /// 403: the address of the client is not admitted.
    AddressDenied,
    /// 404: no route matches.
    NoRoute,
    /// 405: the gateway does not serve the method.
    Method,
    /// 408: the request did not arrive in time.
    Slow,
    /// 413: the body is longer than allowed.
    TooLarge,
    /// 414: the target is longer than allowed.
    TargetTooLong,
    /// 417: `Expect` is not `100-continue`.
    Expectation,
    /// 431: the head is longer than allowed.
    HeadTooLarge,
    /// 421: the TLS connection was established for another host.
    Misdirected,
    /// 502: the upstream gave no valid response.
    UpstreamFailed,
    /// 503: the upstream is at its connection limit.
    UpstreamBusy,
    /// 503: all servers of the upstream are drained or in maintenance.
    UpstreamDrained,
    /// 503: the upstream is at its limit; the client may try again after so many seconds.
    UpstreamOverloaded(u8),
    /// 503: the gateway has too much to do; the client may try again after so many seconds.
    GatewayOverloaded(u8),
    /// 504: the upstream did not respond in time.
    UpstreamSlow,
    /// 504: the request waited for longer than its total timeout.
    TimedOut,
}

impl From<HeadError> for LocalError {
    fn from(error: HeadError) -> Self {
        match error {
            HeadError::Malformed(what) => Self::Malformed(what),
            HeadError::TargetTooLong => Self::TargetTooLong,
            HeadError::TooLarge => Self::HeadTooLarge,
            HeadError::Expectation => Self::Expectation,
        }
    }
}

impl LocalError {
    /// The status.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::KeyMissing
            | Self::UserMissing
            | Self::NoApiKey
            | Self::UnknownApiKey
            | Self::Token(_)
            | Self::CheckUnproven => StatusCode::UNAUTHORIZED,
            Self::CallerDenied | Self::AddressDenied | Self::CheckForbids => StatusCode::FORBIDDEN,
            Self::CheckDefers | Self::QueueFull(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::IdempotencyKeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NoRoute | Self::NotQueued => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::UpstreamFailed => StatusCode::BAD_GATEWAY,
            Self::UpstreamBusy
            | Self::UpstreamDrained
            | Self::UpstreamOverloaded(_)
            | Self::GatewayOverloaded(_)
            | Self::QueueAway
            | Self::ListenerRemoved
            | Self::AuthAway => StatusCode::SERVICE_UNAVAILABLE,
            Self::UpstreamSlow | Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Why the request is refused.
    pub const fn reason(self) -> RefusalReason {
        match self {
            Self::Malformed(_) => RefusalReason::Malformed,
            Self::KeyMissing | Self::UserMissing | Self::NoApiKey | Self::Token(TokenError::Missing) => {
                RefusalReason::Unauthenticated
            }
            Self::UnknownApiKey | Self::Token(_) => RefusalReason::Forbidden,
            Self::CheckUnproven | Self::CheckForbids | Self::CheckDefers => RefusalReason::Check,
            Self::AuthAway => RefusalReason::AuthUnavailable,
            Self::CallerDenied | Self::AddressDenied => RefusalReason::List,
            Self::QueueFull(_) | Self::QueueAway => RefusalReason::Queue,
            Self::IdempotencyKeyReused => RefusalReason::Idempotency,
            Self::NotQueued | Self::NoRoute | Self::ListenerRemoved => RefusalReason::NoRoute,
            Self::Method => RefusalReason::Method,
            Self::Slow | Self::TimedOut => RefusalReason::Timeout,
            Self::TooLarge => RefusalReason::TooLarge,
            Self::TargetTooLong => RefusalReason::UriTooLong,
            Self::Expectation => RefusalReason::Expectation,
            Self::HeadTooLarge => RefusalReason::HeadersTooLarge,
            Self::Misdirected => RefusalReason::Misdirected,
            Self::UpstreamFailed => RefusalReason::Upstream,
            Self::UpstreamBusy | Self::UpstreamOverloaded(_) => RefusalReason::Shed,
            Self::UpstreamDrained => RefusalReason::UpstreamDrained,
            Self::GatewayOverloaded(_) => RefusalReason::Overload,
            Self::UpstreamSlow => RefusalReason::UpstreamTimeout,
        }
    }

    /// The text for the client, without anything that it must not know.
    pub const fn detail(self) -> &'static str {
        match self {
            Self::Malformed(what) => what,
            Self::KeyMissing | Self::UserMissing => {
                "this route needs credentials that the request does not carry"
            }
            Self::NoApiKey => "this API needs exactly one API key, which the request does not carry",
            Self::UnknownApiKey => "the API key of the request is not known here",
            Self::Token(error) => error.description(),
            Self::CheckUnproven => "the credentials of the request are not accepted here",
            Self::CheckForbids => "this request is not permitted",
            Self::CheckDefers => "this request is not permitted at the moment",
            Self::AuthAway => "the gateway cannot find out who sends this request; try again in 1 second",
            Self::CallerDenied => {
                "this listener decides for proxies that its `callers` names, and this address is none of them"
            }
            Self::AddressDenied => "clients with this address are not admitted here",
            Self::QueueFull(_) => "too many requests wait for their turn; try again later",
            Self::QueueAway => {
                "the gateway cannot read or write its queue at the moment; try again in 1 second"
            }
            Self::IdempotencyKeyReused => {
                "an earlier request had this Idempotency-Key, and its content differs"
            }
            Self::NotQueued => "no request of this name is queued, or it is not yours",
            Self::ListenerRemoved => "this listener does not decide for other proxies any more",
            Self::NoRoute => "no route matches this request",
            Self::Method => "this method is not served here",
            Self::Slow => "the request did not arrive in time",
            Self::TooLarge => "the request's body is larger than this route allows",
            Self::TargetTooLong => "the request target is longer than allowed",
            Self::Expectation => "the gateway supports no expectation except 100-continue",
            Self::HeadTooLarge => "the request's head is larger than allowed",
            Self::Misdirected => {
                "this connection began with the certificate of another host; open one for this host"
            }
            Self::UpstreamFailed => "the server behind the gateway sent no valid response",
            Self::UpstreamBusy => "the servers behind the gateway are busy; try again in 1 second",
            Self::UpstreamDrained => "the servers behind the gateway are out of service; try again later",
            Self::UpstreamOverloaded(_) => "the servers behind the gateway are overloaded; try again later",
            Self::GatewayOverloaded(_) => "the gateway is overloaded; try again later",
            Self::UpstreamSlow => "the server behind the gateway did not respond in time",
            Self::TimedOut => "the request took longer than this route allows",
        }
    }

    /// The response.
    #[cold]
    pub fn response(self, id: &RequestId) -> LocalResponse {
        let body = body(self.status(), self.reason(), self.detail(), id);
        let mut response = fixed(self.status(), body, PROBLEM_JSON);
        response.headers.insert(X_REQUEST_ID, id);
        response.headers.insert(header::CACHE_CONTROL, NO_STORE);
        if let Some(challenge) = self.challenge() {
            response.headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        match self {
            Self::UpstreamBusy | Self::AuthAway | Self::QueueAway => {
                response.headers.insert(header::RETRY_AFTER, "1");
            }
            Self::QueueFull(seconds) => response.headers.insert(header::RETRY_AFTER, seconds.to_string()),
            Self::UpstreamOverloaded(seconds) | Self::GatewayOverloaded(seconds) => {
                response.headers.insert(header::RETRY_AFTER, seconds.to_string());
            }
            _ => {}
        }
        if self == Self::Method {
            response.headers.insert(header::ALLOW, SERVED);
        }
        response
    }

    /// The value of WWW-Authenticate. It says why a token is invalid, but nothing about a missing token (RFC 6750).
    fn challenge(self) -> Option<String> {
        match self {
            Self::KeyMissing | Self::NoApiKey | Self::UnknownApiKey => {
                Some("ApiKey realm=\"sluicegate\"".to_owned())
            }
            Self::UserMissing | Self::Token(TokenError::Missing) => {
                Some("Bearer realm=\"sluicegate\"".to_owned())
            }
            Self::Token(error) => Some(format!(
                "Bearer realm=\"sluicegate\", error=\"invalid_token\", error_description=\"{}\"",
                error.description()
            )),
            _ => None,
        }
    }
}

impl LocalError {
    /// The response in the protocol of the client: a gRPC call gets a failed authentication as a gRPC status.
    #[cold]
    pub fn response_to(self, head: &RequestHead, id: &RequestId) -> LocalResponse {
        let grpc_status = match (self.status(), self) {
            (StatusCode::UNAUTHORIZED, _) => Some(UNAUTHENTICATED),
            (StatusCode::FORBIDDEN, _) => Some(PERMISSION_DENIED),
            (_, Self::CheckDefers) => Some(RESOURCE_EXHAUSTED.0),
            (_, Self::AuthAway | Self::UpstreamOverloaded(_) | Self::GatewayOverloaded(_)) => {
                Some(UNAVAILABLE.0)
            }
            _ => None,
        };
        let Some(status) = grpc_status.filter(|_| is_grpc(head)) else { return self.response(id) };
        let mut response = LocalResponse::new(StatusCode::OK, LocalBody::Empty);
        let pushback = match self {
            Self::UpstreamOverloaded(seconds) | Self::GatewayOverloaded(seconds) => {
                Some(Span::from_secs(seconds.into()))
            }
            _ => None,
        };
        grpc(&mut response.headers, (status, self.detail()), (self.reason(), None), pushback);
        response.headers.insert(X_REQUEST_ID, id);
        response
    }
}

/// The response to `OPTIONS *`: the methods that the gateway supports.
#[cold]
pub fn capabilities(id: &RequestId) -> LocalResponse {
    let mut response = fixed(StatusCode::NO_CONTENT, Bytes::new(), PROBLEM_JSON);
    response.headers.insert(header::ALLOW, SERVED);
    response.headers.insert(X_REQUEST_ID, id);
    response
}

/// A problem document. Nothing in it needs escaping, because all texts are constants.
fn body(status: StatusCode, reason: RefusalReason, detail: &str, id: &RequestId) -> Bytes {
    let title = status.canonical_reason().unwrap_or("Error");
    let kind = match status {
        StatusCode::SERVICE_UNAVAILABLE => REDUCED_CAPACITY,
        _ => "about:blank",
    };
    let (status, reason, id) = (status.as_u16(), reason.name(), id.as_str());
    Bytes::from(format!(
        "{{\"type\":\"{kind}\",\"title\":\"{title}\",\"status\":{status},\"detail\":\"{detail}\",\
         \"reason\":\"{reason}\",\"request_id\":\"{id}\"}}\n"
    ))
}

/// The response if a limit requires its store (`on_store_failure: closed`) and the store is unavailable.
#[cold]
pub fn unavailable(head: &RequestHead, id: &RequestId) -> LocalResponse {
    if is_grpc(head) {
        let mut response = LocalResponse::new(StatusCode::OK, LocalBody::Empty);
        grpc(&mut response.headers, UNAVAILABLE, (RefusalReason::Store, None), Some(Span::SECOND));
        response.headers.insert(X_REQUEST_ID, id);
        return response;
    }
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let detail = "the gateway cannot count this request at the moment; try again in 1 second";
    let body = body(status, RefusalReason::Store, detail, id);
    let mut response = fixed(status, body, PROBLEM_JSON);
    response.headers.insert(X_REQUEST_ID, id);
    response.headers.insert(header::RETRY_AFTER, "1");
    response.headers.insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// A configured response.
pub fn fixed(status: StatusCode, body: Bytes, content_type: impl AsRef<[u8]>) -> LocalResponse {
    let mut response = LocalResponse::new(status, LocalBody::from(body));
    if status != StatusCode::NO_CONTENT {
        response.headers.insert(header::CONTENT_TYPE, content_type);
    }
    response
}

/// The response with another status, which a problem document states, too (RFC 9457, section 3.1.3).
pub fn with_status(mut response: LocalResponse, status: StatusCode) -> LocalResponse {
    let is_problem = response.headers.only(header::CONTENT_TYPE) == Some(PROBLEM_JSON.as_bytes());
    let body = match &response.body {
        LocalBody::Shared(body) => &body[..],
        LocalBody::Owned(body) => body,
        LocalBody::Empty | LocalBody::Grpc(_) => &[],
    };
    if let (true, Ok(text)) = (is_problem, std::str::from_utf8(body)) {
        let member = |status: StatusCode| format!("\"status\":{}", status.as_u16());
        let text = text.replacen(&member(response.status), &member(status), 1);
        response.body = LocalBody::Owned(text.into_bytes());
    }
    response.status = status;
    response
}

/// A redirect.
pub fn redirect(status: StatusCode, location: &[u8]) -> LocalResponse {
    let mut response = LocalResponse::new(status, LocalBody::Empty);
    response.headers.insert(header::LOCATION, location);
    response
}
