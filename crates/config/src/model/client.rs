//! Limits of client connections, and how they are closed at shutdown.

use std::time::Duration;

use serde::Serialize;

use crate::model::serialize::seconds;

/// Timeouts and bounds of client connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// From a connection to its first byte, and from the first byte of a head to its last.
    pub head: Duration,
    /// For the next bytes of a body.
    pub body: Duration,
    /// Between two requests of a connection.
    pub idle: Duration,
    /// For a client to accept any bytes of a response.
    pub write: Duration,
    /// From a request's head to the last byte of its answer; `None` for no bound.
    pub request: Option<Duration>,
    /// The least bytes a second of a body, on average; 0 for no bound.
    pub min_body_rate: u64,
    /// The least bytes a second at which an answer is taken while some of it waits to be sent; 0 for no bound.
    pub min_send_rate: u64,
    /// Headers of a request.
    pub max_headers: usize,
    /// Bytes of the target of a request.
    pub max_target: usize,
    /// Whether headers with underscores in their names are forwarded.
    pub underscores: bool,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            write: Duration::from_secs(60),
            request: None,
            min_body_rate: 240,
            min_send_rate: 240,
            max_headers: 100,
            max_target: 8 << 10,
            underscores: false,
        }
    }
}

/// Flood limits of an HTTP/2 connection: how many frames of each cheap kind it may send at once. `None` is the
/// default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct H2Config {
    /// Requests that are cancelled early.
    pub resets: Option<u32>,
    /// Requests that the gateway resets because of errors in them.
    pub errors: Option<u32>,
    /// SETTINGS frames.
    pub settings: Option<u32>,
    /// PING frames.
    pub pings: Option<u32>,
    /// Empty DATA frames.
    pub empty_data: Option<u32>,
    /// Heads that are too large after decompression.
    pub large_heads: Option<u32>,
    /// PRIORITY and PRIORITY_UPDATE frames.
    pub priorities: Option<u32>,
    /// WINDOW_UPDATE frames.
    pub window_updates: Option<u32>,
    /// GOAWAY frames and frames of unknown types.
    pub others: Option<u32>,
}

/// The phases of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DrainConfig {
    /// How long new connections are still accepted while /readyz already returns 503, so that load balancers notice.
    #[serde(serialize_with = "seconds")]
    pub delay: Duration,
    /// How long open requests may take after that.
    #[serde(serialize_with = "seconds")]
    pub deadline: Duration,
}

impl Default for DrainConfig {
    fn default() -> Self {
        Self { delay: Duration::ZERO, deadline: Duration::from_secs(30) }
    }
}
