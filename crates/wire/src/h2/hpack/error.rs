//! The error of a decoder.

/// A field block cannot be decoded: a connection error, because the dynamic tables differ from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the field block is malformed")]
pub struct HpackError;
