//! Decodes the head of a response and how its body is framed (RFC 9112 §4 to §6). Malformed framing is refused whatever the
//! method and the status: another receiver may use such a length to find the end of the body.

use bytes::{Buf, BytesMut};
use http::{Method, StatusCode, header};

use super::BodyDecoder;
use crate::Headers;
use crate::headers::{NameFilter, parse, place};
use crate::number::read_decimal;

const TOO_LONG: &str = "the head of the response is too long";
/// The fields that frame a message, and those that say whether and for how long its connection is kept.
static FRAMING: NameFilter =
    NameFilter::of(&[b"content-length", b"transfer-encoding", b"connection", b"keep-alive"]);

/// A response.
pub struct Response {
    /// The status, within 100 to 599.
    pub status: StatusCode,
    /// The header fields.
    pub headers: Headers,
    /// The decoder for the body.
    pub body: BodyDecoder,
    /// The connection can carry another request after this response.
    pub keep_alive: bool,
    /// The seconds for which the server keeps the connection without a request, if it says so in Keep-Alive.
    pub keep_alive_seconds: Option<u32>,
    /// The connection speaks the requested protocol from here on.
    pub upgraded: bool,
}

/// A decoded head.
#[allow(clippy::large_enum_variant, reason = "the large variant is by far the most frequent one")]
pub enum ResponseHead {
    /// An interim response (RFC 9110 §15.2): the response is still to come.
    Interim(StatusCode, Headers),
    /// The response.
    Final(Response),
}

/// Decodes the responses to one request.
#[derive(Clone, Copy, Debug)]
pub struct ResponseDecoder<'a> {
    /// The method of the request.
    pub method: &'a Method,
    /// The protocol that the request asked to switch to, if any.
    pub upgrade: Option<&'a [u8]>,
    /// The longest head, in bytes.
    pub max_head: usize,
    /// The most header fields of a head.
    pub max_fields: usize,
}

impl ResponseDecoder<'_> {
    /// Decodes the next head and removes its bytes from `read`; `None` if it is not complete.
    ///
    /// # Errors
    /// The bytes are not a valid response, in words for operators. Nothing further can be decoded on the connection.
    pub fn decode(self, read: &mut BytesMut) -> Result<Option<ResponseHead>, &'static str> {
        if read.is_empty() {
            return Ok(None);
        }
        let usual = parse::response(read, self.max_fields);
        let Some((code, is_http10, headers, length)) =
            usual.map_or_else(|| parse_unusual(read, self.max_fields), |usual| Ok(Some(usual)))?
        else {
            return if read.len() < self.max_head { Ok(None) } else { Err(TOO_LONG) };
        };
        if length > self.max_head {
            return Err(TOO_LONG);
        }
        let status = status_of(code)?;
        read.advance(length);
        if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Some(ResponseHead::Interim(status, headers)));
        }
        self.response(status, is_http10, headers).map(|response| Some(ResponseHead::Final(response)))
    }

    fn response(
        self,
        status: StatusCode,
        is_http10: bool,
        mut headers: Headers,
    ) -> Result<Response, &'static str> {
        if status == StatusCode::SWITCHING_PROTOCOLS {
            if !self.upgrade.is_some_and(|protocol| switches_to(&headers, protocol)) {
                return Err("the server switched protocols without a request to do so");
            }
            return Ok(Response {
                status,
                headers,
                body: BodyDecoder::Ended,
                keep_alive: false,
                keep_alive_seconds: None,
                upgraded: true,
            });
        }
        let (body, persistence) = framing(status, is_http10, &mut headers, self.method)?;
        let Persistence { closes, keeps, seconds: keep_alive_seconds } = persistence;
        let keep_alive = (keeps || !is_http10) && !closes && body != BodyDecoder::UntilClose;
        Ok(Response { status, headers, body, keep_alive, keep_alive_seconds, upgraded: false })
    }
}

