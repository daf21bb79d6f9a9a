//! The head of a request, whatever protocol it came by, and why a head is refused.

use http::uri::PathAndQuery;
use http::{Method, Version};

use crate::{Headers, RequestTarget};

/// The head of a request.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The request target.
    pub target: RequestTarget,
    /// The HTTP version of the connection that the request came by.
    pub version: Version,
    /// The header fields.
    pub headers: Headers,
}

/// Why the head of a request is refused although its connection can still be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// 400: the request is malformed, or servers could interpret it in different ways.
    #[error("{0}")]
    Malformed(&'static str),
    /// 414: the request target is longer than 8 KiB.
    #[error("the request target is too long")]
    TargetTooLong,
    /// 431: the head has more bytes or more header fields than allowed.
    #[error("the request head is too large")]
    TooLarge,
    /// 417: `Expect` is not `100-continue`.
    #[error("the expectation is not 100-continue")]
    Expectation,
}

impl RequestHead {
    /// A GET request over HTTP/1.1 for this target, without header fields.
    pub fn get(target: PathAndQuery) -> Self {
        Self {
            method: Method::GET,
            target: (&target).into(),
            version: Version::HTTP_11,
            headers: Headers::new(),
        }
    }

    /// Takes the head out and leaves `GET /` without header fields in its place.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::get(PathAndQuery::from_static("/")))
    }

    /// The same request as the `http` crate has it, with this body.
    pub fn with_body<B>(self, body: B) -> http::Request<B> {
        let mut request = http::Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = (&self.target).into();
        *request.version_mut() = self.version;
        *request.headers_mut() = self.headers.into();
        request
    }
}

impl From<http::request::Parts> for RequestHead {
    fn from(parts: http::request::Parts) -> Self {
        let headers = Headers::from(&parts.headers);
        Self { method: parts.method, target: parts.uri.into(), version: parts.version, headers }
    }
}
