//! HTTP messages as a gateway needs them: bytes in, events and bytes out.
//!
//! * [`headers`]: the header fields of a message in one piece of text; [`RequestTarget`], [`RequestHead`]
//! * [`h1`]: HTTP/1.1 (RFC 9112): request heads, response heads, body framing in both directions
//! * [`h2`]: HTTP/2 (RFC 9113) for the server side: [`h2::Session`] is a connection without its socket; HPACK; flood detection
//! * [`proxy_protocol`]: PROXY headers, versions 1 and 2
//!
//! Nothing here opens a socket, spawns a task or reads a clock: times are arguments. Decoders are strict: a message that
//! receivers could read in several ways is refused. They never panic, whatever a peer sends, and bound what they buffer.
//! Start reading at [`h1::RequestDecoder`] and [`h2::Session`].

pub mod h1;
pub mod h2;
pub mod headers;
mod message;
pub mod number;
pub mod proxy_protocol;
mod target;
pub mod trailers;

pub use self::headers::Headers;
pub use self::message::{HeadError, RequestHead};
pub use self::target::RequestTarget;