/// What a response says of its connection.
#[derive(Default)]
struct Persistence {
    closes: bool,
    keeps: bool,
    /// The seconds for which the server keeps it without a request.
    seconds: Option<u32>,
}

impl Persistence {
    /// Reads a line of Connection or Keep-Alive.
    #[cold]
    fn read(&mut self, name: &[u8], line: &[u8]) {
        for word in line.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
            match name {
                b"connection" => {
                    self.closes |= word.eq_ignore_ascii_case(b"close");
                    self.keeps |= word.eq_ignore_ascii_case(b"keep-alive");
                }
                b"keep-alive" => self.seconds = timeout_of(word).or(self.seconds),
                _ => {}
            }
        }
    }
}

/// A status code, whether the version is HTTP/1.0, the fields, and the length of the head.
type Parsed = (u16, bool, Headers, usize);

/// Parses a head that is incomplete or not in the usual form.
#[cold]
#[inline(never)]
fn parse_unusual(read: &[u8], max_fields: usize) -> Result<Option<Parsed>, &'static str> {
    let mut lines = Vec::with_capacity(max_fields);
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_response_with_uninit_headers(
        &mut parsed,
        read,
        &mut lines.spare_capacity_mut()[..max_fields],
    ) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err("the response has too many headers"),
        Err(_) => return Err("the response is not HTTP/1.1"),
    };
    let mut headers = Headers::with_text(&read[..length]);
    for line in parsed.headers.iter() {
        let pushed = headers.push_at(place(read, line.name.as_bytes()), place(read, line.value));
        pushed.map_err(|_| "a header name is malformed")?;
    }
    Ok(Some((parsed.code.unwrap_or(0), parsed.version == Some(0), headers, length)))
}

/// The status of a response.
///
/// # Errors
/// The code is not within 100 to 599: RFC 9110 §15 defines no others.
pub fn status_of(code: u16) -> Result<StatusCode, &'static str> {
    let status = StatusCode::from_u16(code).ok().filter(|_| code < 600);
    status.ok_or("the status is not within 100 to 599")
}

/// The decoder for the body of a response. HTTP/1.0 has no transfer codings (RFC 9112 §6.1). If both are given, the chunked coding
/// overrides Content-Length, which is then removed; a repeated Content-Length is reduced to one.
///
/// # Errors
/// The framing is malformed, in words for operators.
pub fn response_body(
    status: StatusCode,
    is_http10: bool,
    headers: &mut Headers,
    method: &Method,
) -> Result<BodyDecoder, &'static str> {
    framing(status, is_http10, headers, method).map(|(body, _)| body)
}

/// The decoder for the body of a response, and what it says of its connection.
#[inline]
fn framing(
    status: StatusCode,
    is_http10: bool,
    headers: &mut Headers,
    method: &Method,
) -> Result<(BodyDecoder, Persistence), &'static str> {
    let (mut length, mut repeated, mut codings, mut chunked) = (None, false, 0, false);
    let mut persistence = Persistence::default();
    for (name, value) in headers.matching(&FRAMING) {
        match name {
            b"content-length" if length.is_some_and(|other| other != value) => {
                return Err("two content lengths");
            }
            b"content-length" => repeated = length.replace(value).is_some(),
            b"transfer-encoding" => {
                codings += 1;
                chunked = value.eq_ignore_ascii_case(b"chunked");
            }
            _ => persistence.read(name, value),
        }
    }
    let announced = match length.map(read_decimal) {
        Some(None) => return Err("a bad content length"),
        Some(announced) => announced,
        None => None,
    };
    match codings {
        0 if repeated => headers.insert(header::CONTENT_LENGTH, announced.unwrap_or_default().to_string()),
        0 => {}
        _ if is_http10 => return Err("a transfer coding in an answer of HTTP/1.0"),
        1 if chunked => _ = headers.remove(header::CONTENT_LENGTH),
        _ => return Err("the response has a transfer coding other than chunked"),
    }
    if *method == Method::HEAD || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok((BodyDecoder::Ended, persistence));
    }
    let body = match announced {
        _ if chunked => BodyDecoder::chunked(),
        None => BodyDecoder::UntilClose,
        Some(0) => BodyDecoder::Ended,
        Some(length) => BodyDecoder::Length(length),
    };
    Ok((body, persistence))
}

