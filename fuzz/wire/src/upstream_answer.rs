//! Responses of upstreams over HTTP/1.1: interim responses, a head, and the body.

use http::{Method, StatusCode};
use sluicegate_wire::Headers;
use sluicegate_wire::h1::write::ResponseHead as Head;
use sluicegate_wire::h1::{
    BodyDecoder, BodyFraming, Decoded, Request, RequestDecoder, Response, ResponseDecoder, ResponseHead,
};

use super::request_head::copy;
use super::{check_fields, fields, in_pieces, piece_lengths};

/// The longest head.
const MAX_HEAD: usize = 64 << 10;
const DATE: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// A response whose head has come.
#[derive(Debug, PartialEq)]
struct Answer {
    interims: Vec<(StatusCode, Fields)>,
    status: StatusCode,
    fields: Fields,
    framing: BodyDecoder,
    keep_alive: bool,
    upgraded: bool,
}

fn decode<'p>(
    decoder: ResponseDecoder<'_>,
    pieces: impl Iterator<Item = &'p [u8]>,
) -> Result<Option<(Answer, Vec<u8>)>, &'static str> {
    let mut interims = Vec::new();
    in_pieces(pieces, |read| {
        loop {
            let before = read.len();
            match decoder.decode(read)? {
                None => {
                    assert!(read.len() == before && before < MAX_HEAD, "what is held is bounded");
                    return Ok(None);
                }
                Some(ResponseHead::Interim(status, headers)) => {
                    assert!(status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS);
                    check_fields(&headers);
                    interims.push((status, fields(&headers)));
                }
                Some(ResponseHead::Final(response)) => {
                    check(decoder, &response);
                    return Ok(Some(Answer {
                        interims: std::mem::take(&mut interims),
                        status: response.status,
                        fields: fields(&response.headers),
                        framing: response.body,
                        keep_alive: response.keep_alive,
                        upgraded: response.upgraded,
                    }));
                }
            }
        }
    })
}

/// What holds for every head that is accepted.
fn check(decoder: ResponseDecoder<'_>, response: &Response) {
    let Response { status, headers, body, keep_alive, upgraded, .. } = response;
    check_fields(headers);
    assert!((100..600).contains(&status.as_u16()));
    assert_eq!(*upgraded, *status == StatusCode::SWITCHING_PROTOCOLS);
    assert!(!upgraded || (decoder.upgrade.is_some() && !keep_alive && *body == BodyDecoder::Ended));
    let lengths = headers.get_all("content-length").count();
    let codings = headers.get_all("transfer-encoding").count();
    assert!(*upgraded || lengths + codings <= 1, "one field frames the body");
    let has_none = *decoder.method == Method::HEAD || matches!(status.as_u16(), 101 | 204 | 304);
    match body {
        BodyDecoder::Ended => assert!(has_none || lengths == 1),
        BodyDecoder::Length(length) => assert!(!has_none && lengths == 1 && *length > 0),
        BodyDecoder::Chunked { .. } => assert!(!has_none && codings == 1),
        BodyDecoder::UntilClose => assert!(!has_none && lengths + codings == 0 && !keep_alive),
    }
}

/// What an upstream answers: a byte that says what was asked, and the bytes.
///
/// - In any pieces the result is the same, or an error that was found later.
/// - What is behind the head is left as it is.
/// - An accepted head has clean fields and unambiguous framing, and `httparse` reads the same from it.
/// - Written as the response to a client, it is read as the same.
pub fn upstream_answer(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let data = &data[..data.len().min(2 * MAX_HEAD)];
    let method = [Method::GET, Method::HEAD, Method::POST, Method::OPTIONS][usize::from(choice & 3)].clone();
    let upgrade = (choice & 4 != 0).then_some(&b"websocket"[..]);
    let decoder = ResponseDecoder { method: &method, upgrade, max_head: 64 << 10, max_fields: 1024 };
    let whole = decode(decoder, std::iter::once(data));
    for length in piece_lengths(data) {
        match (&whole, decode(decoder, data.chunks(length))) {
            (Ok(whole), split) => assert_eq!(split.as_ref(), Ok(whole), "in pieces of {length}"),
            (Err(_), split) => assert!(!matches!(split, Ok(Some(_))), "in pieces of {length}"),
        }
    }
    let Ok(Some((answer, rest))) = whole else { return };
    let used = data.len() - rest.len();
    assert_eq!(rest[..], data[used..]);
    as_httparse(&answer, &data[..used]);
    if !answer.upgraded {
        written_again(&answer, decoder);
        body(copy(&answer.framing), &rest);
    }
}

