//! HTTP/2 (RFC 9113), the side of a server.
//!
//! [`Session`] is a connection without its socket: frames of the client come in, events and frames for the client come out.
//! It builds on `frame` (the layout of frames), `stream_table` (open streams), `request_head` (pseudo-header fields and
//! header fields) and [`hpack`] (header compression). `flood_detector` bounds frames that cost their sender nothing;
//! [`FloodLimits`] are its budgets.

mod abort_reason;
mod error;
mod flood_detector;
mod flood_limits;
pub mod frame;
pub mod hpack;
mod reason;
mod request_head;
mod session;
mod stream_table;

pub use self::abort_reason::AbortReason;
pub use self::error::ConnectionError;
pub use self::flood_limits::{BUDGETS, FloodLimits, FrameBudget};
pub use self::reason::Reason;
pub use self::request_head::{HeadLimits, RequestError};
pub use self::session::{BodyFrame, Event, ResponseHead, STREAMS, Session, StreamClosed};
pub use self::stream_table::StreamKey;
