//! The listening sockets, whoever opened them: this process, systemd, or the gateway before this one.
//!
//! The workers have their own handles of them. Those here are what is handed over, and have to be dropped before the
//! workers close theirs: a socket listens as long as anybody has it.

use std::io;
use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;
use socket2::SockRef;

use crate::server::{self, ListenSocket};
use sluicegate_config::ListenerConfig;

/// All sockets of the process.
#[derive(Default)]
pub(super) struct Sockets {
    listeners: Vec<Held>,
    admin: Option<(SocketAddr, TcpListener)>,
    /// From systemd, which keeps them too.
    activated: Vec<TcpListener>,
    /// From the gateway before this one; empty when this one serves.
    handed_over: Vec<TcpListener>,
}

/// The sockets of a listener.
pub(super) struct Held {
    id: String,
    address: SocketAddr,
    sockets: Vec<TcpListener>,
    /// Each with the worker that serves on it.
    shares: Vec<(usize, ListenSocket)>,
    /// Whether systemd has them too.
    activated: bool,
}

impl Sockets {
    /// Sockets that others opened: those of systemd, as the environment says, and those of a predecessor.
    ///
    /// Call it before there is another thread: it changes the environment.
    pub(super) fn given(handed_over: Vec<TcpListener>) -> io::Result<Self> {
        let mut sockets = Self { handed_over, ..Self::default() };
        let mut passed = ListenFd::from_env();
        for index in 0..passed.len() {
            let socket = passed.take_tcp_listener(index)?;
            sockets.activated.extend(socket);
        }
        for socket in sockets.activated.iter().chain(&sockets.handed_over) {
            if !SockRef::from(socket).is_listener()? {
                return Err(io::Error::other("a socket that was passed does not listen"));
            }
            socket.set_nonblocking(true)?;
        }
        Ok(sockets)
    }

    /// Sockets for a listener that has none yet, for so many workers. With `alone` nobody else may have its address,
    /// except those who gave theirs to this process.
    pub(super) fn open(&self, listener: &ListenerConfig, workers: usize, alone: bool) -> io::Result<Held> {
        let (mut sockets, activated) = self.find(listener.address)?;
        if sockets.is_empty() {
            sockets = server::open(listener.address, workers, alone && !self.has_port(listener.address))?;
        }
        // Each worker has one and each has a worker: where there are fewer sockets than workers, some share.
        let share = |turn: usize| {
            let socket = sockets[turn % sockets.len()].try_clone()?;
            Ok((turn % workers, ListenSocket { id: listener.id(), socket, own: !activated }))
        };
        let shares = (0..workers.max(sockets.len())).map(share).collect::<io::Result<_>>()?;
        let address = sockets.first().map_or(Ok(listener.address), TcpListener::local_addr)?;
        Ok(Held { id: listener.id(), address, sockets, shares, activated })
    }

    /// A socket for the admin API, and a handle of it to be kept.
    pub(super) fn open_admin(
        &self,
        address: SocketAddr,
        alone: bool,
    ) -> io::Result<(TcpListener, TcpListener)> {
        let (found, _) = self.find(address)?;
        let socket = match found.into_iter().next() {
            Some(socket) => socket,
            None => server::open(address, 1, alone && !self.has_port(address))?.remove(0),
        };
        Ok((socket.try_clone()?, socket))
    }

    /// Those for an address that others opened, and whether systemd did.
    fn find(&self, address: SocketAddr) -> io::Result<(Vec<TcpListener>, bool)> {
        for (given, activated) in [(&self.handed_over, false), (&self.activated, true)] {
            let fits = |socket: &&TcpListener| socket.local_addr().is_ok_and(|own| own == address);
            let found =
                given.iter().filter(fits).map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>()?;
            if !found.is_empty() {
                return Ok((found, activated));
            }
        }
        Ok((Vec::new(), false))
    }

    /// Whether others gave sockets with this port, perhaps on another interface: they are in nobody's way.
    fn has_port(&self, address: SocketAddr) -> bool {
        let fits = |socket: &TcpListener| socket.local_addr().is_ok_and(|own| own.port() == address.port());
        self.handed_over.iter().chain(&self.activated).any(fits)
    }

    /// Keeps the sockets of a listener, and returns those for the workers.
    pub(super) fn keep(&mut self, mut held: Held) -> Vec<(usize, ListenSocket)> {
        let shares = std::mem::take(&mut held.shares);
        tracing::info!("listening on {}", held.address);
        self.listeners.push(held);
        shares
    }

    /// Has new connections to the admin API go to another socket on its port; whether they do. The socket of systemd
    /// stays as it is, for systemd has it too.
    pub(super) fn detach_admin(&self) -> bool {
        let Some((address, socket)) = &self.admin else { return false };
        let activated =
            self.activated.iter().any(|given| given.local_addr().is_ok_and(|own| own == *address));
        !activated && server::detach(socket)
    }

    /// Keeps the socket of the admin API, or none.
    pub(super) fn keep_admin(&mut self, admin: Option<(SocketAddr, TcpListener)>) {
        self.admin = admin;
    }

    /// Lets go of a listener's sockets.
    pub(super) fn release(&mut self, id: &str) {
        self.listeners.retain(|held| held.id != id);
    }

    /// Lets go of what a predecessor gave and nobody used; tells of what systemd gave and nobody uses.
    pub(super) fn drop_unused(&mut self) {
        self.handed_over.clear();
        let used = self.addresses();
        for address in self.activated.iter().filter_map(|socket| socket.local_addr().ok()) {
            if !used.contains(&address) {
                tracing::warn!("systemd passed a socket on {address}, where nothing is configured to listen");
            }
        }
    }

    /// Where it listens.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let admin = self.admin.iter().filter_map(|(_, socket)| socket.local_addr().ok());
        self.listeners.iter().map(|held| held.address).chain(admin).collect()
    }

    /// All sockets that listen, for a successor.
    pub(super) fn all(&self) -> Vec<&TcpListener> {
        let admin = self.admin.iter().map(|(_, socket)| socket);
        self.listeners.iter().flat_map(|held| &held.sockets).chain(admin).collect()
    }

    /// The ids of the listeners whose sockets live on when this process closes them: with systemd, or with a
    /// successor on these addresses.
    pub(super) fn left_to_others(&self, taken: &[SocketAddr]) -> Vec<String> {
        let left = self.listeners.iter().filter(|held| held.activated || taken.contains(&held.address));
        left.map(|held| held.id.clone()).collect()
    }
}
