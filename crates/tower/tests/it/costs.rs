//! Costs before and after the response.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate_tower::{CostMeter, Limit, MINUTE, RateLimitLayer, ResponseBody, ResponseCost};
use tower::{Layer, Service};

use crate::common::{TestClock, field, layer, now, request, send, status, text, with};

/// The response of a service that puts this into the extensions of its response.
fn answered<T: Clone + Send + Sync + 'static>(
    layer: &RateLimitLayer,
    extension: Option<T>,
) -> Response<ResponseBody<String>> {
    let service = tower::service_fn(move |_: Request<()>| {
        let mut response = Response::new("answer".to_owned());
        if let Some(extension) = extension.clone() {
            response.extensions_mut().insert(extension);
        }
        async { Ok::<_, Infallible>(response) }
    });
    now(layer.layer(service).call(request())).unwrap()
}

fn left(layer: &RateLimitLayer) -> u64 {
    layer.handle().usage("tokens", &()).unwrap().remaining
}

fn tokens() -> Limit {
    Limit::token_bucket("tokens", 1_000, MINUTE).cost(100).late_cost()
}

#[test]
fn a_request_says_its_cost() {
    let cost = |head: &http::request::Parts| {
        head.headers.get("x-cost").and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(1)
    };
    let layer = layer([Limit::token_bucket("tokens", 10, MINUTE).cost_by(cost)]);
    assert_eq!(status(&layer, with(&[("x-cost", "7")])), 200);
    assert_eq!(left(&layer), 3);
    assert_eq!(status(&layer, with(&[("x-cost", "4")])), 429);
    let never = send(&layer, with(&[("x-cost", "11")]));
    assert_eq!((never.status().as_u16(), field(never.headers(), "retry-after")), (429, ""));
    assert!(text(never.into_body()).contains("costs more than the quota can ever hold"));
    assert_eq!(status(&layer, request()), 200);
    assert_eq!(left(&layer), 2, "a refused request is charged nothing");
}

#[test]
fn the_response_says_the_cost() {
    for (cost, expected) in [(40, 960), (100, 900), (450, 550), (0, 1_000)] {
        let layer = layer([tokens()]);
        let response = answered(&layer, Some(ResponseCost(cost)));
        assert_eq!(left(&layer), expected, "{cost}");
        assert_eq!(
            field(response.headers(), "x-ratelimit-remaining"),
            expected.to_string(),
            "after it was settled"
        );
    }
}

#[test]
fn the_reserve_stays_if_no_response_says_a_cost() {
    let layer = layer([tokens()]);
    drop(answered(&layer, None::<ResponseCost>));
    assert_eq!(left(&layer), 900);
    let failing = tower::service_fn(async |_: Request<()>| Err::<Response<String>, _>("no"));
    assert!(now(layer.layer(failing).call(request())).is_err());
    assert_eq!(left(&layer), 800);
    drop(layer.layer(tower::service_fn(crate::common::hello)).call(request()));
    assert_eq!(left(&layer), 700, "a client that goes away does not spend less");
}

#[test]
fn what_is_over_the_limit_is_a_debt() {
    let clock = TestClock::new();
    let layer = RateLimitLayer::builder([tokens()]).clock(clock.source()).build().unwrap();
    drop(answered(&layer, Some(ResponseCost(1_500))));
    let refused = send(&layer, request());
    assert_eq!((refused.status().as_u16(), field(refused.headers(), "retry-after")), (429, "36"));
    clock.advance(Duration::from_nanos(35_999_999_999));
    assert_eq!(status(&layer, request()), 429);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(status(&layer, request()), 200);
}

#[test]
fn a_meter_counts_until_the_body_has_ended() {
    let layer = layer([tokens()]);
    let meter = CostMeter::new();
    let response = answered(&layer, Some(meter.clone()));
    assert_eq!(left(&layer), 900);
    meter.add(200);
    meter.add(50);
    assert_eq!(text(response.into_body()), "answer");
    assert_eq!(left(&layer), 750);
    meter.add(1);
    assert_eq!(left(&layer), 750, "the request has ended");

    drop(answered(&layer, Some(CostMeter::new())));
    assert_eq!(left(&layer), 750, "nothing was sent");
}

#[test]
fn only_failed_logins_count() {
    let logins = Limit::sliding_log("logins", 2, MINUTE)
        .late_cost_by(|response| Some(u64::from(response.status == StatusCode::UNAUTHORIZED)));
    let layer = layer([logins]);
    let login = |status: u16| {
        let service = tower::service_fn(move |_: Request<()>| {
            std::future::ready(Response::builder().status(status).body(String::new()))
        });
        now(layer.layer(service).call(request())).unwrap().status().as_u16()
    };
    assert_eq!([200, 200, 200, 401, 200, 401].map(login), [200, 200, 200, 401, 200, 401]);
    assert_eq!(login(200), 429);
}

#[test]
fn each_limit_has_its_own_cost() {
    let layer = layer([tokens(), Limit::fixed_window("requests", 3, MINUTE)]);
    drop(answered(&layer, Some(ResponseCost(30))));
    assert_eq!(left(&layer), 970);
    assert_eq!(layer.handle().usage("requests", &()).unwrap().remaining, 2);
}
