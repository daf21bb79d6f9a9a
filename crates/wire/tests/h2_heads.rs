//! Heads of requests over HTTP/2, well-formed or not, against the server of the `h2` crate: what our session accepts, it
//! accepts with the same meaning. That we refuse more is intended. `SLUICEGATE_EXCHANGES=N` asks for N heads.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../fuzz/wire/src/frames.rs"]
#[allow(unreachable_pub, dead_code)]
mod frames;

use std::collections::BTreeMap;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::Method;
use http::uri::Authority;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use sluicegate_wire::RequestHead;
use sluicegate_wire::h2::frame::{PREFACE, flag, kind};
use sluicegate_wire::h2::{Event, HeadLimits, Session};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Heads unless told otherwise.
const HEADS: u32 = 4_000;

type Lines = Vec<(Vec<u8>, Vec<u8>)>;

/// What a head says: method, path and query, and the values of each field; `host` is the authority too.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    method: Method,
    path: String,
    fields: BTreeMap<String, Vec<Vec<u8>>>,
}

/// The bytes of a connection with one request without a body.
fn connection(lines: &Lines) -> Vec<u8> {
    let mut block = Vec::new();
    lines.iter().for_each(|(name, value)| frames::literal(&mut block, name, value));
    let mut bytes = PREFACE.to_vec();
    frames::write(&mut bytes, kind::SETTINGS, 0, 0, &[]);
    frames::write(&mut bytes, kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block);
    bytes
}

/// The request as our session accepts it.
fn ours(bytes: &[u8]) -> Option<Head> {
    let mut session = Session::new(
        HeadLimits { bytes: 16 << 10, fields: 100, target: 8 << 10 },
        Arc::default(),
        Duration::ZERO,
    );
    let Ok(Some(Event::Request { head: Ok((head, _)), ended: true, .. })) =
        session.next_event(&mut &bytes[..])
    else {
        return None;
    };
    let RequestHead { method, target, headers, .. } = head;
    let mut fields: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for (name, value) in headers.iter() {
        fields.entry(String::from_utf8(name.to_vec()).unwrap()).or_default().push(value.to_vec());
    }
    if let Some(authority) = target.authority() {
        fields.entry("host".to_owned()).or_default().insert(0, authority.as_bytes().to_vec());
    }
    Some(Head { method, path: target.path_and_query().to_owned(), fields })
}

/// The request as the server of `h2` accepts it.
fn theirs(bytes: &[u8]) -> Option<Head> {
    let mut context = Context::from_waker(Waker::noop());
    let mut handshake = pin!(h2::server::handshake(Pipe(bytes.to_vec())));
    let Poll::Ready(Ok(mut connection)) = handshake.as_mut().poll(&mut context) else { return None };
    let Poll::Ready(Some(Ok((request, _)))) = connection.poll_accept(&mut context) else { return None };
    let (parts, _) = request.into_parts();
    let mut fields: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for (name, value) in &parts.headers {
        fields.entry(name.as_str().to_owned()).or_default().push(value.as_bytes().trim_ascii().to_vec());
    }
    if let Some(authority) = parts.uri.authority() {
        let hosts = fields.entry("host".to_owned()).or_default();
        // The same once more says nothing.
        if hosts.first().is_some_and(|host| host.eq_ignore_ascii_case(authority.as_str().as_bytes())) {
            hosts.remove(0);
        }
        hosts.insert(0, authority.as_str().as_bytes().to_vec());
        if parts.method == Method::CONNECT {
            hosts.truncate(1); // its target is the authority
        }
    }
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str()).to_owned();
    Some(Head { method: parts.method, path, fields })
}

/// Compares a head; whether it is accepted.
fn compare(lines: &Lines) -> bool {
    let bytes = connection(lines);
    let Some(ours) = ours(&bytes) else { return false };
    let is_authority =
        |(name, value): &(Vec<u8>, Vec<u8>)| name != b":authority" || Authority::try_from(&value[..]).is_ok();
    if !lines.iter().all(is_authority) {
        return false; // the gateway refuses it when it looks at the host
    }
    let text: Vec<_> = lines
        .iter()
        .map(|(name, value)| (name.escape_ascii().to_string(), value.escape_ascii().to_string()))
        .collect();
    assert_eq!(Some(ours), theirs(&bytes), "{text:?}");
    true
}

