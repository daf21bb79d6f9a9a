//! A hyper server: at most 100 requests a minute of one client, and at most 8 requests of all clients at once.
//!
//! `cargo run -p sluicegate-tower --example hyper`, then `curl -i http://127.0.0.1:3000/`.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use sluicegate_tower::{BuildError, ClientIp, Limit, MINUTE, RateLimitLayer};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceBuilder;

/// The limits.
pub(crate) fn limits() -> Result<RateLimitLayer, BuildError> {
    RateLimitLayer::new([
        Limit::sliding_window("per-client", 100, MINUTE).key(ClientIp::new()),
        Limit::concurrency("in-flight", 8),
    ])
}

async fn hello(_request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new("hello\n".into()))
}

/// Serves one connection. `ClientIp::new` reads the address of the peer from the extensions of the request.
pub(crate) async fn serve(
    stream: TcpStream,
    limits: RateLimitLayer,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let peer = stream.peer_addr()?;
    let service = ServiceBuilder::new()
        .map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            request
        })
        .layer(limits)
        .service_fn(hello);
    let http = hyper::server::conn::http1::Builder::new();
    http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let limits = limits()?;
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    loop {
        let (stream, peer) = listener.accept().await?;
        let served = serve(stream, limits.clone());
        tokio::spawn(async move {
            if let Err(error) = served.await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}
