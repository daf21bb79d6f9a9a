//! An answer before the request's body has come: the rest is read for a while, because closing a connection
//! with unread data resets it, and the client would never see the answer.

use http::header;
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use std::rc::Rc;
use std::time::Duration;

use crate::listen::Connection;

/// Bytes that are read and thrown away.
const MOST: u64 = 16 << 20;
/// The same over HTTP/2, where the connection goes on: what a client may send before it hears anything, so that a small
/// body ends by itself. Only a larger one is reset.
const MOST_OF_STREAM: u64 = 64 << 10;
/// The time that this may take.
const LONGEST: Duration = Duration::from_secs(10);

/// Reads what is left of `body` beside the answer.
pub fn drain(connection: &Rc<Connection>, body: Incoming, parts: &Parts) {
    // A client that waits for leave to send its body gets the answer instead.
    if !parts.headers.contains_key(header::EXPECT) {
        drain_rest(connection, body);
    }
}

/// Reads what is left of a body that the client is already sending.
pub fn drain_rest(connection: &Rc<Connection>, mut body: Incoming) {
    if body.is_end_stream() {
        return;
    }
    let connection = Rc::clone(connection);
    let most = if connection.shared { MOST_OF_STREAM } else { MOST };
    let rest = async move {
        let mut left = most;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, |data| data.len() as u64);
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    tokio::task::spawn_local(async move {
        let bounded = tokio::time::timeout(LONGEST, rest);
        connection.body_begins();
        let _ = bounded.await; // out of time, the body is dropped, and the connection with it
        connection.body_ends();
    });
}
