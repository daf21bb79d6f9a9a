//! Addresses that no other process takes between choosing and using them.

use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

/// A free address on the loopback interface, reserved by a socket that is bound but does not listen: the kernel does not
/// choose its port for others, and connections are refused until a server listens there.
pub struct ReservedPort {
    pub address: SocketAddr,
    _holder: Socket,
}

impl ReservedPort {
    pub fn new() -> Self {
        let holder = bound(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = holder.local_addr().unwrap().as_socket().unwrap();
        Self { address, _holder: holder }
    }

    /// Listens on the address. Connections that come at the same time are not lost on a busy machine: the kernel keeps as
    /// many as it may until they are accepted.
    pub fn listen(&self) -> TcpListener {
        let socket = bound(self.address);
        socket.listen(i32::MAX).unwrap();
        socket.into()
    }
}

fn bound(address: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket
}
