//! An answer before the request's body has come.

use std::time::Duration;

use http::header;
use http_body::Body;
use http_body_util::BodyExt;

use crate::server::Inbound;
use sluicegate_wire::RequestHead;

/// What a client may send over HTTP/2 before it hears anything, so that a small body ends by itself. Only a larger one is
/// reset.
const MOST_OF_STREAM: u64 = 64 << 10;
/// The time that this may take.
const LONGEST: Duration = Duration::from_secs(10);

/// Leaves the rest of a body: over HTTP/1.1 to its connection, which reads it and throws it away, in bounds, so that the
/// client sees the answer; over HTTP/2 it is read beside the answer, and if it is long the stream is reset alone.
pub fn drain(body: Inbound, parts: &RequestHead) {
    // A client that waits for leave to send its body gets the answer instead.
    if matches!(body, Inbound::Http2(_))
        && !body.is_end_stream()
        && !parts.headers.contains_key(header::EXPECT)
    {
        tokio::task::spawn_local(tokio::time::timeout(LONGEST, read(body)));
    }
}

async fn read(mut body: Inbound) {
    let mut left = MOST_OF_STREAM;
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, |data| data.len() as u64)) {
            Some(rest) => left = rest,
            None => break,
        }
    }
}
