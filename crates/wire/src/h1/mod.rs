//! HTTP/1.1 (RFC 9112): heads of requests and responses, and the framing of bodies in both directions.
//!
//! [`RequestDecoder`] reads what clients send, [`ResponseDecoder`] what upstreams answer; [`BodyDecoder`] reads the bodies
//! of both. [`mod@write`] writes heads, [`MessageEncoder`] writes a message with its body.

mod body_decoder;
mod message_encoder;
mod request;
mod response;
pub mod write;

pub use self::body_decoder::{BodyDecoder, ChunkPart, Decoded};
pub use self::message_encoder::{BodyError, BodyFraming, LengthMismatch, MessageEncoder};
pub use self::request::{Request, RequestDecoder, ResponseTerms};
pub use self::response::{Response, ResponseDecoder, ResponseHead, names_upgrade, response_body, status_of};
