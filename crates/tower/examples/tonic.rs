//! A tonic server: each client may call twice at once, and then once every 2 seconds. A refused call gets RESOURCE_EXHAUSTED.
//!
//! `cargo run -p sluicegate-tower --example tonic`

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use sluicegate_tower::{BuildError, ClientIp, Limit, RateLimitLayer, SECOND};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

/// A service as tonic generates them from a .proto file: here by hand, and with one reply for all methods.
#[derive(Clone)]
pub(crate) struct Greeter;

impl NamedService for Greeter {
    const NAME: &'static str = "Greeter";
}

impl tower::Service<Request<Body>> for Greeter {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<Body>) -> Self::Future {
        // A message of 7 bytes, not compressed: field 1 is the text "hello".
        let message = Full::new(Bytes::from_static(b"\0\0\0\0\x07\x0a\x05hello"));
        let trailers = HeaderMap::from_iter([(tonic::Status::GRPC_STATUS, HeaderValue::from_static("0"))]);
        let mut response = Response::new(Body::new(message.with_trailers(ready(Some(Ok(trailers))))));
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        ready(Ok(response))
    }
}

/// The limits.
pub(crate) fn limits() -> Result<RateLimitLayer, BuildError> {
    let client = ClientIp::from_extension(|info: &TcpConnectInfo| Some(info.remote_addr()?.ip()));
    RateLimitLayer::new([Limit::token_bucket("per-client", 1, 2 * SECOND).burst(2).key(client)])
}

/// Serves until the task is dropped.
pub(crate) async fn serve(incoming: TcpIncoming) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tonic::transport::Server::builder()
        .layer(limits()?)
        .add_service(Greeter)
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    serve(TcpIncoming::bind(([127, 0, 0, 1], 50051).into())?).await
}
