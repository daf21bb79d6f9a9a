//! An answer before the request's body has come.

use std::rc::Rc;

use http::request::Parts;

use crate::listen::{Connection, Inbound};

/// Leaves the rest of a body to its connection: over HTTP/1.1 that reads it and throws it away, in bounds, so that the
/// client sees the answer; over HTTP/2 the stream is reset alone.
pub fn drain(_connection: &Rc<Connection>, body: Inbound, _parts: &Parts) {
    drop(body);
}
