//! Why the connection of an HTTP/2 client is aborted.

/// Why the connection of an HTTP/2 client was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortReason {
    /// It cancelled too many requests before they were answered.
    Resets,
    /// Too many of its streams were refused or reset for errors of the client.
    Errors,
    /// It sent too many SETTINGS.
    Settings,
    /// It sent too many PINGs.
    Pings,
    /// It sent too many empty DATA frames.
    EmptyData,
    /// It sent too many heads that are too large.
    LargeHeads,
    /// It sent too many PRIORITY or PRIORITY_UPDATE frames.
    Priorities,
    /// It sent too many WINDOW_UPDATE frames for the data that it received.
    WindowUpdates,
    /// It sent too many frames of other types.
    Others,
    /// It did not complete a frame, or did not read responses, in time.
    Slow,
    /// Its frames were not HTTP/2, or a flood within a single head.
    Protocol,
}

impl AbortReason {
    /// The names of the reasons in the order of the variants, as metrics and configuration call them.
    pub const NAMES: [&str; 11] = [
        "resets",
        "errors",
        "settings",
        "pings",
        "empty_data",
        "large_heads",
        "priorities",
        "window_updates",
        "others",
        "slow",
        "protocol",
    ];
}
