//! A clock that the test sets, requests, and futures that are ready.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use sluicegate_tower::limiter::Time;
use sluicegate_tower::{Limit, RateLimitLayer, ResponseBody};
use tower::{Layer, Service};

/// A clock that stands still until it is advanced. It starts at the beginning of a minute.
#[derive(Clone)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_795_000_020_000_000_000)))
    }

    pub(crate) fn advance(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap(), Ordering::Relaxed);
    }

    pub(crate) fn source(&self) -> impl Fn() -> Time + Send + Sync + use<> {
        let nanos = Arc::clone(&self.0);
        move || Time::from_nanos(nanos.load(Ordering::Relaxed))
    }
}

/// A layer with these limits whose clock stands still.
pub(crate) fn layer(limits: impl IntoIterator<Item = Limit>) -> RateLimitLayer {
    RateLimitLayer::builder(limits).clock(TestClock::new().source()).build().expect("limits")
}

/// A request without headers.
pub(crate) fn request() -> Request<()> {
    Request::new(())
}

/// A request with these headers.
pub(crate) fn with(headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder();
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request")
}

/// A request of this peer.
pub(crate) fn from(peer: &str, mut request: Request<()>) -> Request<()> {
    request.extensions_mut().insert(SocketAddr::new(peer.parse().expect("an address"), 4711));
    request
}

pub(crate) async fn hello(_request: Request<()>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("hello".to_owned()))
}

/// The result of a future that does not wait.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match poll(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits"),
    }
}

pub(crate) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The response of a service that says hello behind the layer.
pub(crate) fn send(layer: &RateLimitLayer, request: Request<()>) -> Response<ResponseBody<String>> {
    now(layer.layer(tower::service_fn(hello)).call(request)).expect("the service does not fail")
}

/// The status of that response.
pub(crate) fn status(layer: &RateLimitLayer, request: Request<()>) -> u16 {
    send(layer, request).status().as_u16()
}

/// The value of a header; empty if there is none.
pub(crate) fn field<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().expect("text"))
}

/// The text of a body.
pub(crate) fn text<B>(body: B) -> String
where
    B: http_body::Body<Data = bytes::Bytes>,
    B::Error: std::fmt::Debug,
{
    let collected = now(http_body_util::BodyExt::collect(body)).expect("a body");
    String::from_utf8(collected.to_bytes().to_vec()).expect("text")
}
