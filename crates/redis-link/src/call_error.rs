//! Why a call to Redis has no result.

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The server has not executed it.
    Unsent(String),
    /// It was sent; whether the server has executed it, or will, is not known.
    Unanswered(String),
    /// The server answered with an error.
    Refused(String),
}
