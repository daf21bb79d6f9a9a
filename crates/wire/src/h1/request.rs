//! Decodes the head of a request (RFC 9112 §2 to §6). The decoder is strict: a head that servers could read in several ways is
//! refused.

use std::mem::MaybeUninit;

use bytes::{Buf, BytesMut};
use http::{Method, Uri, Version};

use super::BodyDecoder;
use crate::headers::parse::{self, RequestLine};
use crate::headers::{NameFilter, place};
use crate::number::read_decimal;
use crate::{HeadError, Headers, RequestHead, RequestTarget};

/// The most header fields, whatever the caller allows.
const MAX_FIELDS: usize = 256;
/// The longest request target unless another bound is given, in bytes. Heads up to this length are always read.
const MAX_TARGET: usize = 8 << 10;
/// The most empty lines before a request: some clients send one after the body of the last request.
const MAX_EMPTY_LINES: u8 = 8;
/// The fields that frame a request or control its connection.
static CONTROL: NameFilter =
    NameFilter::of(&[b"content-length", b"transfer-encoding", b"connection", b"te", b"expect"]);
/// In a line that is too large, the request target is looked for after at most this many bytes.
const MAX_METHOD: usize = 32;

/// A request: its head, and what follows from it for the connection.
pub struct Request {
    /// The head.
    pub head: RequestHead,
    /// The decoder for the body.
    pub body: BodyDecoder,
    /// What the response must respect.
    pub terms: ResponseTerms,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

/// What the response to a request must respect.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseTerms {
    /// The method is HEAD: the response has no body.
    pub is_head: bool,
    /// The version is HTTP/1.0: no chunked coding, no interim responses.
    pub is_http10: bool,
    /// The client wants the connection to stay open.
    pub keep_alive: bool,
    /// The client accepts trailers.
    pub trailers: bool,
}

/// Decodes the head of one request, which may arrive in pieces.
#[derive(Clone, Copy, Debug)]
pub struct RequestDecoder {
    /// The longest request target, in bytes.
    max_target: usize,
    /// The end of the head does not begin within this many bytes.
    searched: usize,
    /// The empty lines before the request (RFC 9112 §2.2) that were skipped.
    skipped: u8,
}

impl Default for RequestDecoder {
    fn default() -> Self {
        Self::new(MAX_TARGET)
    }
}

const fn malformed(what: &'static str) -> HeadError {
    HeadError::Malformed(what)
}

impl RequestDecoder {
    /// A decoder that refuses longer targets than this.
    pub const fn new(max_target: usize) -> Self {
        Self { max_target, searched: 0, skipped: 0 }
    }

    /// Decodes the head and removes its bytes from `read`; `None` if it is not complete. `max_bytes` is called for heads
    /// above 8 KiB only; heads have at most `max_fields` header fields, and never more than 256.
    ///
    /// # Errors
    /// The bytes are not a request that can be served. Nothing further can be decoded on the connection.
    pub fn decode(
        &mut self,
        read: &mut BytesMut,
        max_bytes: impl Fn() -> usize,
        max_fields: usize,
    ) -> Result<Option<Request>, HeadError> {
        let mut request = None;
        self.decode_into(read, max_bytes, max_fields, &mut request)?;
        Ok(request)
    }

    /// The same, but a complete head is written to `into`, because a request is too large to be moved often. Returns whether the
    /// head is complete.
    ///
    /// # Errors
    /// As those of [`decode`](Self::decode).
    pub fn decode_into(
        &mut self,
        read: &mut BytesMut,
        max_bytes: impl Fn() -> usize,
        max_fields: usize,
        into: &mut Option<Request>,
    ) -> Result<bool, HeadError> {
        while self.skipped < MAX_EMPTY_LINES && read.starts_with(b"\r\n") {
            read.advance(2);
            self.skipped += 1;
        }
        match read.first() {
            None => return Ok(false),
            Some(b'\r') if read.len() == 1 && self.skipped < MAX_EMPTY_LINES => return Ok(false),
            Some(b'\r' | b'\n') => return Err(malformed("a line before the request line")),
            Some(_) => {}
        }
        // A head that arrives byte by byte is parsed again only when its end may have arrived.
        let searched = std::mem::replace(&mut self.searched, read.len());
        let parsed = if searched == 0 || has_end(&read[searched.saturating_sub(3)..]) {
            parse(read, max_fields, self.max_target, into)?
        } else {
            None
        };
        match parsed {
            Some(length) if length <= MAX_TARGET || length <= max_bytes() => {
                read.advance(length);
                Ok(true)
            }
            None if read.len() < MAX_TARGET || read.len() < max_bytes() => Ok(false),
            _ => Err(too_large(read, self.max_target)),
        }
    }
}

fn has_end(read: &[u8]) -> bool {
    read.windows(2).any(|two| two == b"\n\n") || read.windows(3).any(|three| three == b"\n\r\n")
}

/// The error for a head that is too large: about its target, if that is too long.
#[cold]
fn too_large(read: &[u8], max_target: usize) -> HeadError {
    let line = read.split(|b| *b == b'\n').next().unwrap_or_default();
    let target = line.iter().take(MAX_METHOD).position(|b| *b == b' ').map_or(&[][..], |at| &line[at + 1..]);
    if target.len() > max_target { HeadError::TargetTooLong } else { HeadError::TooLarge }
}

