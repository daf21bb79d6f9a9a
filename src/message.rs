//! Responses with their body, and the identifiers of requests.

use bytes::Bytes;
use http::StatusCode;
use sluicegate_wire::Headers;
use sluicegate_wire::number::hex;

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

/// A response with a body of type `B`.
pub struct Response<B> {
    /// Its status.
    pub status: StatusCode,
    /// Its headers, without those that frame the body.
    pub headers: Headers,
    /// Its body.
    pub body: B,
}

/// A response that the gateway generates itself.
pub type LocalResponse = Response<LocalBody>;

/// The body of a local response.
pub enum LocalBody {
    /// No body.
    Empty,
    /// A body that responses share, never empty.
    Shared(Bytes),
    /// A body that was written for this response.
    Owned(Vec<u8>),
}

impl<B> Response<B> {
    /// A response with this status and body, and without headers.
    pub fn new(status: StatusCode, body: B) -> Self {
        Self { status, headers: Headers::for_response(), body }
    }
}

impl From<Bytes> for LocalBody {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Shared(bytes) }
    }
}