fn as_httparse(answer: &Answer, mut data: &[u8]) {
    let mut heads = Vec::new();
    while !data.is_empty() {
        let mut lines = [httparse::EMPTY_HEADER; 256];
        let mut parsed = httparse::Response::new(&mut lines);
        let Ok(httparse::Status::Complete(length)) = parsed.parse(data) else { panic!("{parsed:?}") };
        let fields: Fields =
            parsed.headers.iter().map(|l| (l.name.to_ascii_lowercase().into(), l.value.to_vec())).collect();
        heads.push((parsed.code.unwrap_or_default(), fields));
        data = &data[length..];
    }
    let (code, mut wanted) = heads.pop().expect("the last is the response");
    assert_eq!(code, answer.status.as_u16());
    let has_length = answer.fields.iter().any(|(name, _)| name == b"content-length");
    let mut seen = false;
    // Of lengths that are the same one is left, and none beside chunks.
    wanted.retain(|(name, _)| {
        name != b"content-length" || answer.upgraded || (has_length && !std::mem::replace(&mut seen, true))
    });
    let sorted = |fields: &Fields| {
        let mut fields = fields.clone();
        // It may have moved to the end, without zeros in front.
        fields.sort_by_key(|(name, _)| name == b"content-length");
        if let Some((_, length)) = fields.last_mut().filter(|(name, _)| name == b"content-length") {
            length.drain(..length.iter().take_while(|digit| **digit == b'0').count());
        }
        fields
    };
    assert_eq!(sorted(&answer.fields), sorted(&wanted));
    let interims: Vec<_> =
        answer.interims.iter().map(|(status, fields)| (status.as_u16(), fields.clone())).collect();
    assert_eq!(interims, heads);
}

/// The fields that the gateway passes on.
fn passed_on(fields: &Fields) -> Fields {
    let own: [&[u8]; 4] = [b"connection", b"transfer-encoding", b"content-length", b"date"];
    fields.iter().filter(|(name, _)| !own.contains(&&name[..])).cloned().collect()
}

fn written_again(answer: &Answer, decoder: ResponseDecoder<'_>) {
    let has_none = *decoder.method == Method::HEAD || matches!(answer.status.as_u16(), 204 | 304);
    let (framing, length) = match answer.framing {
        BodyDecoder::Ended => (BodyFraming::Ended, (!has_none).then_some(0)),
        BodyDecoder::Length(length) => (BodyFraming::Length(length), Some(length)),
        BodyDecoder::Chunked { .. } => (BodyFraming::Chunked, None),
        BodyDecoder::UntilClose => (BodyFraming::UntilClose, None),
    };
    let headers: Headers = answer.fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    let closes = !answer.keep_alive;
    let head = Head { status: answer.status, headers: &headers, framing, length, closes, date: DATE };
    let asked = format!("{} / HTTP/1.1\r\n\r\n", decoder.method);
    let request = RequestDecoder::default().decode(&mut asked.as_bytes().into(), || 0, 9);
    let Ok(Some(Request { terms, .. })) = request else { panic!("a request") };
    let mut written = Vec::new();
    head.write(&mut written, terms);
    let again = decode(decoder, std::iter::once(&written[..]));
    if written.len() > MAX_HEAD {
        return; // it has grown by what the gateway adds
    }
    let Ok(Some((again, rest))) = again else { panic!("{:?}", String::from_utf8_lossy(&written)) };
    assert!(rest.is_empty() && !again.upgraded && again.interims.is_empty());
    assert_eq!(
        (again.status, again.keep_alive, &again.framing),
        (answer.status, answer.keep_alive, &answer.framing)
    );
    assert_eq!(passed_on(&again.fields), passed_on(&answer.fields));
}

/// Reads the body, which is no longer than its head says.
fn body(mut decoder: BodyDecoder, data: &[u8]) {
    let (mut read, mut length) = (data.into(), 0);
    let announced = decoder.remaining();
    while let Ok(Decoded::Frame(frame)) = decoder.decode(&mut read) {
        length += frame.data_ref().map_or(0, |data| data.len());
    }
    assert!(length + read.len() <= data.len());
    assert!(announced.is_none_or(|announced| length as u64 <= announced));
}
