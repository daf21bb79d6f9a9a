//! Mistakes in limits are found when a layer is built.

use std::time::Duration;

use sluicegate_tower::limiter::{LeakyBucket, Quota, Rate, Span};
use sluicegate_tower::{BuildError, ClientIp, Limit, MINUTE, RateLimitLayer, header};

fn error(limit: Limit) -> String {
    RateLimitLayer::new([limit]).unwrap_err().to_string()
}

#[test]
fn each_mistake_says_what_is_wrong() {
    let bucket = || Limit::token_bucket("l", 10, MINUTE);
    let rate = Rate::new(1, Span::SECOND).unwrap();
    let leaky = Quota::LeakyBucket(LeakyBucket::new(rate, 5, None).unwrap(), rate, 5);
    for (limit, message) in [
        (Limit::token_bucket("l", 0, MINUTE), "limit \"l\": 0 is outside 1 to 1,000,000,000"),
        (bucket().burst(0), "limit \"l\": 0 is outside 1 to 1,000,000,000"),
        (
            Limit::fixed_window("l", 1, Duration::ZERO),
            "limit \"l\": a period of 0s is outside 1ms to 366 days",
        ),
        (Limit::sliding_window("l", 1, MINUTE).slices(0), "limit \"l\": 0 slices are outside 1 to 1000"),
        (Limit::concurrency("l", 1).burst(2), "limit \"l\": concurrency has no burst"),
        (bucket().slices(2), "limit \"l\": token_bucket has no slices"),
        (bucket().strict(), "limit \"l\": token_bucket has no strict"),
        (bucket().count_rejected(), "limit \"l\": token_bucket has no count_rejected"),
        (Limit::concurrency("l", 1).late_cost(), "limit \"l\": concurrency has no late cost"),
        (
            Limit::new("l", leaky),
            "limit \"l\": a leaky_bucket delays requests, which this layer does not do; a token_bucket refuses them",
        ),
        (bucket().cost(11), "limit \"l\": no request can pay a cost of 11, because the limit holds 10"),
        (bucket().max_keys(0), "limit \"l\": max_keys must be at least 1"),
        (bucket().key(header("x y")), "limit \"l\": \"x y\" is not a name of a header"),
        (
            bucket().key((header("x"), ClientIp::new().trusting(["10.0.0.1/8"]))),
            "limit \"l\": \"10.0.0.1/8\" has bits after its prefix: write 10.0.0.0/8",
        ),
        (
            bucket().key(ClientIp::new().ipv6_prefix(129)),
            "limit \"l\": an IPv6 prefix of 129 bits is longer than 128",
        ),
        (
            Limit::token_bucket("a\"b", 1, MINUTE),
            "\"a\\\"b\" is not a name of a limit: write visible ASCII characters without \" and \\",
        ),
    ] {
        assert_eq!(error(limit), message);
    }
}

#[test]
fn names_are_unique_and_known() {
    let two = || [Limit::concurrency("a", 1), Limit::concurrency("b", 1)];
    assert_eq!(RateLimitLayer::new([]).unwrap_err(), BuildError::NoLimits);
    let same = RateLimitLayer::new(two().into_iter().chain(two())).unwrap_err();
    assert_eq!(same, BuildError::SameName("a".to_owned()));
    let layer = RateLimitLayer::new(two()).unwrap();
    assert_eq!(layer.only(["c"]).unwrap_err(), BuildError::UnknownLimit("c".to_owned()));
    assert_eq!(layer.only([]).unwrap_err(), BuildError::NoLimits);
    assert_eq!(format!("{:?}", layer.only(["b"]).unwrap()), "RateLimitLayer { limits: [\"b\"], .. }");
}
