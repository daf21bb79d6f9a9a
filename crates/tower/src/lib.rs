//! A tower layer that limits requests.
//!
//! A [`RateLimitLayer`] has one or more [`Limit`]s. All of them are one decision: a request is admitted only if each limit that
//! applies to it admits it, and a request that is refused is charged to none. Clones of the layer, and all services behind it, share
//! its counters.
//!
//! ```
//! use sluicegate_tower::{ClientIp, Limit, MINUTE, RateLimitLayer};
//!
//! let limit = Limit::token_bucket("per-client", 100, MINUTE).burst(20).key(ClientIp::new());
//! let layer = RateLimitLayer::new([limit])?;
//! # Ok::<(), sluicegate_tower::BuildError>(())
//! ```
//!
//! # Keys
//!
//! A limit counts each [`Key`] separately: the [address of the client](ClientIp), a [`header`], an [`extension`] of the request, or what
//! a [closure](Limit::key_by) returns. A tuple is one key of several parts; [`Key::or`] is the first that a request has. What
//! becomes of requests without the key says [`OnMissing`]; by default they share one counter.
//!
//! The address of the peer is not part of a request. A server puts it into the extensions, each in its own way:
//!
//! | server | key |
//! | --- | --- |
//! | axum, with `into_make_service_with_connect_info::<SocketAddr>()` | `ClientIp::from_extension(\|ConnectInfo(peer): &ConnectInfo<SocketAddr>\| Some(peer.ip()))` |
//! | tonic | `ClientIp::from_extension(\|info: &TcpConnectInfo\| Some(info.remote_addr()?.ip()))` |
//! | others, which insert a `SocketAddr` | `ClientIp::new()` |
//!
//! If the extension is missing, all clients share one counter. Behind proxies, name them with [`ClientIp::trusting`]; otherwise all
//! clients of a proxy are one.
//!
//! # Costs
//!
//! A request costs 1, or what [`Limit::cost`] and [`Limit::cost_by`] say. With [`Limit::late_cost`] that is a reserve, and the
//! response says the cost: the service puts [`ResponseCost`] into its extensions, or a [`CostMeter`] if the cost is known only when the
//! body has been sent.
//!
//! ```
//! use sluicegate_tower::{Limit, MINUTE, RateLimitLayer, ResponseCost, header};
//! # async fn model(_: http::Request<()>) -> Result<http::Response<String>, std::convert::Infallible> {
//! let mut response = http::Response::new("an answer of 450 tokens".to_owned());
//! response.extensions_mut().insert(ResponseCost(450));
//! # Ok(response)
//! # }
//!
//! let tokens = Limit::token_bucket("tokens", 10_000, MINUTE).key(header("x-user")).cost(100).late_cost();
//! let layer = RateLimitLayer::new([tokens])?;
//! # Ok::<(), sluicegate_tower::BuildError>(())
//! ```
//!
//! # Answers
//!
//! Responses carry the [families of headers](HeaderFamilies) that the layer has. They report the limit closest to its end, or the one
//! that refuses longest. A refused request gets [`Refused::response`], or what the [hook](Builder::refusal) makes. The error of
//! the service is never used for a refusal.
//!
//! # Operation
//!
//! The [observer](Builder::observer) is told what each limit did with each request. [Shadow mode](Limit::shadow) tries a limit
//! without refusing anybody. A [`Handle`] shows what a key has left, and resets it. The number of keys is
//! [bounded](Limit::max_keys); nothing has to be cleaned.
//!
//! The time comes from a [`Clock`], so that tests need not wait:
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use sluicegate_tower::limiter::Time;
//! use sluicegate_tower::{Limit, MINUTE, RateLimitLayer};
//!
//! let nanos = Arc::new(AtomicU64::new(1_720_000_800_000_000_000));
//! let clock = Arc::clone(&nanos);
//! let layer = RateLimitLayer::builder([Limit::token_bucket("all", 1, MINUTE)])
//!     .clock(move || Time::from_nanos(clock.load(Ordering::Relaxed)))
//!     .build()?;
//! nanos.fetch_add(1_000_000_000, Ordering::Relaxed); // a second later
//! # Ok::<(), sluicegate_tower::BuildError>(())
//! ```
//!
//! Start reading in `decide.rs`; then `service.rs` (the layer around a service) and `ending.rs` (what a request gives back).

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod body;
mod built;
mod client_ip;
mod clock;
mod decide;
mod ending;
mod error;
mod families;
mod handle;
mod headers;
mod key;
mod layer;
mod limit;
mod network;
mod numbers;
mod outcome;
mod refusal;
mod service;

use std::time::Duration;

pub use body::ResponseBody;
pub use client_ip::ClientIp;
pub use clock::{Clock, SystemClock};
pub use ending::CostMeter;
pub use error::BuildError;
pub use families::HeaderFamilies;
pub use handle::Handle;
pub use key::{Extension, Header, Key, KeyHasher, Or, extension, header};
pub use layer::{Builder, RateLimitLayer};
pub use limit::{Limit, OnMissing, ResponseCost};
pub use outcome::{Outcome, ShadowRefused};
pub use refusal::{Reason, Refused};
pub use service::{RateLimit, ResponseFuture};
pub use sluicegate_limiter as limiter;

/// One second.
pub const SECOND: Duration = Duration::from_secs(1);
/// One minute.
pub const MINUTE: Duration = Duration::from_secs(60);
/// One hour.
pub const HOUR: Duration = Duration::from_secs(3_600);
/// 24 hours.
pub const DAY: Duration = Duration::from_secs(86_400);
