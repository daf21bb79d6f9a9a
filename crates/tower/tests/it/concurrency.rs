//! A place of a concurrency limit is free again however its request ends.

use std::convert::Infallible;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use sluicegate_tower::{Limit, RateLimitLayer};
use tower::{Layer, Service};

use crate::common::{layer, now, poll, request, status};

fn one_at_once() -> RateLimitLayer {
    layer([Limit::concurrency("at-once", 1)])
}

fn is_free(layer: &RateLimitLayer) -> bool {
    layer.handle().usage("at-once", &()).unwrap().remaining == 1
}

/// A body of these frames; `None` is an error.
struct Frames(Vec<Option<Frame<Bytes>>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if self.0.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(self.0.remove(0).ok_or("broken")))
    }
}

fn data() -> Option<Frame<Bytes>> {
    Some(Frame::data(Bytes::from_static(b"x")))
}

/// The body of a response that holds the only place of the layer.
fn body(layer: &RateLimitLayer, frames: Vec<Option<Frame<Bytes>>>) -> Pin<Box<impl Body<Data = Bytes>>> {
    let mut frames = Some(frames);
    let service = tower::service_fn(move |_: Request<()>| {
        let body = Frames(frames.take().expect("one request"));
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let response = now(layer.layer(service).call(request())).unwrap();
    assert!(response.status().is_success() && !is_free(layer));
    Box::pin(response.into_body())
}

fn next(body: &mut Pin<Box<impl Body>>) -> bool {
    let polled = body.as_mut().poll_frame(&mut Context::from_waker(std::task::Waker::noop()));
    matches!(polled, Poll::Ready(Some(Ok(_))))
}

#[test]
fn a_second_request_is_refused_for_one_second() {
    let layer = one_at_once();
    let mut waiting = Box::pin(layer.layer(tower::service_fn(forever)).call(request()));
    assert!(poll(waiting.as_mut()).is_pending());
    let refused = crate::common::send(&layer, request());
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].as_bytes()), (429, &b"1"[..]));
    drop(waiting);
    assert_eq!([status(&layer, request()), status(&layer, request())], [200, 200]);
}

async fn forever(_request: Request<()>) -> Result<Response<String>, Infallible> {
    pending().await
}

#[test]
fn when_the_body_has_ended() {
    let layer = one_at_once();
    let mut body = body(&layer, vec![data()]);
    assert!(next(&mut body) && !is_free(&layer));
    assert!(!next(&mut body) && is_free(&layer), "the body is still there");
}

#[test]
fn when_the_body_ends_with_trailers() {
    let layer = one_at_once();
    let mut body = body(&layer, vec![data(), Some(Frame::trailers(HeaderMap::new()))]);
    assert!(next(&mut body) && next(&mut body) && !next(&mut body));
    assert!(is_free(&layer));
}

#[test]
fn when_the_body_is_dropped_early() {
    let layer = one_at_once();
    let mut body = body(&layer, vec![data(), data()]);
    assert!(next(&mut body) && !is_free(&layer));
    drop(body);
    assert!(is_free(&layer));
}

#[test]
fn when_the_body_fails() {
    let layer = one_at_once();
    let mut body = body(&layer, vec![data(), None]);
    assert!(next(&mut body) && !next(&mut body));
    assert!(is_free(&layer));
}

#[test]
fn when_the_future_is_dropped() {
    let layer = one_at_once();
    let mut service = layer.layer(tower::service_fn(forever));
    drop(service.call(request()));
    assert!(is_free(&layer), "also one that was never polled");
    let mut future = Box::pin(service.call(request()));
    assert!(poll(future.as_mut()).is_pending() && !is_free(&layer));
    drop(future);
    assert!(is_free(&layer));
}

#[test]
fn when_the_service_fails() {
    let layer = one_at_once();
    let service = tower::service_fn(async |_: Request<()>| Err::<Response<String>, _>("no"));
    assert_eq!(
        now(layer.layer(service).call(request())).unwrap_err(),
        "no",
        "the error is that of the service"
    );
    assert!(is_free(&layer));
}

#[test]
fn when_the_service_panics() {
    let layer = one_at_once();
    let service = tower::service_fn(async |_: Request<()>| -> Result<Response<String>, Infallible> {
        panic!("on purpose");
    });
    let mut service = layer.layer(service);
    let panicked = catch_unwind(AssertUnwindSafe(|| now(service.call(request()))));
    assert!(panicked.is_err() && is_free(&layer));

    let at_once =
        tower::service_fn(|_: Request<()>| -> std::future::Ready<Result<Response<String>, Infallible>> {
            panic!("on purpose");
        });
    let mut service = layer.layer(at_once);
    let panicked = catch_unwind(AssertUnwindSafe(|| drop(service.call(request()))));
    assert!(panicked.is_err() && is_free(&layer));
}

#[test]
fn when_another_limit_refuses() {
    let layer =
        layer([Limit::concurrency("at-once", 1), Limit::fixed_window("l", 1, sluicegate_tower::MINUTE)]);
    assert_eq!([status(&layer, request()), status(&layer, request())], [200, 429]);
    assert!(is_free(&layer));
}
