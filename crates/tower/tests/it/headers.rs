//! The headers of responses, number by number.

use std::time::Duration;

use sluicegate_tower::{DAY, HeaderFamilies, Limit, MINUTE, RateLimitLayer, SECOND};

use crate::common::{TestClock, field, layer, request, send};

const ALL: [&str; 7] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "x-ratelimit-retry-after",
];

fn fields(layer: &RateLimitLayer) -> [String; 7] {
    let response = send(layer, request());
    ALL.map(|name| field(response.headers(), name).to_owned())
}

#[test]
fn a_bucket_counts_down_and_says_when_to_come_back() {
    let clock = TestClock::new();
    let limit = Limit::token_bucket("per-client", 3, MINUTE);
    let layer = RateLimitLayer::builder([limit]).clock(clock.source()).build().unwrap();
    let policy = "\"per-client\";q=3;w=60";
    for (remaining, reset) in [("2", "20"), ("1", "40"), ("0", "60")] {
        let standing = format!("\"per-client\";r={remaining};t={reset}");
        assert_eq!(fields(&layer), ["3", remaining, reset, &standing, policy, "", ""]);
    }
    let refused = ["3", "0", "60", "\"per-client\";r=0;t=20", policy, "20", "20"];
    assert_eq!(fields(&layer), refused);
    clock.advance(Duration::from_millis(18_999));
    assert_eq!(fields(&layer)[5], "2", "1.001 s are 2 seconds");
    clock.advance(Duration::from_nanos(1_000_999_999));
    assert_eq!(fields(&layer)[5], "1", "a nanosecond is a second");
    clock.advance(Duration::from_nanos(1));
    assert_eq!(fields(&layer)[..3], ["3", "0", "60"]);
}

#[test]
fn the_limit_closest_to_its_end_is_reported() {
    let layer = layer([
        Limit::fixed_window("a-day", 1_000, DAY),
        Limit::fixed_window("a-minute", 10, MINUTE),
        Limit::concurrency("at-once", 100),
    ]);
    let [limit, remaining, .., policy, _, _] = fields(&layer);
    assert_eq!((limit.as_str(), remaining.as_str()), ("10", "9"));
    let expected =
        "\"a-day\";q=1000;w=86400, \"a-minute\";q=10;w=60, \"at-once\";q=100;qu=\"concurrent-requests\"";
    assert_eq!(policy, expected);
}

#[test]
fn a_larger_bucket_and_short_periods_have_their_policy() {
    let policy = |limit| fields(&layer([limit]))[4].clone();
    assert_eq!(policy(Limit::token_bucket("l", 2, SECOND).burst(12)), "\"l\";q=12;w=6");
    assert_eq!(policy(Limit::fixed_window("l", 10, Duration::from_millis(500))), "\"l\";q=20;w=1");
}

#[test]
fn families_are_chosen() {
    let only = |families| {
        let limit = Limit::fixed_window("l", 1, MINUTE);
        let layer = RateLimitLayer::builder([limit]).headers(families).clock(TestClock::new().source());
        let layer = layer.build().unwrap();
        let present = |fields: [String; 7]| fields.iter().filter(|field| !field.is_empty()).count();
        (present(fields(&layer)), present(fields(&layer)))
    };
    assert_eq!(only(HeaderFamilies::ALL), (5, 7));
    assert_eq!(only(HeaderFamilies::NONE), (0, 0));
    assert_eq!(only(HeaderFamilies::NONE.x_ratelimit()), (3, 4));
    assert_eq!(only(HeaderFamilies::NONE.ietf()), (2, 2));
    assert_eq!(only(HeaderFamilies::NONE.retry_after()), (0, 1));
}

/// A layer behind this one has the limits of a single route, for example.
#[test]
fn headers_of_the_service_stay() {
    use http::{Request, Response};
    use std::convert::Infallible;
    use tower::{Layer, Service};

    let service = tower::service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::builder().header("x-ratelimit-limit", "7").body(String::new()).unwrap())
    });
    let mut service = layer([Limit::fixed_window("l", 5, MINUTE)]).layer(service);
    let response = crate::common::now(service.call(request())).unwrap();
    assert_eq!(field(response.headers(), "x-ratelimit-limit"), "7");
    assert_eq!(field(response.headers(), "x-ratelimit-remaining"), "");
    assert_eq!(field(response.headers(), "ratelimit"), "\"l\";r=4;t=60");
}
