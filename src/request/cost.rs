//! What a request spends.

use http::{HeaderName, StatusCode};

use sluicegate_config::{Cost, DetailedCost};
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;
use sluicegate_wire::headers::text;

/// What the request is asked for, and what it costs by itself, on a route where it costs `of_route` if that says so:
/// never nothing, or a client could ask for free.
pub fn cost(cost: &Cost, of_route: Option<u64>, parts: &RequestHead) -> (u64, u64) {
    let base = match cost {
        Cost::Constant(cost) => return (*cost, *cost),
        Cost::Header(name) => said(name, &parts.headers).unwrap_or(1).max(1),
        Cost::Detailed(cost) => {
            let of_method = cost.methods.iter().find(|(method, _)| *method == parts.method);
            let said =
                cost.request_header.as_ref().map(|name| said(name, &parts.headers).unwrap_or(1).max(1));
            let base = of_route.or(of_method.map(|(_, cost)| *cost)).or(said).unwrap_or(cost.request);
            return (cost.reserve.filter(|_| cost.settles()).unwrap_or(base.max(1)), base);
        }
    };
    (base, base)
}

/// What a request costs now that the answer is there, without the bytes of bodies.
pub fn settled(cost: &DetailedCost, base: u64, status: StatusCode, headers: &Headers) -> u64 {
    let status = status.as_u16();
    if !cost.status.is_empty() && !cost.status.iter().any(|(first, last)| (*first..=*last).contains(&status))
    {
        return 0;
    }
    let told = cost.response_header.as_ref().and_then(|name| said(name, headers)).unwrap_or(0);
    base.saturating_add(told)
}

/// The number in a header. Of several lines the largest counts, and a number that is too large to hold is too large
/// for every limit.
fn said(name: &HeaderName, headers: &Headers) -> Option<u64> {
    headers.get_all(name).filter_map(|value| whole_number(text(value)?.trim())).max()
}

fn whole_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}
