//! Notifies systemd that the gateway serves, and that it ends (sd_notify(3)).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The gateway serves: units that depend on it may start.
pub(super) const READY: &str = "READY=1";
/// The gateway drains.
pub(super) const STOPPING: &str = "STOPPING=1";

/// Notifies systemd, if `NOTIFY_SOCKET` is set.
pub(super) fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!("cannot tell systemd `{state}`: {error}");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?; // a full queue must not block the gateway
    socket.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}