/// Parses a complete head. Returns its length.
fn parse(
    read: &[u8],
    max_fields: usize,
    max_target: usize,
    into: &mut Option<Request>,
) -> Result<Option<usize>, HeadError> {
    let usual = parse::request(read, max_fields.min(MAX_FIELDS));
    let ((method, target, is_http10), headers, length) = match usual {
        Some(usual) => usual,
        None => match parse_unusual(read)? {
            Some(unusual) => unusual,
            None => return Ok(None),
        },
    };
    if target.len() > max_target {
        return Err(HeadError::TargetTooLong);
    }
    if headers.len() > max_fields {
        return Err(HeadError::TooLarge);
    }
    let method = Method::from_bytes(method).map_err(|_| malformed("the method is malformed"))?;
    let target = RequestTarget::origin(target).map_or_else(|| unusual_target(&method, target), Ok)?;
    let mut terms =
        ResponseTerms { is_head: method == Method::HEAD, is_http10, keep_alive: !is_http10, trailers: false };
    let mut control = Control::default();
    for (name, value) in headers.matching(&CONTROL) {
        control.add(name, value, &mut terms)?;
    }
    terms.keep_alive &= !control.closes;
    let expects = control.expects;
    let body = control.framing(is_http10)?;
    let version = if is_http10 { Version::HTTP_10 } else { Version::HTTP_11 };
    let head = RequestHead { method, target, version, headers };
    let expects_continue = expects && body != BodyDecoder::Ended;
    *into = Some(Request { head, body, terms, expects_continue });
    Ok(Some(length))
}

/// Parses a head that is incomplete or not in the usual form.
#[cold]
#[inline(never)]
fn parse_unusual(read: &[u8]) -> Result<Option<(RequestLine<'_>, Headers, usize)>, HeadError> {
    let mut lines = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    let length = match parsed.parse_with_uninit_headers(read, &mut lines) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLarge),
        Err(error) => return Err(malformed(reason(error))),
    };
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(malformed("the request is not HTTP"));
    };
    let mut headers = Headers::with_text(&read[..length]);
    for line in parsed.headers.iter() {
        let name = place(read, line.name.as_bytes());
        if !read[..name.0].ends_with(b"\r\n") {
            return Err(BARE_LF);
        }
        let pushed = headers.push_at(name, place(read, line.value));
        pushed.map_err(|_| malformed("a header name is malformed"))?;
    }
    if !read[..length].ends_with(b"\r\n\r\n") {
        return Err(BARE_LF);
    }
    Ok(Some(((method.as_bytes(), target.as_bytes(), version == 0), headers, length)))
}

/// Some servers do not end a line at a bare line feed.
const BARE_LF: HeadError = malformed("a line does not end with CR LF");

fn reason(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a header name is malformed, or followed by a space",
        httparse::Error::HeaderValue => "a header value has a character that is not allowed",
        httparse::Error::Version => "the HTTP version is not supported",
        httparse::Error::NewLine => "a line does not end with CR LF",
        _ => "the request is not HTTP",
    }
}

/// What the fields say about the body and the connection.
#[derive(Default)]
struct Control {
    length: Option<u64>,
    chunked: bool,
    expects: bool,
    closes: bool,
}

impl Control {
    /// Evaluates one field.
    fn add(&mut self, name: &[u8], value: &[u8], terms: &mut ResponseTerms) -> Result<(), HeadError> {
        match name {
            b"content-length" => {
                let announced = read_decimal(value);
                if announced.is_none() || self.length.is_some() {
                    return Err(malformed("the request must have one valid Content-Length"));
                }
                self.length = announced;
            }
            b"transfer-encoding" => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(malformed("the request has a transfer coding other than chunked"));
                }
                self.chunked = true;
            }
            b"connection" => {
                for word in words(value) {
                    self.closes |= word.eq_ignore_ascii_case(b"close");
                    terms.keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            b"te" => {
                terms.trailers |= words(value).any(|word| word.eq_ignore_ascii_case(b"trailers"));
            }
            b"expect" if !terms.is_http10 => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(HeadError::Expectation);
                }
                self.expects = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn framing(self, is_http10: bool) -> Result<BodyDecoder, HeadError> {
        match (self.chunked, self.length) {
            (true, _) if is_http10 => Err(malformed("HTTP/1.0 has no transfer codings")),
            (true, Some(_)) => Err(malformed("both Content-Length and Transfer-Encoding are given")),
            (true, None) => Ok(BodyDecoder::chunked()),
            (false, Some(0) | None) => Ok(BodyDecoder::Ended),
            (false, Some(length)) => Ok(BodyDecoder::Length(length)),
        }
    }
}

/// A target that is not in origin form (RFC 9112 §3.2). Only CONNECT, which the gateway refuses, has the authority form.
#[cold]
fn unusual_target(method: &Method, target: &[u8]) -> Result<RequestTarget, HeadError> {
    const INVALID: HeadError = malformed("the request target is not valid for this method");
    if !target.iter().all(|b| matches!(b, 0x21..=0x7e) && *b != b'#') {
        return Err(malformed("the request target has a character that must be percent-encoded"));
    }
    if let Some(target) = RequestTarget::encoded(target) {
        return Ok(target);
    }
    let asterisk = *method == Method::OPTIONS && target == b"*";
    let uri = Uri::try_from(target).map_err(|_| INVALID)?;
    let absolute = || uri.scheme().is_some_and(|s| s.as_str() == "http" || s.as_str() == "https");
    if asterisk || *method == Method::CONNECT || absolute() { Ok(uri.into()) } else { Err(INVALID) }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| *b == b',').map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of a head is about the head, not about the bytes that follow it.
    #[test]
    fn a_head_that_is_too_large_before_a_long_line() {
        let head = format!("GET / HTTP/1.1\r\nx-large: {}\r\n\r\n", "x".repeat(9 << 10));
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(9 << 10));
        for (bytes, expected) in [(head + &long, HeadError::TooLarge), (long, HeadError::TargetTooLong)] {
            let decoded = RequestDecoder::default().decode(&mut bytes.as_bytes().into(), || MAX_TARGET, 100);
            assert_eq!(decoded.err(), Some(expected));
        }
    }
}
