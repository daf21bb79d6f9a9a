//! placeholder

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
