//! Listening sockets: one for each worker and address; the kernel distributes connections among them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use sluicegate_config::ListenAddress;

/// The most connections in the queue of a socket.
const BACKLOG: i32 = 4096;

/// A listening socket of one worker. That of a Unix socket is a `TcpListener` too: both accept with the same system call, and
/// options of TCP fail on it without harm.
pub struct ListenSocket {
    /// The listener's id.
    pub id: String,
    /// The socket.
    pub socket: TcpListener,
    /// Whether no other process has it, so that its options may be changed.
    pub own: bool,
}

/// How long connections are accepted on a detached socket: TCP handshakes that began on it end within this time.
pub const DETACH_GRACE: Duration = Duration::from_secs(1);

/// Directs new connections to other sockets that listen on the same port. TCP handshakes that began on this socket are completed
/// on it. Returns false, without effect, if the kernel does not support it.
///
/// Without this, connections that arrive between the last accept and the closing of a socket would be reset.
#[cfg(target_os = "linux")]
pub fn detach(socket: &TcpListener) -> bool {
    use std::num::NonZeroU32;

    // No network interface has this index, so no SYN arrives for this socket.
    const NOWHERE: NonZeroU32 = NonZeroU32::new(i32::MAX.cast_unsigned()).expect("not 0");
    socket2::SockRef::from(socket).bind_device_by_index_v4(Some(NOWHERE)).is_ok()
}

/// Directs new connections to other sockets that listen on the same port: not supported by this system.
#[cfg(not(target_os = "linux"))]
pub fn detach(_socket: &TcpListener) -> bool {
    false
}

/// Opens `count` sockets on an address; with `alone`, only if no other socket listens there.
///
/// # Errors
/// If the address is not available; the message names it.
pub fn open(address: SocketAddr, count: usize, alone: bool) -> io::Result<Vec<TcpListener>> {
    let cannot = |error: io::Error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => "another socket has this address".to_owned(),
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("cannot listen on {address}: {why}"))
    };
    // With SO_REUSEPORT, a second gateway could share the port unnoticed, with counters of its own. A socket without the option
    // detects that.
    if alone {
        bind(address, false).map_err(cannot)?;
    }
    let mut chosen = address;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = bind(chosen, true).map_err(cannot)?;
        chosen = socket.local_addr()?; // port 0 is chosen once
        all.push(socket);
    }
    Ok(all)
}

/// Opens a Unix socket at a path, in the place of one that a dead process left.
///
/// # Errors
/// If another process listens there, or the file there is not a socket; the message names the path.
pub fn open_unix(path: &Path) -> io::Result<TcpListener> {
    let cannot = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot listen on unix:{}: {error}", path.display()))
    };
    bind_unix(path).map_err(cannot)
}

fn bind_unix(path: &Path) -> io::Result<TcpListener> {
    let address = SockAddr::unix(path)?;
    let socket = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        Ok::<_, io::Error>(socket)
    };
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file there is not a socket"));
        }
        match socket()?.connect(&address) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // It was accepted, or its queue is full.
            _ => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
        }
    }
    let socket = socket()?;
    socket.bind(&address)?;
    socket.listen(BACKLOG)?;
    Ok(std::os::fd::OwnedFd::from(socket).into())
}

/// Where a socket listens.
///
/// # Errors
/// If it is neither a TCP nor a Unix socket with a path.
pub fn listen_address(socket: &TcpListener) -> io::Result<ListenAddress> {
    let address = SockRef::from(socket).local_addr()?;
    let unix = || address.as_pathname().map(|path| ListenAddress::Unix(path.into()));
    let found = address.as_socket().map(ListenAddress::Tcp).or_else(unix);
    found.ok_or_else(|| io::Error::other("a socket has no address"))
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    if shared {
        socket.listen(BACKLOG)?;
    }
    Ok(socket.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpStream;

    use super::*;

    /// A socket on one address takes precedence over one on all addresses. Detached, it keeps its connections and gets no more.
    #[test]
    fn a_detached_socket_loses_no_connection() {
        let old = open("127.0.0.1:0".parse().unwrap(), 1, true).unwrap().remove(0);
        let address = old.local_addr().unwrap();
        let new = open(SocketAddr::from(([0, 0, 0, 0], address.port())), 1, false).unwrap().remove(0);
        let before = TcpStream::connect(address).unwrap();
        assert!(detach(&old));
        let after = TcpStream::connect(address).unwrap();
        assert_eq!(old.accept().unwrap().1, before.local_addr().unwrap());
        assert_eq!(old.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(new.accept().unwrap().1, after.local_addr().unwrap());
    }
}
