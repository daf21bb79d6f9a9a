//! The documented examples of tower_governor, ported: the README of this crate compares their lines.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::routing::get;
use http::{Method, Request, Response};
use sluicegate_tower::{ClientIp, Limit, OnMissing, RateLimitLayer, SECOND};
use tower::{Layer, ServiceExt};

use crate::common::{TestClock, field, from, hello, now};

fn client() -> ClientIp {
    ClientIp::from_extension(|ConnectInfo(peer): &ConnectInfo<SocketAddr>| Some(peer.ip()))
}

fn app(layer: RateLimitLayer) -> Router {
    Router::new().route("/", get(async || "Hello world").post(async || "posted")).layer(layer)
}

/// Sends a request of this peer, and returns the response.
fn send(app: &Router, peer: &str, request: http::request::Builder) -> Response<Body> {
    let mut request = request.body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 4711)));
    now(app.clone().oneshot(request)).unwrap()
}

fn statuses<const N: usize>(app: &Router, request: fn() -> http::request::Builder) -> [u16; N] {
    [(); N].map(|()| send(app, "192.0.2.1", request()).status().as_u16())
}

/// README and examples/src/basic.rs: 5 requests at once, then one every 2 seconds, by address.
#[test]
fn basic() {
    let clock = TestClock::new();
    let limit = Limit::token_bucket("per-client", 1, 2 * SECOND).burst(5).key(client());
    let app = app(RateLimitLayer::builder([limit]).clock(clock.source()).build().unwrap());
    assert_eq!(statuses(&app, || Request::get("/")), [200, 200, 200, 200, 200, 429]);
    assert_eq!(send(&app, "192.0.2.2", Request::get("/")).status(), 200);
    clock.advance(2 * SECOND);
    assert_eq!(statuses(&app, || Request::get("/")), [200, 429]);
}

/// The presets `default` (8 at once, one every 500 ms) and `secure` (2 at once, one every 4 seconds).
#[test]
fn presets() {
    for (limit, at_once) in [
        (Limit::token_bucket("default", 1, Duration::from_millis(500)).burst(8), 8),
        (Limit::token_bucket("secure", 1, 4 * SECOND).burst(2), 2),
    ] {
        let app = app(crate::common::layer([limit.key(client())]));
        let admitted =
            statuses::<10>(&app, || Request::get("/")).iter().filter(|status| **status == 200).count();
        assert_eq!(admitted, at_once);
    }
}

/// examples/src/custom_key_bearer.rs: by bearer token, 401 without one, with headers.
#[test]
fn custom_key_bearer() {
    let token = |head: &http::request::Parts| {
        head.headers.get("authorization")?.to_str().ok()?.strip_prefix("Bearer ").map(str::to_owned)
    };
    let limit = Limit::token_bucket("per-token", 1, 20 * SECOND).burst(5).key_by(token);
    let app = app(crate::common::layer([limit.on_missing(OnMissing::Deny)]));
    let of_ann = || Request::get("/").header("authorization", "Bearer ann");
    assert_eq!(statuses(&app, of_ann), [200, 200, 200, 200, 200, 429]);
    let of_ben = send(&app, "192.0.2.1", Request::get("/").header("authorization", "Bearer ben"));
    assert_eq!((of_ben.status().as_u16(), field(of_ben.headers(), "x-ratelimit-remaining")), (200, "4"));
    assert_eq!(send(&app, "192.0.2.1", Request::get("/")).status(), 401);
}

/// The README without axum: the peer is a `SocketAddr` in the extensions of a request.
#[test]
fn without_axum() {
    let layer = crate::common::layer([Limit::token_bucket("l", 1, SECOND).key(ClientIp::new())]);
    let service = layer.layer(tower::service_fn(hello));
    let request = || from("127.0.0.1", Request::new(()));
    let statuses = [(); 2].map(|()| now(service.clone().oneshot(request())).unwrap().status().as_u16());
    assert_eq!(statuses, [200, 429]);
}

/// `methods`: only GET counts.
#[test]
fn methods() {
    let limit = Limit::token_bucket("gets", 1, Duration::from_millis(90)).burst(2).key(client());
    let app = app(crate::common::layer([limit.when(|head| head.method == Method::GET)]));
    assert_eq!(statuses(&app, || Request::get("/")), [200, 200, 429]);
    assert_eq!(statuses(&app, || Request::post("/")), [200, 200, 200]);
}

/// Different quotas of different routes, and `GlobalKeyExtractor`.
#[test]
fn quotas_of_routes() {
    let slow = crate::common::layer([Limit::token_bucket("slow", 1, 4 * SECOND).burst(2).key(client())]);
    let all = crate::common::layer([Limit::token_bucket("all", 1, SECOND).burst(5)]);
    let app = Router::new()
        .route("/slow", get(async || "slow").layer(slow))
        .route("/", get(async || "fast"))
        .layer(all);
    assert_eq!(statuses(&app, || Request::get("/slow")), [200, 200, 429]);
    assert_eq!(statuses(&app, || Request::get("/")), [200, 200, 429]);
}

/// `error_handler`.
#[test]
fn error_handler() {
    let layer = RateLimitLayer::builder([Limit::token_bucket("l", 1, SECOND).key(client())])
        .clock(TestClock::new().source())
        .refusal(|_| Response::builder().status(420).body(Bytes::from("calm down")).unwrap())
        .build()
        .unwrap();
    let app = app(layer);
    assert_eq!(statuses(&app, || Request::get("/")), [200, 420]);
    let refused = send(&app, "192.0.2.1", Request::get("/"));
    assert_eq!(crate::common::text(refused.into_body()), "calm down");
}
