//! Headers that are removed from requests and responses on their way through the gateway, and headers that are added.

use http::header::{self, HeaderMap, HeaderName};
use smallvec::SmallVec;

use super::forwarded_headers::{Kind, kind};
use sluicegate_auth::{ConsumerHeaders, disown, reads_like};
use sluicegate_downstream::Connection;
use sluicegate_wire::headers::{Headers, NameFilter};

const X_FORWARDED_FOR: &str = "x-forwarded-for";
const X_FORWARDED_HOST: &str = "x-forwarded-host";
const X_FORWARDED_PROTO: &str = "x-forwarded-proto";
pub(super) const X_REQUEST_ID: &str = "x-request-id";
pub(super) const X_CONSUMER_NAME: &str = "x-consumer-name";
/// May be a trailer field (RFC 9530).
const CONTENT_DIGEST: &str = "content-digest";
pub(super) const X_CONSUMER_PLAN: &str = "x-consumer-plan";

/// The fields that are specific to one connection, whether Connection names them or not.
const HOP_BY_HOP: [&[u8]; 8] = [
    b"connection",
    b"http2-settings",
    b"transfer-encoding",
    b"upgrade",
    b"keep-alive",
    b"proxy-connection",
    b"proxy-authenticate",
    b"proxy-authorization",
];
static HOP_BY_HOP_FILTER: NameFilter = NameFilter::of(&HOP_BY_HOP);

/// The fields of requests that [`request`] evaluates, and those of `HOP_BY_HOP`.
static EVALUATED: NameFilter = NameFilter::of(&[
    b"te",
    b"expect",
    b"content-length",
    b"trailer",
    b"host",
    b"cookie",
    HOP_BY_HOP[0],
    HOP_BY_HOP[1],
    HOP_BY_HOP[2],
    HOP_BY_HOP[3],
    HOP_BY_HOP[4],
    HOP_BY_HOP[5],
    HOP_BY_HOP[6],
    HOP_BY_HOP[7],
]);

fn is_hop_by_hop(name: &[u8]) -> bool {
    HOP_BY_HOP.contains(&name)
}

/// Removes the fields that are specific to one connection (RFC 9110 §7.6.1): a fixed set, and those that Connection names. The
/// encoders of messages write the framing anew.
pub(super) fn strip_hop_by_hop(headers: &mut Headers) {
    if headers.any_matching(&HOP_BY_HOP_FILTER) {
        strip_named(headers);
        headers.retain_matching(&HOP_BY_HOP_FILTER, |name, known| !known || !is_hop_by_hop(name));
    }
}

/// Removes the fields that Connection names.
fn strip_named(headers: &mut Headers) {
    let lines = headers.get_all("connection");
    // Nearly always it has one of these options, which name no field, or is absent.
    if lines.clone().all(|line| matches!(line, b"keep-alive" | b"close" | b"Keep-Alive" | b"Close")) {
        return;
    }
    let names =
        lines.flat_map(|line| line.split(|b| *b == b',')).map(|name| name.trim_ascii().to_ascii_lowercase());
    let named: Vec<Vec<u8>> = names.filter(|name| !is_end_to_end(name)).collect();
    for name in named {
        headers.remove(name);
    }
}

/// Removes connection-specific fields from the trailers of a response.
pub(super) fn response_trailers(trailers: &mut HeaderMap) {
    let mut fields = Headers::from(&*trailers);
    strip_hop_by_hop(&mut fields);
    *trailers = fields.into();
}

/// Removes the trailers of a request that were not announced, or that frame, route or authenticate the message (RFC 9110
/// §6.5.1).
pub(super) fn request_trailers(trailers: &mut HeaderMap, announced: &[HeaderName]) {
    let is_forbidden = |name: &HeaderName| {
        !announced.contains(name)
            || (is_end_to_end(name.as_ref()) && name != CONTENT_DIGEST)
            || is_hop_by_hop(name.as_ref())
            || kind(name.as_ref()).is_some()
            || [header::CONNECTION, header::TE, header::TRAILER, header::EXPECT].contains(name)
    };
    let forbidden: SmallVec<[HeaderName; 4]> =
        trailers.keys().filter(|name| is_forbidden(name)).cloned().collect();
    for name in forbidden {
        trailers.remove(name);
    }
}

/// Whether a field is kept even if Connection names it: without it the message would have another meaning.
fn is_end_to_end(name: &[u8]) -> bool {
    matches!(name, b"host" | b"authorization" | b"cookie" | b"forwarded" | b"x-real-ip" | b"x-request-id")
        || name.windows(7).any(|part| part == b"api-key")
        || name.starts_with(b"content-")
        || name.starts_with(b"x-forwarded-")
}

