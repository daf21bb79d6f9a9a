//! The outcome of a request.

/// The outcome of a request in the access log and in replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its limits admitted it, or it needs none.
    Admitted,
    /// Its limits, or the access rules of its route, refused it.
    Refused,
    /// It has no route, or is no valid request.
    Unmatched,
}

impl Outcome {
    /// Its name in logs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Refused => "refused",
            Self::Unmatched => "unmatched",
        }
    }
}
