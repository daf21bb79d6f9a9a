//! The head of a request (RFC 9112 §2 to §6), read strictly: what servers read in several ways is refused.

use std::mem::MaybeUninit;

use bytes::{Buf, BytesMut};
use http::{Method, Uri, Version};

use crate::fields::read::RequestLine;
use crate::fields::{self, Fields, Looks, place};
use crate::framing::Framing;
use crate::message::RequestHead;
use crate::number::read_decimal;
use crate::respond::LocalError;
use crate::target::RequestTarget;

/// Headers of a request, whatever is configured.
const HEADERS: usize = 256;
/// The longest target.
const TARGET: usize = 8 << 10;
/// What says how a request is framed, and what its connection is to do.
static ANNOUNCING: Looks =
    Looks::of(&[b"content-length", b"transfer-encoding", b"connection", b"te", b"expect"]);
/// The longest method that a line is looked at for a target behind it.
const METHOD: usize = 32;

/// A head that was read.
pub(super) struct Head {
    pub(super) head: RequestHead,
    pub(super) framing: Framing,
    pub(super) asked: Asked,
    /// Whether the client waits for leave to send the body.
    pub(super) expects: bool,
}

/// What a request wants of its answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// Its method is HEAD.
    pub(super) head: bool,
    /// It is of HTTP/1.0.
    pub(super) old: bool,
    /// The connection is to live on.
    pub(super) keeps: bool,
    /// Trailers are taken.
    pub(super) trailers: bool,
}

/// How far a head was looked through that is not whole yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Bytes in which the end of the head is not.
    looked: usize,
    /// The one empty line that may come before a request (RFC 9112 §2.2) was there.
    skipped: bool,
}

const fn malformed(what: &'static str) -> LocalError {
    LocalError::Malformed(what)
}

/// Takes the head that was read, if it is whole.
pub(super) fn take(
    read: &mut BytesMut,
    progress: &mut Progress,
    max: impl Fn() -> usize,
    max_headers: usize,
) -> Result<Option<Head>, LocalError> {
    if !progress.skipped && read.starts_with(b"\r\n") {
        read.advance(2);
        progress.skipped = true;
    }
    match read.first() {
        None => return Ok(None),
        Some(b'\r') if read.len() == 1 && !progress.skipped => return Ok(None),
        Some(b'\r' | b'\n') => return Err(malformed("a line before the request line")),
        Some(_) => {}
    }
    // A head that trickles in is not parsed again for each byte, but when its end may be there.
    let looked = std::mem::replace(&mut progress.looked, read.len());
    let parsed = if looked == 0 || has_end(&read[looked.saturating_sub(3)..]) {
        parse(read, max_headers)?
    } else {
        None
    };
    match parsed {
        Some((length, head)) if length <= TARGET || length <= max() => Ok(Some(head)),
        None if read.len() < TARGET || read.len() < max() => Ok(None),
        _ => Err(too_large(read)),
    }
}

fn has_end(read: &[u8]) -> bool {
    read.windows(2).any(|two| two == b"\n\n") || read.windows(3).any(|three| three == b"\n\r\n")
}

/// A head that is too large: whether that is its target.
#[cold]
fn too_large(read: &[u8]) -> LocalError {
    let line = read.split(|b| *b == b'\n').next().unwrap_or_default();
    let target = line.iter().take(METHOD).position(|b| *b == b' ').map_or(&[][..], |at| &line[at + 1..]);
    if target.len() > TARGET { LocalError::TargetTooLong } else { LocalError::HeadTooLarge }
}

/// Reads a whole head; its length, and what it says.
fn parse(read: &mut BytesMut, max_headers: usize) -> Result<Option<(usize, Head)>, LocalError> {
    let ((method, target, old), headers, length) = match fields::read::request(read, max_headers.min(HEADERS))
    {
        Some(usual) => usual,
        None => match unusual(read)? {
            Some(unusual) => unusual,
            None => return Ok(None),
        },
    };
    if target.len() > TARGET {
        return Err(LocalError::TargetTooLong);
    }
    if headers.len() > max_headers {
        return Err(LocalError::HeadTooLarge);
    }
    let method = Method::from_bytes(method).map_err(|_| malformed("the method is none"))?;
    let target = RequestTarget::origin(target).map_or_else(|| unusual_target(&method, target), Ok)?;
    let mut asked = Asked { head: method == Method::HEAD, old, keeps: !old, trailers: false };
    let mut announced = Announced::default();
    for (name, value) in headers.like(&ANNOUNCING) {
        announced.look(name, value, &mut asked)?;
    }
    asked.keeps &= !announced.closes;
    let expects = announced.expects;
    let framing = announced.framing(old)?;
    read.advance(length);
    let version = if old { Version::HTTP_10 } else { Version::HTTP_11 };
    let head = RequestHead { method, target, version, headers };
    let expects = expects && framing != Framing::Ended;
    Ok(Some((length, Head { head, framing, asked, expects })))
}

