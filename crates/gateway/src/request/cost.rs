//! The cost of a request.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use sluicegate_auth::Identity;
use sluicegate_config::{Cost, DetailedCost};
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;
use sluicegate_wire::headers::text;

/// The cost that is checked before the response is known, and the base cost. `of_route` is the cost that the route configures.
/// The cost that is checked is at least one, so that no request is free.
pub fn cost(cost: &Cost, of_route: Option<u64>, head: &RequestHead, identity: &Identity<'_>) -> (u64, u64) {
    let base = match cost {
        Cost::Constant(cost) => return (*cost, *cost),
        Cost::Hits => 1, // they are in the question of the proxy
        Cost::Header(name) => header_number(name, &head.headers).unwrap_or(1).max(1),
        Cost::Check => identity.cost(),
        Cost::Detailed(cost) => {
            let of_method = cost.methods.iter().find(|(method, _)| *method == head.method);
            let said = cost
                .request_header
                .as_ref()
                .map(|name| header_number(name, &head.headers).unwrap_or(1).max(1));
            let said = if cost.request_check { Some(identity.cost()) } else { said };
            let base = of_route.or(of_method.map(|(_, cost)| *cost)).or(said).unwrap_or(cost.request);
            return (cost.reserve.filter(|_| cost.settles()).unwrap_or(base.max(1)), base);
        }
    };
    (base, base)
}

/// The cost of a request after the head of its response is known, without the bytes of bodies: that of the request itself, and what
/// the response says. `None` if its status has no cost, nor have the bytes then. A value that is not a whole number says nothing, and
/// `unreadable` is called.
pub fn settled(
    cost: &DetailedCost,
    base: u64,
    (status, headers): (StatusCode, &Headers),
    unreadable: impl Fn(),
) -> Option<(u64, u64)> {
    let status = status.as_u16();
    if !cost.status.is_empty() && !cost.status.iter().any(|(first, last)| (*first..=*last).contains(&status))
    {
        return None;
    }
    let lines = |name| said(headers.get_all(name), unreadable);
    Some((base, cost.response_header.as_ref().map_or(0, lines)))
}

/// What this header says of the cost of a response in its trailers.
pub fn in_trailers(header: &HeaderName, trailers: &HeaderMap, unreadable: impl Fn()) -> u64 {
    said(trailers.get_all(header).iter().map(HeaderValue::as_bytes), unreadable)
}

/// The largest number in these lines; 0 if there is none.
fn said<'a>(lines: impl Iterator<Item = &'a [u8]>, unreadable: impl Fn()) -> u64 {
    let read = |line| {
        let number = text(line).and_then(|line| whole_number(line.trim()));
        if number.is_none() {
            unreadable();
        }
        number
    };
    lines.filter_map(read).max().unwrap_or(0)
}

/// The number in a header: the largest one if the header is repeated, and `u64::MAX` if it is larger than that.
fn header_number(name: &HeaderName, headers: &Headers) -> Option<u64> {
    headers.get_all(name).filter_map(|value| whole_number(text(value)?.trim())).max()
}

fn whole_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}
