//! An axum service: each client may send 5 requests at once and then one every 2 seconds, and try 3 passwords a minute.
//!
//! `cargo run -p sluicegate-tower --example axum`, then `curl -i http://127.0.0.1:3000/`.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::routing::{get, post};
use sluicegate_tower::{BuildError, ClientIp, Limit, MINUTE, RateLimitLayer, SECOND};

/// The service. It needs the address of the peer in each request: see `main`.
pub(crate) fn app() -> Result<Router, BuildError> {
    let client = ClientIp::from_extension(|ConnectInfo(peer): &ConnectInfo<SocketAddr>| Some(peer.ip()))
        .trusting(["127.0.0.1", "10.0.0.0/8"]);
    let limits = RateLimitLayer::new([
        Limit::token_bucket("per-client", 1, 2 * SECOND).burst(5).key(client.clone()),
        // Only failed logins count.
        Limit::sliding_log("logins", 3, MINUTE)
            .key(client)
            .late_cost_by(|response| Some(u64::from(response.status == StatusCode::UNAUTHORIZED))),
    ])?;
    Ok(Router::new()
        .route("/", get(async || "hello\n").layer(limits.only(["per-client"])?))
        .route("/login", post(async || StatusCode::UNAUTHORIZED).layer(limits)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app()?.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
