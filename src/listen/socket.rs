//! Listening sockets: one for each worker and address, spread by the kernel.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::ListenerConfig;

/// Connections the kernel keeps for a worker that is busy.
const BACKLOG: i32 = 4096;

/// A socket that listens, for one worker.
pub struct Opened {
    /// The listener's id.
    pub id: String,
    /// The socket.
    pub socket: TcpListener,
}

/// `count` sockets on the listener's address; with `alone`, on one that nobody has yet.
///
/// # Errors
/// When the address cannot be had; the message names it.
pub fn open(listener: &ListenerConfig, count: usize, alone: bool) -> io::Result<Vec<Opened>> {
    let mut address = listener.address;
    let cannot = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot listen on {}: {error}", listener.address))
    };
    // Sockets that share a port would also share it with another gateway, each with counters of its own. One that
    // does not share finds out.
    if alone {
        bind(address, false).map_err(cannot)?;
    }
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = bind(address, true).map_err(cannot)?;
        address = socket.local_addr()?; // port 0 is chosen once
        all.push(Opened { id: listener.id(), socket });
    }
    Ok(all)
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
