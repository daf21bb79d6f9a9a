//! What a gateway takes away from a request and an answer, and what it adds.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::names::{Kind, kind};
use crate::auth::{Told, disown, reads_like};
use crate::listen::Connection;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const X_CONSUMER_NAME: HeaderName = HeaderName::from_static("x-consumer-name");
/// Made for standing behind a body (RFC 9530).
const CONTENT_DIGEST: &str = "content-digest";
const X_CONSUMER_PLAN: HeaderName = HeaderName::from_static("x-consumer-plan");

/// Meant for one connection only, whether Connection names them or not.
const HOP_BY_HOP: [&str; 7] = [
    "http2-settings",
    "transfer-encoding",
    "upgrade",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
];

/// Removes what is meant for one connection only (RFC 9110 §7.6.1): the fixed set, and all that any Connection
/// line names. The framing is written anew by whoever sends.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let (mut connection, mut others) = (false, false);
    for name in headers.keys() {
        match name.as_str() {
            "connection" => connection = true,
            name => others |= HOP_BY_HOP.contains(&name),
        }
    }
    if connection {
        let named: SmallVec<[HeaderName; 4]> = headers
            .get_all(header::CONNECTION)
            .iter()
            .flat_map(|line| line.as_bytes().split(|b| *b == b','))
            .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
            .filter(|name| !is_end_to_end(name))
            .collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    if others {
        for name in HOP_BY_HOP {
            headers.remove(name);
        }
    }
}

/// The fields that a request says will stand behind its body.
pub(super) fn announced(headers: &HeaderMap) -> SmallVec<[HeaderName; 2]> {
    let lines =
        headers.get_all(header::TRAILER).iter().flat_map(|line| line.as_bytes().split(|b| *b == b','));
    lines.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

/// What stands behind the body of a request, as it goes on: what was announced, and is no header that says how the
/// message is read, where it goes or who sent it (RFC 9110 §6.5.1).
pub(super) fn request_trailers(trailers: &mut HeaderMap, announced: &[HeaderName]) {
    let bad = |name: &HeaderName| {
        !announced.contains(name)
            || (is_end_to_end(name) && name != CONTENT_DIGEST)
            || HOP_BY_HOP.contains(&name.as_str())
            || [header::CONNECTION, header::TE, header::TRAILER, header::EXPECT].contains(name)
    };
    let bad: SmallVec<[HeaderName; 4]> = trailers.keys().filter(|name| bad(name)).cloned().collect();
    for name in bad {
        trailers.remove(name);
    }
}

/// Headers that a client cannot have removed by naming them in Connection: without them the message is another.
fn is_end_to_end(name: &HeaderName) -> bool {
    *name == header::HOST
        || *name == header::AUTHORIZATION
        || *name == header::COOKIE
        || *name == header::FORWARDED
        || *name == X_REAL_IP
        || *name == X_REQUEST_ID
        || name.as_str().contains("api-key")
        || name.as_str().starts_with("content-")
        || name.as_str().starts_with("x-forwarded-")
}

/// Which of the headers that a gateway cares for a request has: one look at all names is cheaper than a search
/// for each.
#[derive(Default)]
struct Present {
    te: bool,
    expect: bool,
    content_length: bool,
    trailer: bool,
    forwarded: bool,
    x_real_ip: bool,
    x_forwarded_host: bool,
    x_forwarded_proto: bool,
    host: bool,
    /// Names that clients may not use as they like; any of them.
    foreign: bool,
    cookies: usize,
}

impl Present {
    fn in_headers(headers: &HeaderMap) -> Self {
        let mut present = Self::default();
        for name in headers.keys() {
            match name.as_str() {
                "te" => present.te = true,
                "expect" => present.expect = true,
                "content-length" => present.content_length = true,
                "trailer" => present.trailer = true,
                "forwarded" => present.forwarded = true,
                "x-real-ip" => present.x_real_ip = true,
                "x-forwarded-host" => present.x_forwarded_host = true,
                "x-forwarded-proto" => present.x_forwarded_proto = true,
                "host" => present.host = true,
                "x-forwarded-for" => {}
                "cookie" => present.cookies = headers.get_all(header::COOKIE).iter().count(),
                _ => present.foreign |= kind(name).is_some(),
            }
        }
        present
    }
}

/// The headers of a request as the upstream gets them. Keys were taken before, so nothing that a client names
/// in Connection changes what it is counted as.
pub(super) fn request(
    connection: &Connection,
    headers: &mut HeaderMap,
    host: Option<HeaderValue>,
    has_body: bool,
    trusted: bool,
    overrides: bool,
) {
    strip_hop_by_hop(headers);
    let present = Present::in_headers(headers);
    if present.te {
        headers.remove(header::TE);
    }
    if present.cookies > 1 && connection.shared {
        join_cookies(connection, headers);
    }
    if present.expect {
        headers.remove(header::EXPECT); // the body is asked of the client when the upstream takes it
    }
    if present.content_length {
        // Written anew from the body's own framing.
        match has_body {
            true => headers.remove(header::CONTENT_LENGTH),
            false => headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0")),
        };
    }
    if present.trailer && !has_body {
        headers.remove(header::TRAILER);
    }
    if present.foreign {
        remove_foreign(headers, trusted, overrides);
    }
    if trusted {
        append_forwarded_for(connection, headers);
    } else {
        // What an untrusted peer says of itself does not reach the upstream.
        if present.forwarded {
            headers.remove(header::FORWARDED);
        }
        if present.x_real_ip {
            headers.remove(X_REAL_IP);
        }
        headers.insert(X_FORWARDED_FOR, connection.peer_text.clone());
    }
    if let Some(host) = host {
        if !trusted || !present.x_forwarded_host {
            headers.insert(X_FORWARDED_HOST, host.clone());
        }
        if !present.host {
            headers.insert(header::HOST, host);
        }
    }
    if !trusted || !present.x_forwarded_proto {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(connection.scheme()));
    }
}

