//! Floods of keys: no client gets more than its limit, and memory stays bounded.

use http::HeaderValue;
use sluicegate_base::incoming::{Peer, Request};
use sluicegate_gateway::request::pipeline::evaluate;
use sluicegate_limiter::{Span, Time};
use sluicegate_wire::RequestHead;

use crate::gateway::Gateway;

/// 200,000 keys, one request each: there are no more counters than allowed, a key that was limited before stays limited,
/// and a new key is served once the other keys owe nothing.
#[test]
fn a_flood_of_keys_is_bounded() {
    const MOST: usize = 10_000;
    let file = format!(
        "listen: [127.0.0.1:1]\nlimits: {{l: {{key: api_key, rate: 2/min, max_keys: {MOST}}}}}\n\
         routes: [{{respond: {{status: 200}}, limits: [l]}}]\n"
    );
    let Gateway { snapshot, .. } = &Gateway::new(&file, &[], Time::from_nanos(1));
    let peer = Peer::plain(0, "203.0.113.9".parse().unwrap());
    let mut head: RequestHead =
        http::Request::builder().header("host", "a.test").body(()).unwrap().into_parts().0.into();
    let mut admitted = |key: &str, now: Time| {
        head.headers.insert("x-api-key", HeaderValue::from_str(key).unwrap());
        evaluate(snapshot, Request { head: &head, peer }, now, false).unwrap().2.admitted
    };
    let start = Time::from_nanos(1_000_000_000_000);
    assert!(admitted("mine", start) && admitted("mine", start) && !admitted("mine", start));
    let (mut let_in, mut most) = (0, 0);
    for flood in 0..200_000_u64 {
        let_in += usize::from(admitted(&format!("k{:x}", flood.wrapping_mul(0x9e37_79b9_7f4a_7c15)), start));
        if flood % 1000 == 0 {
            most = most.max(snapshot.limits[0].counted.counters.entries());
        }
    }
    assert!(most <= MOST, "{most} counters beside the one that the rest shares");
    assert!(let_in <= 2 * MOST, "{let_in} of a flood beyond the table");
    assert!(!admitted("mine", start), "its debt is remembered");
    assert!(
        admitted("fresh", start.plus(Span::from_secs(120))),
        "a new key is served when there is room again"
    );
}
