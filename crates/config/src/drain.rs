//! How the gateway goes down.

use std::time::Duration;

/// What happens between the signal to end and the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainConfig {
    /// How long it goes on taking in connections while /readyz already says 503, so that balancers notice.
    pub delay: Duration,
    /// How long it waits for what is open after that.
    pub deadline: Duration,
}

impl Default for DrainConfig {
    fn default() -> Self {
        Self { delay: Duration::ZERO, deadline: Duration::from_secs(30) }
    }
}