/// Prepares the headers of a request for the upstream. The keys of limits were evaluated before, so a client cannot change them
/// by naming headers in Connection. `overrides` says whether headers that override path or method may pass.
pub(super) fn request(
    connection: &Connection,
    headers: &mut Headers,
    authority: Option<&str>,
    has_body: bool,
    trusted: bool,
    overrides: bool,
) {
    strip_named(headers);
    let (mut length, mut forwarded_host, mut forwarded_proto) = (false, false, false);
    let (mut hosts, mut cookies) = (0, 0);
    // One pass over all names is cheaper than a search for each.
    headers.retain_matching(&EVALUATED, |name, is_evaluated| {
        match name {
            _ if !is_evaluated => {}
            // The gateway sends 100 (Continue) when it reads the body.
            b"te" | b"expect" => return false,
            b"content-length" => {
                length = true;
                return false; // written anew from the framing of the body
            }
            b"trailer" => return has_body,
            b"host" => {
                hosts += 1;
                return true;
            }
            b"cookie" => {
                cookies += 1;
                return true;
            }
            name if is_hop_by_hop(name) => return false,
            _ => {}
        }
        match kind(name) {
            // Only trusted peers may state the address of the client.
            Some(Kind::Forwarded) => {
                forwarded_host |= trusted && name == b"x-forwarded-host";
                forwarded_proto |= trusted && name == b"x-forwarded-proto";
                trusted
            }
            Some(Kind::Proxy) => false,
            Some(Kind::Override) => overrides,
            None => true,
        }
    });
    if cookies > 1 && connection.shared {
        join_cookies(headers);
    }
    if length && !has_body {
        headers.append(header::CONTENT_LENGTH, "0");
    }
    let peer = &*connection.peer_text;
    if trusted && headers.contains_key(X_FORWARDED_FOR) {
        let all: Vec<&[u8]> = headers.get_all(X_FORWARDED_FOR).chain([peer]).collect();
        let all = all.join(&b", "[..]);
        headers.insert(X_FORWARDED_FOR, all);
    } else {
        headers.append_unchecked(X_FORWARDED_FOR.as_bytes(), peer);
    }
    if let Some(authority) = authority.filter(|_| hosts == 0) {
        headers.append(header::HOST, authority);
    }
    if !forwarded_host {
        headers.append_copy(X_FORWARDED_HOST, "host");
    }
    if !forwarded_proto {
        headers.append_unchecked(X_FORWARDED_PROTO.as_bytes(), connection.scheme().as_bytes());
    }
}

/// Removes the header that names the client, unless a trusted proxy sent it, and all headers that servers may take for it.
pub(super) fn disown_client(headers: &mut Headers, own: &HeaderName, trusted: bool) {
    let own = own.as_str().as_bytes();
    disown(headers, |name| reads_like(name, own) && !(trusted && name == own));
}

/// Sets the headers that name the consumer. Called after the fields that Connection names are removed, so that a client cannot
/// have them removed.
pub(super) fn set_consumer(headers: &mut Headers, consumer: ConsumerHeaders<'_>) {
    let own = [X_CONSUMER_NAME, X_CONSUMER_PLAN];
    disown(headers, |name| own.iter().any(|own| reads_like(name, own.as_ref())));
    if let Some(name) = consumer.name {
        headers.append(X_CONSUMER_NAME, name);
    }
    if let Some(plan) = consumer.plan {
        headers.append(X_CONSUMER_PLAN, plan);
    }
}

/// Joins the cookie fields into one: HTTP/2 may split it (RFC 9113 §8.2.3), which HTTP/1.1 servers do not expect.
fn join_cookies(headers: &mut Headers) {
    let all: Vec<&[u8]> = headers.get_all(header::COOKIE).collect();
    let all = all.join(&b"; "[..]);
    headers.insert(header::COOKIE, all);
}

/// Whether TE says that the client accepts trailers.
pub(super) fn takes_trailers(headers: &Headers) -> bool {
    let codings = headers.get_all(header::TE).flat_map(|line| line.split(|b| *b == b','));
    codings.map(<[u8]>::trim_ascii).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

/// Whether the lines of a header list have more than so many bytes, written as in HTTP/1.1.
pub(super) fn is_larger(headers: &HeaderMap, max: usize) -> bool {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>() > max
}
