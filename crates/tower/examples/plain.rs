//! Any service of requests and responses, without a server: calls of a model, which cost what their answers say.
//!
//! `cargo run -p sluicegate-tower --example plain`

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use sluicegate_tower::{BuildError, Limit, MINUTE, OnMissing, RateLimitLayer, ResponseCost, header};
use tower::{ServiceBuilder, ServiceExt};

/// A user may spend 1,000 tokens a minute. 100 are reserved before the answer says how many it took.
pub(crate) fn limits() -> Result<RateLimitLayer, BuildError> {
    RateLimitLayer::new([Limit::token_bucket("tokens", 1_000, MINUTE)
        .key(header("x-user"))
        .on_missing(OnMissing::Deny)
        .cost(100)
        .late_cost()])
}

async fn model(_request: Request<()>) -> Result<Response<String>, Infallible> {
    let mut response = Response::new("an answer of 450 tokens".to_owned());
    response.extensions_mut().insert(ResponseCost(450));
    Ok(response)
}

/// Sends a request for this user; returns the status, and the tokens that are left.
pub(crate) async fn ask(
    limits: &RateLimitLayer,
    user: &str,
) -> Result<(StatusCode, u64), Box<dyn std::error::Error>> {
    let service = ServiceBuilder::new().layer(limits.clone()).service_fn(model);
    let response = service.oneshot(Request::builder().header("x-user", user).body(())?).await?;
    let left = limits.handle().usage("tokens", user).ok_or("no such limit")?.remaining;
    Ok((response.status(), left))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = limits()?;
    for user in ["ann", "ann", "ann", "ben"] {
        let (status, left) = ask(&limits, user).await?;
        println!("{user}: {status}, {left} tokens left");
    }
    Ok(())
}
