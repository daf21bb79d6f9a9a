//! What a limit did with a request.

use std::sync::Arc;

/// What a limit did with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It admitted the request. Another limit may still have refused it.
    Admitted,
    /// It refused the request.
    Refused,
    /// It would have refused the request, but is in shadow mode.
    ShadowRefused,
    /// The request did not have its key and was not counted.
    Skipped,
    /// The request did not have its key and was refused.
    Denied,
}

impl Outcome {
    /// Its name, for a label of a metric: `admitted`, `refused`, `shadow_refused`, `skipped` or `denied`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Refused => "refused",
            Self::ShadowRefused => "shadow_refused",
            Self::Skipped => "skipped",
            Self::Denied => "denied",
        }
    }

    pub(crate) const fn of(admits: bool, enforced: bool) -> Self {
        match (admits, enforced) {
            (true, _) => Self::Admitted,
            (false, true) => Self::Refused,
            (false, false) => Self::ShadowRefused,
        }
    }
}

/// The names of the limits in shadow mode that would have refused a request: an extension of such requests, for the service
/// behind the layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowRefused(Arc<[Box<str>]>);

impl ShadowRefused {
    pub(crate) fn new(limits: impl Iterator<Item = Box<str>>) -> Self {
        Self(limits.collect())
    }

    /// The names of the limits.
    pub fn limits(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}
