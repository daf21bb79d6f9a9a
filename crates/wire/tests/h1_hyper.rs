//! Requests and responses of HTTP/1.1 against hyper: what our decoders accept, hyper accepts with the same meaning. That we
//! refuse more is intended. `SLUICEGATE_EXCHANGES=N` asks for N messages of each kind.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "h1_hyper/hyper_side.rs"]
mod hyper_side;
#[path = "h1_hyper/messages.rs"]
mod messages;

use std::collections::BTreeMap;
use std::path::Path;

use bytes::BytesMut;
use http::{HeaderMap, Method, StatusCode, Uri, Version};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use sluicegate_wire::Headers;
use sluicegate_wire::h1::{BodyDecoder, Decoded, RequestDecoder, ResponseDecoder, ResponseHead};
use sluicegate_wire::trailers::is_allowed_in_trailers;

/// Messages unless told otherwise.
const MESSAGES: u32 = 4_000;
/// The most fields of a message, as hyper has it.
const MAX_FIELDS: usize = 100;

/// The values of each name, in order.
type Fields = BTreeMap<String, Vec<Vec<u8>>>;

/// A body that is complete, and its trailers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Body {
    data: Vec<u8>,
    trailers: Fields,
}

/// A request that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    method: Method,
    uri: Uri,
    version: Version,
    fields: Fields,
    body: Body,
}

/// A response that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Response {
    status: StatusCode,
    fields: Fields,
    body: Body,
    /// The connection can carry another request.
    keep_alive: bool,
}

fn fields_of(map: &HeaderMap) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in map {
        fields.entry(name.as_str().to_owned()).or_default().push(value.as_bytes().to_vec());
    }
    fields
}

fn fields(headers: &Headers) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in headers.iter() {
        fields.entry(String::from_utf8(name.to_vec()).unwrap()).or_default().push(value.to_vec());
    }
    fields
}

/// Reads a body; `None` if it is malformed or not complete when the connection closes.
fn body(mut decoder: BodyDecoder, read: &mut BytesMut) -> Option<Body> {
    let mut body = Body::default();
    loop {
        match decoder.decode(read).ok()? {
            Decoded::End => return Some(body),
            Decoded::NeedMore => return (decoder == BodyDecoder::UntilClose).then_some(body),
            Decoded::Frame(frame) => match frame.into_data() {
                Ok(data) => body.data.extend_from_slice(&data),
                Err(frame) => body.trailers = fields_of(frame.trailers_ref().unwrap()),
            },
        }
    }
}

/// The requests that our decoders accept on a connection, and whether the last one closes it.
fn our_requests(bytes: &[u8]) -> (Vec<Request>, bool) {
    let (mut read, mut requests) = (BytesMut::from(bytes), Vec::new());
    loop {
        let decoded = RequestDecoder::default().decode(&mut read, || 16 << 10, MAX_FIELDS);
        let Ok(Some(request)) = decoded else { return (requests, false) };
        let Some(body) = body(request.body, &mut read) else { return (requests, false) };
        let head = request.head;
        let (uri, fields) = (Uri::from(&head.target), fields(&head.headers));
        requests.push(Request { method: head.method, uri, version: head.version, fields, body });
        if !request.terms.keep_alive {
            return (requests, true);
        }
    }
}

/// The response that our decoders accept, and whether its body ends with the connection.
fn our_response(bytes: &[u8], method: &Method) -> Option<(Response, bool, usize)> {
    let mut read = BytesMut::from(bytes);
    let decoder = ResponseDecoder { method, upgrade: None, max_head: 64 << 10, max_fields: 1024 };
    let response = loop {
        match decoder.decode(&mut read).ok()?? {
            ResponseHead::Interim(..) => {}
            ResponseHead::Final(response) => break response,
        }
    };
    let until_close = response.body == BodyDecoder::UntilClose;
    let body = body(response.body, &mut read)?;
    let fields = fields(&response.headers);
    let keep_alive = response.keep_alive;
    Some((Response { status: response.status, fields, body, keep_alive }, until_close, read.len()))
}

/// Trailers that we pass on: hyper keeps those that must not be trailers.
fn allowed(trailers: Fields) -> Fields {
    trailers.into_iter().filter(|(name, _)| is_allowed_in_trailers(&name.parse().unwrap())).collect()
}

