//! Requests and responses on their way through the gateway, whatever protocol they come and go by.

use http::uri::PathAndQuery;
use http::{Method, StatusCode, Version};

use crate::fields::Fields;
use crate::number::hex;
use crate::target::RequestTarget;
use crate::upstream::Body;

/// The longest request id that is taken over from a trusted proxy.
const MAX_ID: usize = 128;

/// What tells a request apart: for the upstream, in answers of our own and in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestId {
    /// One that the gateway has made: 16 hexadecimal digits.
    Made([u8; 16]),
    /// One that a proxy has given, which can stand in JSON, in logs and in headers as it is.
    Told(Box<[u8]>),
}

impl RequestId {
    /// The id that this number makes.
    pub fn of(number: u64) -> Self {
        Self::Made(hex(number))
    }

    /// An id that a proxy has given; `None` if it cannot be one.
    pub fn told(text: &[u8]) -> Option<Self> {
        let good = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'<' | b'>');
        let is_id = !text.is_empty() && text.len() <= MAX_ID && text.iter().all(good);
        is_id.then(|| Self::Told(text.into()))
    }

    /// Its characters, which are visible ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Made(digits) => digits,
            Self::Told(text) => text,
        }
    }

    /// The same as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

impl AsRef<[u8]> for RequestId {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// The head of a request.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// Its method.
    pub method: Method,
    /// Its target.
    pub target: RequestTarget,
    /// The version of HTTP that it came by.
    pub version: Version,
    /// Its fields.
    pub headers: Fields,
}

/// A response: what a client is answered.
pub struct Response {
    /// Its status.
    pub status: StatusCode,
    /// Its fields, without those that say how its body is framed.
    pub headers: Fields,
    /// Its body.
    pub body: Body,
}

impl RequestHead {
    /// A GET of this target over HTTP/1.1 without any field.
    pub fn get(target: PathAndQuery) -> Self {
        Self {
            method: Method::GET,
            target: (&target).into(),
            version: Version::HTTP_11,
            headers: Fields::new(),
        }
    }

    /// The head, of which another is left here that says nothing.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::get(PathAndQuery::from_static("/")))
    }

    /// The head as hyper has it, with this body.
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
        let headers = Fields::from(&parts.headers);
        Self { method: parts.method, target: parts.uri.into(), version: parts.version, headers }
    }
}

impl Response {
    /// A response with this status and body, and without fields.
    pub fn new(status: StatusCode, body: Body) -> Self {
        Self { status, headers: Fields::with_room(), body }
    }
}
