//! A service behind a layer.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response};
use sluicegate_tower::{ClientIp, HeaderFamilies, Limit, RateLimitLayer};
use tower::{Layer, Service};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use crate::{BURST, Contestant, PERIOD};

/// A service that answers at once.
#[derive(Clone)]
pub struct Hello;

impl Service<Request<Body>> for Hello {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<Body>) -> Self::Future {
        ready(Ok(Response::new(Body::empty())))
    }
}

/// Sends each request to a service.
pub struct Served<S>(S);

impl<S, B> Contestant for Served<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    fn decide(&mut self, client: SocketAddr) -> bool {
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(ConnectInfo(client));
        match pin!(self.0.call(request)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(response)) => response.status().is_success(),
            Poll::Pending => false,
        }
    }
}

pub fn bare() -> impl Contestant {
    Served(Hello)
}

fn ours(families: HeaderFamilies) -> impl Contestant {
    let client = ClientIp::from_extension(|ConnectInfo(peer): &ConnectInfo<SocketAddr>| Some(peer.ip()));
    let limit =
        Limit::token_bucket("per-client", 1, PERIOD).burst(BURST.into()).max_keys(10_000_000).key(client);
    let layer = RateLimitLayer::builder([limit]).headers(families).build().expect("a layer");
    Served(layer.layer(Hello))
}

pub fn ours_without_headers() -> impl Contestant {
    ours(HeaderFamilies::NONE)
}

pub fn ours_with_headers() -> impl Contestant {
    ours(HeaderFamilies::NONE.x_ratelimit())
}

pub fn ours_with_all_headers() -> impl Contestant {
    ours(HeaderFamilies::ALL)
}

pub fn theirs_without_headers() -> impl Contestant {
    let mut config = GovernorConfigBuilder::default();
    let config = config.period(PERIOD).burst_size(BURST).finish().expect("a quota");
    Served(GovernorLayer::new(config).layer(Hello))
}

pub fn theirs_with_headers() -> impl Contestant {
    let mut config = GovernorConfigBuilder::default();
    let mut config = config.period(PERIOD).burst_size(BURST).use_headers();
    Served(GovernorLayer::new(config.finish().expect("a quota")).layer(Hello))
}
