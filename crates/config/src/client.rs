//! What clients may take their time for, and how much they may send.

use std::time::Duration;

/// Times and bounds of the connections of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// From a connection to its first byte, and from the first byte of a head to its last.
    pub head: Duration,
    /// For the next bytes of a body.
    pub body: Duration,
    /// Between two requests of a connection.
    pub idle: Duration,
    /// For a client to take any of an answer.
    pub write: Duration,
    /// From a request's head to the last byte of its answer; `None` for no bound.
    pub request: Option<Duration>,
    /// The least bytes a second of a body, on average; 0 for no bound.
    pub min_body_rate: u64,
    /// The least bytes a second at which an answer is taken while some of it waits to be sent; 0 for no bound.
    pub min_send_rate: u64,
    /// Headers of a request.
    pub max_headers: usize,
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
            underscores: false,
        }
    }
}