/// Removes what only a trusted proxy may say, also where it is spelled for CGI, and, unless `overrides` are wanted, what
/// asks the upstream for another path or method than the one that was looked at.
fn remove_foreign(headers: &mut HeaderMap, trusted: bool, overrides: bool) {
    let goes = |name: &&HeaderName| match kind(name) {
        Some(Kind::OfProxies) => !trusted,
        Some(Kind::Disguised) => true,
        Some(Kind::Override) => !overrides,
        None => false,
    };
    let names: SmallVec<[HeaderName; 4]> = headers.keys().filter(goes).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Tells the upstream whose API key was sent. It is done after Connection was looked at, so that a client cannot have
/// the gateway's word removed by naming it there.
pub(super) fn tell_consumer(connection: &Connection, headers: &mut HeaderMap, told: Told<'_>) {
    disown(headers, |name| reads_like(name, &X_CONSUMER_NAME) || reads_like(name, &X_CONSUMER_PLAN));
    let Some(consumer) = told.0 else { return };
    let value = |text: &str| connection.worker.scratch.value(|out| out.bytes(text.as_bytes()));
    headers.insert(X_CONSUMER_NAME, value(consumer.name));
    if let Some(plan) = consumer.plan {
        headers.insert(X_CONSUMER_PLAN, value(plan));
    }
}

/// One line of cookies: HTTP/2 may cut it into several (RFC 9113 §8.2.3), which servers of HTTP/1.1 do not expect.
fn join_cookies(connection: &Connection, headers: &mut HeaderMap) {
    let value = connection.worker.scratch.value(|out| {
        for (index, line) in headers.get_all(header::COOKIE).iter().enumerate() {
            if index > 0 {
                out.bytes(b"; ");
            }
            out.bytes(line.as_bytes());
        }
    });
    headers.insert(header::COOKIE, value);
}

pub(super) fn takes_trailers(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(header::TE).iter().flat_map(|line| line.as_bytes().split(|b| *b == b','));
    codings.map(<[u8]>::trim_ascii).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

fn append_forwarded_for(connection: &Connection, headers: &mut HeaderMap) {
    let value = connection.worker.scratch.value(|out| {
        for line in headers.get_all(X_FORWARDED_FOR) {
            out.bytes(line.as_bytes());
            out.bytes(b", ");
        }
        out.bytes(connection.peer_text.as_bytes());
    });
    headers.insert(X_FORWARDED_FOR, value);
}
