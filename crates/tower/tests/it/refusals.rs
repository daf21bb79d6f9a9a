//! The responses to refused requests.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as _;
use sluicegate_tower::{HeaderFamilies, Limit, MINUTE, OnMissing, RateLimitLayer, Reason, header};

use crate::common::{TestClock, field, layer, request, send, status, text, with};

fn used_up(limits: impl IntoIterator<Item = Limit>) -> RateLimitLayer {
    let layer = layer(limits);
    assert_eq!(status(&layer, request()), 200);
    layer
}

#[test]
fn a_refusal_is_a_problem_document() {
    let layer = used_up([
        Limit::token_bucket("minute", 1, MINUTE),
        Limit::token_bucket("second", 1, sluicegate_tower::SECOND),
        Limit::token_bucket("roomy", 10, MINUTE),
    ]);
    let refused = send(&layer, request());
    assert_eq!(refused.status().as_u16(), 429);
    assert_eq!(field(refused.headers(), "content-type"), "application/problem+json");
    assert_eq!(field(refused.headers(), "cache-control"), "no-store");
    assert_eq!(field(refused.headers(), "retry-after"), "60", "that of the limit that refuses longest");
    assert_eq!(
        text(refused.into_body()),
        "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
         \"title\":\"Too Many Requests\",\"status\":429,\
         \"detail\":\"the quota is used up; try again in 60 seconds\",\"reason\":\"limit\",\
         \"violated-policies\":[\"minute\",\"second\"],\"retry_after\":60}\n"
    );
    assert_eq!(
        layer.handle().usage("roomy", &()).unwrap().remaining,
        9,
        "a refused request charges no limit"
    );
}

#[test]
fn a_refused_grpc_call_has_a_grpc_status() {
    let layer = used_up([Limit::token_bucket("l", 2, sluicegate_tower::SECOND).cost(2)]);
    for kind in ["application/grpc", "application/grpc+proto", "Application/gRPC; x=y"] {
        let refused = send(&layer, with(&[("content-type", kind)]));
        let headers = refused.headers();
        assert_eq!((refused.status().as_u16(), field(headers, "grpc-status")), (200, "8"), "{kind}");
        assert_eq!(field(headers, "grpc-message"), "rate limit exceeded");
        assert_eq!(field(headers, "grpc-retry-pushback-ms"), "1000");
        assert_eq!(field(headers, "content-type"), "application/grpc");
        assert_eq!((field(headers, "retry-after"), field(headers, "ratelimit")), ("1", "\"l\";r=0;t=1"));
        assert!(refused.body().is_end_stream(), "a response without a message");
    }
    let refused = send(&layer, with(&[("content-type", "application/grpc-web")]));
    assert_eq!(refused.status().as_u16(), 429);
}

#[test]
fn a_denied_request_has_a_challenge() {
    let layer =
        layer([Limit::fixed_window("l", 1, MINUTE).key(header("x-api-key")).on_missing(OnMissing::Deny)]);
    let denied = send(&layer, request());
    assert_eq!(denied.status().as_u16(), 401);
    assert_eq!(field(denied.headers(), "www-authenticate"), "ApiKey");
    assert_eq!(field(denied.headers(), "ratelimit"), "");
    assert!(text(denied.into_body()).contains("\"reason\":\"unauthenticated\""));
    let grpc = send(&layer, with(&[("content-type", "application/grpc")]));
    assert_eq!(
        (field(grpc.headers(), "grpc-status"), field(grpc.headers(), "grpc-retry-pushback-ms")),
        ("16", "-1")
    );
}

#[test]
fn a_hook_makes_the_refusal() {
    let layer = RateLimitLayer::builder([Limit::fixed_window("l", 1, MINUTE)])
        .clock(TestClock::new().source())
        .headers(HeaderFamilies::NONE.retry_after())
        .refusal(|refused| {
            assert_eq!((refused.reason(), refused.violated()), (Reason::Limit, &["l"][..]));
            let (path, seconds) = (refused.request().uri.path(), refused.retry_after_secs().unwrap());
            let body = format!("{} refuses {path} for {seconds} s", refused.limit());
            Response::builder().status(503).body(Bytes::from(body)).unwrap()
        })
        .build()
        .unwrap();
    assert_eq!(status(&layer, request()), 200);
    let refused = send(&layer, Request::get("/a").body(()).unwrap());
    assert_eq!((refused.status().as_u16(), field(refused.headers(), "retry-after")), (503, "60"));
    assert_eq!(refused.body().size_hint().exact(), Some(21));
    assert_eq!(text(refused.into_body()), "l refuses /a for 60 s");
}
