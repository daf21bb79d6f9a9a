//! The JSON of `POST /json`: the request and the response as proto3 writes them.

mod request;
mod response;

pub(crate) use request::object;
pub use request::{MAX_JSON, request};
pub use response::response;
