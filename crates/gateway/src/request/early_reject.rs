//! Why requests are answered without asking limits, and with what.

use http::StatusCode;
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};

use crate::respond::{self, LocalError};
use sluicegate_auth::Unproven;
use sluicegate_base::message::{LocalResponse, RequestId};
use sluicegate_config::PathError;
use sluicegate_observe::access_log::Outcome;
use sluicegate_wire::RequestHead;

/// Why a request is answered before its limits are evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlyReject {
    /// The path is malformed, or servers could read it in different ways.
    Path(PathError),
    /// The request does not name exactly one valid host.
    Host,
    /// The TLS connection was established for another host.
    Misdirected,
    /// The gateway does not serve this method.
    Method,
    /// The Connection header names a header that the request depends on.
    Nominated,
    /// The transfer coding is not exactly `chunked`.
    Framing,
    /// `OPTIONS *`: the client asks for the capabilities of the gateway.
    Capabilities,
    /// A CORS preflight request, which the gateway answers itself.
    Preflight {
        /// The index of the route that would take the actual request.
        route: Option<usize>,
    },
    /// No route matches.
    NoRoute,
    /// The allow and deny lists of the route exclude the address of the client.
    AddressDenied {
        /// The index of the route.
        route: usize,
    },
    /// Authentication is required and failed.
    Unproven {
        /// The index of the route.
        route: usize,
        /// Why it failed.
        why: Unproven,
    },
    /// A limit requires a key that the request lacks.
    KeyMissing {
        /// The index of the route.
        route: usize,
        /// The name of the limit.
        limit: String,
        /// Whether a token could supply the key.
        of_user: bool,
    },
}

impl EarlyReject {
    /// The index of the route, if one was found.
    pub fn route(&self) -> Option<usize> {
        match self {
            Self::KeyMissing { route, .. }
            | Self::Unproven { route, .. }
            | Self::AddressDenied { route }
            | Self::Preflight { route: Some(route) } => Some(*route),
            _ => None,
        }
    }

    /// The outcome in the access log.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::KeyMissing { .. } | Self::Unproven { .. } | Self::AddressDenied { .. } => Outcome::Refused,
            Self::Preflight { .. } => Outcome::Admitted,
            _ => Outcome::Unmatched,
        }
    }

    /// The error that the client is sent; `None` for requests that are answered without an error.
    pub fn error(&self) -> Option<LocalError> {
        Some(match self {
            Self::Path(PathError::NotAbsolute) => LocalError::Malformed("the request target is not a path"),
            Self::Path(PathError::Escape) => {
                LocalError::Malformed("the path has a % that is not followed by two hexadecimal digits")
            }
            Self::Path(PathError::EncodedSlash) => {
                LocalError::Malformed("the path has an encoded slash (%2F), which its route does not accept")
            }
            Self::Path(PathError::Backslash) => {
                LocalError::Malformed("the path has a backslash, which some servers take for a slash")
            }
            Self::Path(PathError::Control) => LocalError::Malformed("the path has a control character"),
            Self::Path(PathError::Ambiguous) => {
                LocalError::Malformed("the path is one that servers read in different ways")
            }
            Self::Path(PathError::Character) => {
                LocalError::Malformed("the path has a character that must be percent-encoded")
            }
            Self::Host => LocalError::Malformed("the request must name exactly one valid host"),
            Self::Misdirected => LocalError::Misdirected,
            Self::Method => LocalError::Method,
            Self::Nominated => LocalError::Malformed("the Connection header names what the request needs"),
            Self::Framing => LocalError::Malformed("the request has a transfer coding other than chunked"),
            Self::Capabilities | Self::Preflight { .. } => return None,
            Self::NoRoute => LocalError::NoRoute,
            Self::AddressDenied { .. } => LocalError::AddressDenied,
            Self::KeyMissing { of_user: true, .. } => LocalError::UserMissing,
            Self::KeyMissing { .. } => LocalError::KeyMissing,
            Self::Unproven { why: Unproven::NoKey, .. } => LocalError::NoApiKey,
            Self::Unproven { why: Unproven::UnknownKey, .. } => LocalError::UnknownApiKey,
            Self::Unproven { why: Unproven::Token(error), .. } => LocalError::Token(*error),
            Self::Unproven { why: Unproven::Refused(refusal), .. } => match refusal.status {
                StatusCode::FORBIDDEN => LocalError::CheckForbids,
                StatusCode::TOO_MANY_REQUESTS => LocalError::CheckDefers,
                _ => LocalError::CheckUnproven,
            },
            Self::Unproven { why: Unproven::Away, .. } => LocalError::AuthAway,
        })
    }
}

/// The response to a rejected request that is not a preflight request.
#[cold]
pub(crate) fn response(reject: &EarlyReject, head: &RequestHead, id: &RequestId) -> LocalResponse {
    let Some(error) = reject.error() else { return respond::capabilities(id) };
    let mut response = error.response_to(head, id);
    if let EarlyReject::Unproven { why: Unproven::Refused(refusal), .. } = reject {
        refusal.challenges.iter().for_each(|value| response.headers.append_value(WWW_AUTHENTICATE, value));
        if let Some(value) = &refusal.retry_after {
            response.headers.append_value(RETRY_AFTER, value);
        }
    }
    response
}