/// Reads a head that is not whole, or not written as most are.
#[cold]
#[inline(never)]
fn unusual(read: &[u8]) -> Result<Option<(RequestLine<'_>, Fields, usize)>, LocalError> {
    let mut lines = [const { MaybeUninit::uninit() }; HEADERS];
    let mut parsed = httparse::Request::new(&mut []);
    let length = match parsed.parse_with_uninit_headers(read, &mut lines) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(LocalError::HeadTooLarge),
        Err(error) => return Err(malformed(reason(error))),
    };
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(malformed("what came is not an HTTP request"));
    };
    let mut headers = Fields::of_head(&read[..length]);
    for line in parsed.headers.iter() {
        let name = place(read, line.name.as_bytes());
        if !read[..name.0].ends_with(b"\r\n") {
            return Err(BARE);
        }
        let told = headers.tell(name, place(read, line.value));
        told.map_err(|_| malformed("a header's name is none"))?;
    }
    if !read[..length].ends_with(b"\r\n\r\n") {
        return Err(BARE);
    }
    Ok(Some(((method.as_bytes(), target.as_bytes(), version == 0), headers, length)))
}

/// A line that ends with a line feed alone is one that some servers take for a part of the next.
const BARE: LocalError = malformed("a line does not end with CR LF");

fn reason(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a header's name is malformed, or followed by a space",
        httparse::Error::HeaderValue => "a header's value has a character that none may have",
        httparse::Error::Version => "the version of HTTP is not one that is served here",
        httparse::Error::NewLine => "a line does not end with CR LF",
        _ => "what came is not an HTTP request",
    }
}

/// What the lines of a head say of the body, and of the connection.
#[derive(Default)]
struct Announced {
    length: Option<u64>,
    chunked: bool,
    expects: bool,
    closes: bool,
}

impl Announced {
    /// Looks at a line.
    fn look(&mut self, name: &[u8], value: &[u8], asked: &mut Asked) -> Result<(), LocalError> {
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
                    asked.keeps |= word.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            b"te" => {
                asked.trailers |= words(value).any(|word| word.eq_ignore_ascii_case(b"trailers"));
            }
            b"expect" if !asked.old => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(LocalError::Expectation);
                }
                self.expects = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn framing(self, old: bool) -> Result<Framing, LocalError> {
        match (self.chunked, self.length) {
            (true, _) if old => Err(malformed("HTTP/1.0 has no transfer codings")),
            (true, Some(_)) => Err(malformed("both Content-Length and Transfer-Encoding are given")),
            (true, None) => Ok(Framing::chunked()),
            (false, Some(0) | None) => Ok(Framing::Ended),
            (false, Some(length)) => Ok(Framing::Length(length)),
        }
    }
}

/// A target that is not in origin form (RFC 9112 §3.2). The authority form is CONNECT's alone, which is not served.
#[cold]
fn unusual_target(method: &Method, target: &[u8]) -> Result<RequestTarget, LocalError> {
    const NONE: LocalError = malformed("the request target is none that this method can have");
    if !target.iter().all(|b| matches!(b, 0x21..=0x7e) && *b != b'#') {
        return Err(malformed("the request target has a character that must be percent-encoded"));
    }
    let asterisk = *method == Method::OPTIONS && target == b"*";
    let uri = Uri::try_from(target).map_err(|_| NONE)?;
    let absolute = || uri.scheme().is_some_and(|s| s.as_str() == "http" || s.as_str() == "https");
    if asterisk || *method == Method::CONNECT || absolute() { Ok(uri.into()) } else { Err(NONE) }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| *b == b',').map(<[u8]>::trim_ascii)
}