/// Compares what comes on one connection of a client.
fn compare_requests(bytes: &[u8]) -> usize {
    let (ours, closes) = our_requests(bytes);
    let mut theirs = hyper_side::requests(bytes);
    theirs
        .iter_mut()
        .for_each(|request| request.body.trailers = allowed(std::mem::take(&mut request.body.trailers)));
    let text = String::from_utf8_lossy(bytes);
    // hyper does not encode targets.
    let is_encoded =
        |our: &Request| ["%22", "%3C", "%3E", "%60"].iter().any(|code| our.uri.to_string().contains(code));
    if ours.get(theirs.len()).is_some_and(is_encoded) {
        return ours.len();
    }
    assert!(theirs.len() >= ours.len(), "hyper accepts {} of {}: {text:?}", theirs.len(), ours.len());
    for (our, their) in ours.iter().zip(&theirs) {
        assert_eq!(our, their, "{text:?}");
    }
    // hyper does not look for `close` beside bytes that are not ASCII; to close then is the safe choice.
    let connection = ours.last().and_then(|request| request.fields.get("connection"));
    let is_odd = connection.is_some_and(|values| !values.concat().is_ascii());
    assert!(!closes || is_odd || theirs.len() == ours.len(), "hyper keeps the connection open: {text:?}");
    ours.len()
}

/// Compares what an upstream answers to a request of this method.
fn compare_responses(bytes: &[u8], method: &Method) -> usize {
    let Some((mut ours, until_close, left)) = our_response(bytes, method) else { return 0 };
    let text = String::from_utf8_lossy(bytes);
    let Some(mut theirs) = hyper_side::response(bytes, method, until_close) else {
        panic!("hyper does not accept {text:?}");
    };
    theirs.body.trailers = allowed(theirs.body.trailers);
    if theirs.fields.contains_key("transfer-encoding") {
        theirs.fields.remove("content-length"); // chunks win, and the length goes
    }
    // Of lengths that are the same one is left, without zeros in front.
    for fields in [&mut ours.fields, &mut theirs.fields] {
        let lengths = fields.entry("content-length".to_owned()).or_default();
        lengths.truncate(1);
        lengths
            .iter_mut()
            .for_each(|length| _ = length.drain(..length.iter().take_while(|b| **b == b'0').count()));
    }
    if left > 0 {
        theirs.keep_alive = ours.keep_alive; // hyper closes where something comes unasked
    }
    assert!(theirs.keep_alive || !ours.keep_alive, "hyper closes the connection: {text:?}");
    theirs.keep_alive = ours.keep_alive; // that we close more is no difference
    assert_eq!(ours, theirs, "{text:?}");
    1
}

/// The entries of a corpus without their first byte, which chooses limits or methods.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/wire/corpus").join(target);
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .map(|entry| entry[1..].to_vec())
        .collect()
}

fn methods() -> [Method; 3] {
    [Method::GET, Method::HEAD, Method::POST]
}

#[test]
fn entries_of_the_corpus() {
    let requests: usize = corpus("request_head").iter().map(|entry| compare_requests(entry)).sum();
    let answers = corpus("upstream_answer");
    let responses: usize =
        answers.iter().flat_map(|entry| methods().map(|method| compare_responses(entry, &method))).sum();
    assert!(requests > 15 && responses > 30, "{requests} requests and {responses} responses are accepted");
}

/// Many of the messages at random are accepted, so that there is something to compare.
#[test]
fn messages_are_accepted() {
    let mut runner = TestRunner::deterministic();
    let (mut requests, mut responses) = (0, 0);
    for _ in 0..1_000 {
        let bytes = messages::requests().new_tree(&mut runner).unwrap().current();
        requests += compare_requests(&bytes);
        let bytes = messages::response().new_tree(&mut runner).unwrap().current();
        responses += compare_responses(&bytes, &Method::GET);
    }
    assert!(requests > 200 && responses > 200, "{requests} requests and {responses} responses are accepted");
}

fn cases() -> u32 {
    std::env::var("SLUICEGATE_EXCHANGES").map_or(MESSAGES, |count| count.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn requests(bytes in messages::requests()) {
        compare_requests(&bytes);
    }

    #[test]
    fn responses(bytes in messages::response(), method in prop::sample::select(methods().to_vec())) {
        compare_responses(&bytes, &method);
    }
}
