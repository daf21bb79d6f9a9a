//! What a gateway takes away from a request and an answer, and what it adds.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::listen::Connection;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Meant for one connection only, whether Connection names them or not.
const HOP_BY_HOP: [HeaderName; 6] = [
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The longest request id that is taken over from a trusted proxy.
const MAX_ID: usize = 128;

/// Removes what is meant for one connection only (RFC 9110 §7.6.1): the fixed set, and all that any Connection
/// line names. The framing is written anew by whoever sends.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
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
    // One look at the names that are there is cheaper than six for names that are hardly ever.
    if headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        for name in HOP_BY_HOP {
            headers.remove(name);
        }
    }
}

/// Headers that a client cannot have removed by naming them in Connection: without them the message is another.
fn is_end_to_end(name: &HeaderName) -> bool {
    *name == header::HOST
        || *name == header::AUTHORIZATION
        || *name == header::COOKIE
        || name.as_str().starts_with("content-")
        || name.as_str().starts_with("x-forwarded-")
}

/// The headers of a request as the upstream gets them. Keys were taken before, so nothing that a client names
/// in Connection changes what it is counted as.
pub(super) fn request(
    connection: &Connection,
    headers: &mut HeaderMap,
    host: Option<HeaderValue>,
    trusted: bool,
) {
    // TE is for this connection; that the client takes trailers is passed on.
    let trailers = headers.contains_key(header::TE) && takes_trailers(headers);
    strip_hop_by_hop(headers);
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    } else {
        headers.remove(header::TE);
    }
    headers.remove(header::EXPECT); // the body is asked of the client when the upstream takes it
    headers.remove(header::CONTENT_LENGTH); // written anew from the body's own framing

    let scratch = &connection.worker.scratch;
    let peer = connection.peer_ip();
    if trusted {
        append_forwarded_for(connection, headers, peer);
    } else {
        // What an untrusted peer says of itself does not reach the upstream.
        headers.remove(header::FORWARDED);
        headers.remove(X_REAL_IP);
        headers.insert(X_FORWARDED_FOR, scratch.value(|out| out.display(&peer)));
    }
    if let Some(host) = host.as_ref().filter(|_| !trusted || !headers.contains_key(X_FORWARDED_HOST)) {
        headers.insert(X_FORWARDED_HOST, host.clone());
    }
    if !trusted || !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
    }
    let id = headers.get(X_REQUEST_ID).filter(|id| trusted && !id.is_empty() && id.len() <= MAX_ID);
    if id.is_none() {
        headers.insert(X_REQUEST_ID, connection.worker.request_id());
    }
    if let Some(host) = host {
        headers.insert(header::HOST, host);
    }
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(header::TE).iter().flat_map(|line| line.as_bytes().split(|b| *b == b','));
    codings.map(<[u8]>::trim_ascii).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

fn append_forwarded_for(connection: &Connection, headers: &mut HeaderMap, peer: IpAddr) {
    let value = connection.worker.scratch.value(|out| {
        for line in headers.get_all(X_FORWARDED_FOR) {
            out.bytes(line.as_bytes());
            out.bytes(b", ");
        }
        out.display(&peer);
    });
    headers.insert(X_FORWARDED_FOR, value);
}