/// The seconds of `timeout=5` in Keep-Alive.
fn timeout_of(word: &[u8]) -> Option<u32> {
    let (name, value) = word.split_at_checked(8)?;
    let seconds = if name.eq_ignore_ascii_case(b"timeout=") { read_decimal(value)? } else { return None };
    Some(u32::try_from(seconds).unwrap_or(u32::MAX))
}

/// Whether a response switches to this protocol.
fn switches_to(headers: &Headers, protocol: &[u8]) -> bool {
    let named = headers.only(header::UPGRADE);
    named.is_some_and(|named| named.eq_ignore_ascii_case(protocol)) && names_upgrade(headers)
}

/// Whether Connection names `upgrade` (RFC 9110 §7.8).
pub fn names_upgrade(headers: &Headers) -> bool {
    let mut words = headers.get_all(header::CONNECTION).flat_map(|line| line.split(|b| *b == b','));
    words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(headers: &[(&str, &str)], status: u16, method: Method) -> Result<BodyDecoder, &'static str> {
        let mut fields = headers.iter().copied().collect();
        response_body(StatusCode::from_u16(status).unwrap(), false, &mut fields, &method)
    }

    #[test]
    fn responses_are_framed() {
        let of = |headers: &[(&str, &str)]| framing(headers, 200, Method::GET);
        assert_eq!(of(&[("content-length", "5")]), Ok(BodyDecoder::Length(5)));
        assert_eq!(of(&[("content-length", "0")]), Ok(BodyDecoder::Ended));
        assert_eq!(of(&[("content-length", "5"), ("content-length", "5")]), Ok(BodyDecoder::Length(5)));
        assert_eq!(of(&[]), Ok(BodyDecoder::UntilClose));
        let both = [("transfer-encoding", "Chunked"), ("content-length", "5")];
        assert_eq!(of(&both), Ok(BodyDecoder::chunked()));
        assert_eq!(framing(&[("content-length", "5")], 200, Method::HEAD), Ok(BodyDecoder::Ended));
        assert_eq!(framing(&[("content-length", "5")], 304, Method::GET), Ok(BodyDecoder::Ended));
    }

    #[test]
    fn malformed_framing_is_refused_for_all_methods() {
        let lengths = ["-5", "+5", "5 5", "", "0x5", "99999999999999999999", "5,5", "5, 6", "5x"];
        let mut bad: Vec<Vec<(&str, &str)>> =
            lengths.iter().map(|length| vec![("content-length", *length)]).collect();
        bad.push(vec![("content-length", "5"), ("content-length", "6")]);
        bad.push(vec![("transfer-encoding", "chunked"), ("content-length", "x")]);
        bad.push(vec![("transfer-encoding", "gzip, chunked")]);
        bad.push(vec![("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]);
        for headers in bad {
            for (status, method) in
                [(200, Method::GET), (200, Method::HEAD), (304, Method::GET), (204, Method::POST)]
            {
                assert!(framing(&headers, status, method.clone()).is_err(), "{headers:?} {status} {method}");
            }
        }
        let mut chunked = [("transfer-encoding", "chunked")].into_iter().collect();
        assert!(response_body(StatusCode::OK, true, &mut chunked, &Method::GET).is_err());
    }

    #[test]
    fn a_status_is_within_100_to_599() {
        assert!([100, 200, 599].into_iter().all(|code| status_of(code).is_ok()));
        assert!([0, 99, 600, 999, 1000].into_iter().all(|code| status_of(code).is_err()));
    }
}
