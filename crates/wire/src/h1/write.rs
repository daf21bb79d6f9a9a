//! Writes the heads of HTTP/1.1 messages (RFC 9112 §3 to §6).

use http::{StatusCode, header};

use super::{BodyFraming, ResponseTerms};
use crate::headers::{NameFilter, write_line};
use crate::number::write_decimal;
use crate::{Headers, RequestHead};

/// Bytes reserved for the fields that are written after those of the caller, and for a small body.
const ROOM: usize = 1 << 10;
/// The fields that the writer sets itself or has to know of.
static FRAMING: NameFilter =
    NameFilter::of(&[b"connection", b"transfer-encoding", b"content-length", b"date"]);

/// The head of a response, as the caller has it.
pub struct ResponseHead<'a> {
    /// The status.
    pub status: StatusCode,
    /// The header fields. Those that frame the message or control the connection are ignored.
    pub headers: &'a Headers,
    /// How the body is framed.
    pub framing: BodyFraming,
    /// The length to announce in bytes, unless the fields of a response without a body have one.
    pub length: Option<u64>,
    /// The connection closes after this response.
    pub closes: bool,
    /// The Date to write if the fields have none.
    pub date: &'a [u8],
}

impl ResponseHead<'_> {
    /// Writes the head of the response to a request with these terms.
    pub fn write(&self, out: &mut Vec<u8>, terms: ResponseTerms) {
        status_line(out, self.status);
        let mut dated = false;
        let keeps_length = self.framing == BodyFraming::Ended && self.status != StatusCode::NO_CONTENT;
        let mut has_length = false;
        out.reserve(self.headers.written_len() + ROOM);
        self.headers.write_filtered(out, &FRAMING, |name| match name {
            b"connection" | b"transfer-encoding" => false,
            // A response without its body announces the length that the body would have.
            b"content-length" => keeps_length && !std::mem::replace(&mut has_length, true),
            b"date" => {
                dated = true;
                true
            }
            _ => true,
        });
        match (self.framing, self.length) {
            (BodyFraming::Chunked, _) => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            (BodyFraming::Length(_) | BodyFraming::Ended, Some(length)) if !has_length => {
                out.extend_from_slice(b"content-length: ");
                write_decimal(out, length);
                out.extend_from_slice(b"\r\n");
            }
            _ => {}
        }
        if !dated {
            write_line(out, b"date", self.date);
        }
        match (self.closes, terms.is_http10) {
            (true, _) => out.extend_from_slice(b"connection: close\r\n"),
            (false, true) => out.extend_from_slice(b"connection: keep-alive\r\n"),
            (false, false) => {}
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Whether these fields ask for the connection to be closed, as local responses do.
pub fn says_close(headers: &Headers) -> bool {
    headers.get(header::CONNECTION).is_some_and(|value| value.eq_ignore_ascii_case(b"close"))
}

/// Writes the head of an interim response.
pub fn interim_head(out: &mut Vec<u8>, status: StatusCode, headers: &Headers) {
    status_line(out, status);
    headers.write(out);
    out.extend_from_slice(b"\r\n");
}

/// Writes the head of a response that switches to another protocol: it has no body.
pub fn switch_head(out: &mut Vec<u8>, status: StatusCode, headers: &Headers) {
    status_line(out, status);
    headers.write_filtered(out, &FRAMING, |name| !matches!(name, b"content-length" | b"transfer-encoding"));
    out.extend_from_slice(b"\r\n");
}

fn status_line(out: &mut Vec<u8>, status: StatusCode) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes the head of a request up to its last field. The caller adds the framing, if there is a body, and the empty line.
pub fn request_head(out: &mut Vec<u8>, request: &RequestHead) {
    let target = request.target.path_and_query();
    out.reserve(request.method.as_str().len() + target.len() + request.headers.written_len() + 16);
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    request.headers.write(out);
}

/// Ends the head of a request with a body: writes its framing, a length if one is known, and the empty line. Returns the
/// framing.
pub fn end_request_head(out: &mut Vec<u8>, length: Option<u64>) -> BodyFraming {
    let framing = match length {
        Some(length) => {
            out.extend_from_slice(b"content-length: ");
            write_decimal(out, length);
            BodyFraming::Length(length)
        }
        None => {
            out.extend_from_slice(b"transfer-encoding: chunked");
            BodyFraming::Chunked
        }
    };
    out.extend_from_slice(b"\r\n\r\n");
    framing
}
