//! Connections to servers that are switched to another protocol (RFC 9110 §7.8), such as WebSocket.

use std::time::Duration;

use bytes::BytesMut;
use http::{Version, header};

use super::connect::ServerStream;
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;
use sluicegate_wire::h1::names_upgrade;

/// The server's side of a tunnel.
pub struct Tunnel {
    /// The connection.
    pub stream: ServerStream,
    /// Bytes that were received after the response head.
    pub received: BytesMut,
    /// The idle timeout.
    pub idle: Duration,
}

/// The protocol that a request asks to switch to. HTTP/2 is excluded: it is spoken with prior knowledge only.
pub(super) fn requested_upgrade(head: &RequestHead) -> Option<Box<[u8]>> {
    let protocol = head.headers.only(header::UPGRADE).filter(|_| head.version == Version::HTTP_11)?;
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(b);
    let is_valid = !protocol.is_empty()
        && protocol.iter().all(is_token)
        && !protocol.to_ascii_lowercase().starts_with(b"h2c");
    (is_valid && names_upgrade(&head.headers)).then(|| protocol.into())
}

/// Sets the headers of a message that asks for a switch of protocols, or accepts it.
pub(super) fn set_upgrade(headers: &mut Headers, protocol: &[u8]) {
    headers.insert(header::CONNECTION, "upgrade");
    headers.insert(header::UPGRADE, protocol);
}
