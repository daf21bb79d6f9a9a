//! Addresses that nobody else takes between choosing them and using them.

use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

/// A free address on the loopback interface, kept by a socket that is bound and does not listen: the kernel
/// gives its port to nobody who asks for any, and connecting to it is refused until somebody listens there.
pub struct ReservedPort {
    pub address: SocketAddr,
    _holder: Socket,
}

impl ReservedPort {
    pub fn new() -> Self {
        let holder = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        holder.set_reuse_address(true).unwrap();
        holder.set_reuse_port(true).unwrap();
        holder.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let address = holder.local_addr().unwrap().as_socket().unwrap();
        Self { address, _holder: holder }
    }
}
