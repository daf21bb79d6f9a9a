//! What connections of HTTP/2 may send.

/// For each kind of frame that costs its sender little: how many of them a connection may send at once. `None` stands
/// for the default.
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
