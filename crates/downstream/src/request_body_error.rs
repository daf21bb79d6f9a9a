//! Why the body of a request is incomplete.

/// Why a body is incomplete. The client is the cause in all cases.
#[derive(Debug, thiserror::Error)]
pub enum RequestBodyError {
    /// Its framing violates RFC 9112 §7.
    #[error("{0}")]
    Malformed(&'static str),
    /// The client closed the connection before the end.
    #[error("the connection ended within the body")]
    BrokenOff,
    /// It came slower than the minimum rate.
    #[error("the body arrived too slowly")]
    Slow,
    /// The stream was reset or is malformed.
    #[error("the stream was reset or closed")]
    Http2,
}
