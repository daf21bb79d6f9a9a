//! Lines that cannot be read.

/// Why a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LineError(pub(crate) String);

pub(super) fn bad<T>(what: impl Into<String>) -> Result<T, LineError> {
    Err(LineError(what.into()))
}
