//! Listening sockets: one for each worker and address, spread by the kernel.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections the kernel keeps for a worker that is busy.
const BACKLOG: i32 = 4096;

/// A socket that listens, for one worker.
pub struct Opened {
    /// The listener's id.
    pub id: String,
    /// The socket.
    pub socket: TcpListener,
}

/// `count` sockets on an address; with `alone`, on one that nobody has yet.
///
/// # Errors
/// When the address cannot be had; the message names it.
pub fn open(address: SocketAddr, count: usize, alone: bool) -> io::Result<Vec<TcpListener>> {
    let cannot = |error: io::Error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => "another socket has this address".to_owned(),
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("cannot listen on {address}: {why}"))
    };
    // Sockets that share a port would also share it with another gateway, each with counters of its own. One that
    // does not share finds out.
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
