//! Heads of HTTP/1.1 requests.

use http::{Method, Version};
use sluicegate_wire::HeadError;
use sluicegate_wire::h1::{BodyDecoder, Request, RequestDecoder, write};

use super::{check_fields, fields, in_pieces, piece_lengths};

/// The longest request target, and the longest head that the caller is not asked about.
const MAX_TARGET: usize = 8 << 10;
/// The most fields, whatever the caller allows.
const MAX_FIELDS: usize = 256;

/// A head that was accepted, and the bytes behind it.
type Accepted = Option<(Request, Vec<u8>)>;

fn decode<'p>(
    pieces: impl Iterator<Item = &'p [u8]>,
    bytes: usize,
    lines: usize,
) -> Result<Accepted, HeadError> {
    let mut decoder = RequestDecoder::default();
    in_pieces(pieces, |read| decoder.decode(read, || bytes, lines))
}

fn same(one: &Accepted, other: &Accepted) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some((one, rest)), Some((other, other_rest))) => {
            let parts = |request: &Request| {
                let terms = request.terms;
                let head = &request.head;
                (
                    (head.method.clone(), head.target.clone(), head.version, fields(&head.headers)),
                    (
                        terms.is_head,
                        terms.is_http10,
                        terms.keep_alive,
                        terms.trailers,
                        request.expects_continue,
                    ),
                )
            };
            parts(one) == parts(other) && one.body == other.body && rest == other_rest
        }
        _ => false,
    }
}

/// What a client sends first: a byte that chooses the limits, and a head with what follows it.
///
/// - In any pieces the result is the same; only an error may be found later, or wait for more.
/// - What is behind the head is left as it is, and does not change the head. No part of the head is accepted as one.
/// - An accepted head is within its limits, its fields are clean, and its framing is unambiguous.
/// - `httparse` accepts it with the same method, target, version and fields.
/// - Written once more, it is accepted as the same.
pub fn request_head(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let max_bytes = [MAX_TARGET, 10_000, 16 << 10, 64 << 10][usize::from(choice & 3)];
    let max_fields = [1, 8, 100, 1_000][usize::from(choice >> 2 & 3)];
    let whole = decode(std::iter::once(data), max_bytes, max_fields);
    for length in piece_lengths(data) {
        let split = decode(data.chunks(length), max_bytes, max_fields);
        match (&whole, &split) {
            (Ok(one), Ok(other)) if one.is_some() => assert!(same(one, other), "in pieces of {length}"),
            (Ok(Some(_)), Err(error)) => panic!("in pieces of {length}: {error}"),
            (_, Ok(Some(_))) => panic!("accepted in pieces of {length} only"),
            _ => {}
        }
    }
    let Ok(Some((request, rest))) = &whole else { return };
    let used = data.len() - rest.len();
    assert_eq!(rest[..], data[used..]);
    assert!(used <= max_bytes.max(MAX_TARGET) + 2 && data[..used].ends_with(b"\r\n\r\n"));
    let alone = decode(std::iter::once(&data[..used]), max_bytes, max_fields);
    assert!(alone.is_ok_and(|alone| alone.is_some_and(|(_, rest)| rest.is_empty())));
    for end in (0..used).rev().take(80) {
        let part = decode(std::iter::once(&data[..end]), max_bytes, max_fields);
        assert!(matches!(part, Ok(None)), "accepted or refused at {end} of {used}");
    }
    check(request, max_fields);
    as_httparse(request, &data[..used]);
    written_again(request, max_bytes.max(used + 64), max_fields);
}

fn check(request: &Request, max_fields: usize) {
    let Request { head, body, terms, expects_continue } = request;
    check_fields(&head.headers);
    assert!(head.headers.len() <= max_fields.min(MAX_FIELDS));
    assert!(head.target.to_string().len() <= MAX_TARGET + 1, "a target without a path gets one");
    assert!(head.target.to_string().bytes().all(|byte| byte.is_ascii_graphic()));
    assert_eq!(terms.is_http10, head.version == Version::HTTP_10);
    assert_eq!(terms.is_head, head.method == Method::HEAD);
    let lengths: Vec<_> = head.headers.get_all("content-length").collect();
    let codings: Vec<_> = head.headers.get_all("transfer-encoding").collect();
    assert!(lengths.len() + codings.len() <= 1, "one field frames the body");
    match body {
        BodyDecoder::Ended => {
            assert!(codings.is_empty() && lengths.iter().all(|length| length.iter().all(|b| *b == b'0')))
        }
        BodyDecoder::Length(length) => {
            assert_eq!(lengths[0].iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')), *length);
        }
        BodyDecoder::Chunked { .. } => {
            assert!(!terms.is_http10 && codings[0].eq_ignore_ascii_case(b"chunked"))
        }
        BodyDecoder::UntilClose => panic!("no request is framed like this"),
    }
    assert!(!expects_continue || (*body != BodyDecoder::Ended && !terms.is_http10));
}

fn as_httparse(request: &Request, data: &[u8]) {
    // What has to be percent-encoded is.
    let plain = |text: &str| {
        let encode = |text: String, c: &u8| text.replace(char::from(*c), &format!("%{c:02X}"));
        b"\"<>`".iter().fold(text.to_owned(), encode)
    };
    let mut lines = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut lines);
    assert_eq!(parsed.parse(data), Ok(httparse::Status::Complete(data.len())));
    assert_eq!(parsed.method, Some(request.head.method.as_str()));
    assert_eq!(parsed.version, Some(u8::from(!request.terms.is_http10)));
    let (path, target) = (parsed.path.unwrap_or_default(), &request.head.target);
    match path.starts_with('/') || path == "*" {
        true => assert_eq!(plain(path), plain(target.path_and_query())),
        false => assert!(target.authority().is_some_and(|authority| path.contains(authority)), "{path}"),
    }
    let wanted: Vec<_> =
        parsed.headers.iter().map(|l| (l.name.to_ascii_lowercase().into_bytes(), l.value.to_vec())).collect();
    assert_eq!(fields(&request.head.headers), wanted);
}

fn written_again(request: &Request, max_bytes: usize, max_fields: usize) {
    if request.head.method == Method::CONNECT {
        return; // it is not forwarded
    }
    let mut written = Vec::new();
    write::request_head(&mut written, &request.head);
    written.extend_from_slice(b"\r\n");
    let again = decode(std::iter::once(&written[..]), max_bytes, max_fields);
    // What HTTP/1.1 refuses HTTP/1.0 may say.
    if request.terms.is_http10 && request.head.headers.contains_key("expect") {
        return;
    }
    let Ok(Some((again, rest))) = again else {
        panic!("{:?} is not accepted again", String::from_utf8_lossy(&written));
    };
    assert!(rest.is_empty());
    assert_eq!(again.head.method, request.head.method);
    assert_eq!(again.head.target.path_and_query(), request.head.target.path_and_query());
    assert_eq!(
        (fields(&again.head.headers), again.body),
        (fields(&request.head.headers), copy(&request.body))
    );
}

/// A decoder in the same state.
pub fn copy(body: &BodyDecoder) -> BodyDecoder {
    match body {
        BodyDecoder::Ended => BodyDecoder::Ended,
        BodyDecoder::Length(length) => BodyDecoder::Length(*length),
        BodyDecoder::Chunked { next, extensions } => {
            BodyDecoder::Chunked { next: *next, extensions: *extensions }
        }
        BodyDecoder::UntilClose => BodyDecoder::UntilClose,
    }
}
