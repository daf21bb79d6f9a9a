//! What systemd is told (sd_notify(3)): that the gateway serves, that it ends.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// It serves: what waits for it may start.
pub(super) const READY: &str = "READY=1";
/// It drains.
pub(super) const STOPPING: &str = "STOPPING=1";

/// Tells systemd, if it wants to hear.
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
    socket.set_nonblocking(true)?; // the gateway does not wait for who does not listen
    socket.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}
