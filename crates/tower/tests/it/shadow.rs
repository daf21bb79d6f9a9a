//! Shadow mode, and what the observer is told.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use sluicegate_tower::{Limit, MINUTE, OnMissing, RateLimitLayer, ShadowRefused, header};
use tower::{Layer, Service};

use crate::common::{TestClock, field, layer, now, request, send, status};

type Seen = Arc<Mutex<Vec<String>>>;

fn observed(limits: impl IntoIterator<Item = Limit>) -> (RateLimitLayer, Seen) {
    let seen = Seen::default();
    let to = Arc::clone(&seen);
    let layer = RateLimitLayer::builder(limits)
        .clock(TestClock::new().source())
        .observer(move |limit, outcome| to.lock().unwrap().push(format!("{limit} {}", outcome.name())))
        .build()
        .unwrap();
    (layer, seen)
}

fn taken(seen: &Seen) -> Vec<String> {
    std::mem::take(&mut *seen.lock().unwrap())
}

#[test]
fn a_limit_in_shadow_mode_refuses_nobody_and_is_reported() {
    let (layer, seen) = observed([
        Limit::fixed_window("tried", 1, MINUTE).shadow(),
        Limit::fixed_window("enforced", 3, MINUTE),
    ]);
    let service = tower::service_fn(async |request: Request<()>| {
        let names = request.extensions().get::<ShadowRefused>().map(|refused| {
            let names: Vec<&str> = refused.limits().collect();
            names.join(",")
        });
        Ok::<_, Infallible>(Response::new(names.unwrap_or_default()))
    });
    let mut service = layer.layer(service);
    let mut ask = || crate::common::text(now(service.call(request())).unwrap().into_body());
    assert_eq!(ask(), "");
    assert_eq!(taken(&seen), ["tried admitted", "enforced admitted"]);
    assert_eq!(ask(), "tried");
    assert_eq!(taken(&seen), ["tried shadow_refused", "enforced admitted"]);
    let response = send(&layer, request());
    assert_eq!(field(response.headers(), "ratelimit-policy"), "\"enforced\";q=3;w=60");
    assert_eq!(field(response.headers(), "x-ratelimit-limit"), "3");
    taken(&seen);
    assert_eq!(status(&layer, request()), 429);
    assert_eq!(taken(&seen), ["tried shadow_refused", "enforced refused"]);
}

#[test]
fn a_layer_in_shadow_mode_sends_no_headers() {
    let layer = layer([Limit::fixed_window("tried", 1, MINUTE).shadow()]);
    for _ in 0..2 {
        let response = send(&layer, request());
        assert!(response.status().is_success() && response.headers().is_empty());
    }
}

#[test]
fn shadow_mode_denies_nobody() {
    let (layer, seen) = observed([Limit::fixed_window("tried", 1, MINUTE)
        .key(header("x-api-key"))
        .on_missing(OnMissing::Deny)
        .shadow()]);
    assert_eq!(status(&layer, request()), 200);
    assert_eq!(taken(&seen), ["tried shadow_refused"]);
}

#[test]
fn requests_that_are_skipped_or_denied_are_told() {
    let limit = |name: &str, on_missing| {
        Limit::fixed_window(name, 1, MINUTE).key(header("x-api-key")).on_missing(on_missing)
    };
    let (layer, seen) = observed([limit("skips", OnMissing::Skip), limit("denies", OnMissing::Deny)]);
    assert_eq!(status(&layer, request()), 401);
    assert_eq!(taken(&seen), ["skips skipped", "denies denied"]);
}

#[test]
fn a_limit_applies_to_the_requests_of_its_condition() {
    let (layer, seen) =
        observed([Limit::fixed_window("gets", 1, MINUTE).when(|head| head.method == Method::GET)]);
    assert_eq!([status(&layer, request()), status(&layer, request())], [200, 429]);
    taken(&seen);
    let post = Request::post("/").body(()).unwrap();
    let response = send(&layer, post);
    assert!(response.status().is_success() && response.headers().is_empty());
    assert_eq!(taken(&seen), [""; 0]);
}