/// A connection on which these bytes arrive, and nothing more.
struct Pipe(Vec<u8>);

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return Poll::Pending;
        }
        let length = self.0.len().min(into.remaining());
        into.put_slice(&self.0[..length]);
        self.0.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The usual pseudo-header fields, other lines among and behind them, and changed bytes.
fn heads() -> impl Strategy<Value = Lines> {
    let method = prop::sample::select(vec![
        "GET", "GET", "POST", "POST", "PUT", "OPTIONS", "CONNECT", "M-SEARCH", "get", "G T", "",
    ]);
    let path = prop::sample::select(vec![
        "/",
        "/",
        "/",
        "/x",
        "/a?b=c",
        "/a?b=c",
        "*",
        "",
        "x",
        "/a b",
        "/a#b",
        "//x",
        "/%zz",
        "http://x/",
        "?a",
    ]);
    let scheme = prop::sample::select(vec!["http", "https", "https", "https", "https", "HTTP", "ftp", ""]);
    let authority = prop::sample::select(vec!["a.test", "a.test:80", "[::1]:8", "u@a", "", "A.test"]);
    let field = prop::sample::select(vec![
        ("host", "a.test"),
        ("host", "b.test"),
        ("content-length", "0"),
        ("content-length", "00"),
        ("content-length", "5"),
        ("content-length", "x"),
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("te", "trailers"),
        ("te", "gzip"),
        ("upgrade", "h2c"),
        ("keep-alive", "1"),
        ("proxy-connection", "x"),
        ("cookie", "a=b"),
        ("cookie", "c=d"),
        ("x-a", ""),
        ("x-a", " b "),
        ("x-a", "b\r\nc"),
        ("x-a", "b\0"),
        ("X-A", "b"),
        ("x a", "b"),
        ("x_a", "b"),
        ("", "b"),
        (":status", "200"),
        (":path", "/"),
        (":method", "GET"),
        (":x", "y"),
        (":protocol", "websocket"),
        ("expect", "100-continue"),
        ("x-\u{fc}", "b"),
        ("x-a", "\u{fc}"),
        ("x-a", "\t"),
        ("content-length", ""),
        ("trailer", "x"),
    ]);
    let missing = prop_oneof![6 => Just(4_usize), 1 => 0_usize..4];
    let usual =
        (method, path, scheme, authority, missing).prop_map(|(method, path, scheme, authority, missing)| {
            let mut lines =
                vec![(":method", method), (":scheme", scheme), (":authority", authority), (":path", path)];
            if method == "CONNECT" && missing == 4 {
                lines = vec![(":method", method), (":authority", authority)];
            }
            if missing < lines.len() {
                lines.remove(missing);
            }
            lines
        });
    let change = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>());
    (
        usual,
        prop::collection::vec(field, 0..4),
        prop::option::weighted(0.2, change),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(mut lines, fields, change, mixed)| {
            lines.extend(fields);
            if mixed {
                lines.rotate_right(1);
            }
            let mut lines: Lines = lines
                .iter()
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .collect();
            if let Some((line, at, byte)) = change {
                let line = line.index(lines.len());
                let (name, value) = &mut lines[line];
                let text = if byte & 1 == 0 { name } else { value };
                if !text.is_empty() {
                    let at = at.index(text.len());
                    text[at] = byte;
                }
            }
            lines
        })
}

#[test]
fn heads_are_accepted() {
    let mut runner = TestRunner::deterministic();
    let accepted = (0..1_000).filter(|_| compare(&heads().new_tree(&mut runner).unwrap().current())).count();
    assert!(accepted > 100, "{accepted} are accepted");
}

fn cases() -> u32 {
    std::env::var("SLUICEGATE_EXCHANGES").map_or(HEADS, |count| count.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn accepted_alike(lines in heads()) {
        compare(&lines);
    }
}
