//! The listening sockets, opened by this process, by systemd or by the predecessor.
//!
//! The workers have duplicates of them. The sockets here are passed to a successor, and have to be dropped before the
//! workers close theirs, because a socket listens until its last duplicate is closed.

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
    /// From systemd, which keeps duplicates.
    activated: Vec<TcpListener>,
    /// From the predecessor, until this process serves; or this process' own, while a successor serves on them.
    handed_over: Vec<TcpListener>,
}

/// The sockets of a listener.
pub(super) struct Held {
    id: String,
    address: SocketAddr,
    sockets: Vec<TcpListener>,
    /// The sockets of the workers, each with the index of its worker.
    shares: Vec<(usize, ListenSocket)>,
    /// Whether systemd has duplicates.
    activated: bool,
}

impl Sockets {
    /// Sockets that other processes opened: systemd, according to the environment, and the predecessor.
    ///
    /// It changes the environment, so it has to be called before other threads are started.
    pub(super) fn passed(handed_over: Vec<TcpListener>) -> io::Result<Self> {
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

    /// Opens the sockets of a new listener for `workers` workers. With `alone` it is an error if another process listens on
    /// the address, except systemd and the predecessor.
    pub(super) fn open(&self, listener: &ListenerConfig, workers: usize, alone: bool) -> io::Result<Held> {
        let (mut sockets, activated) = self.find(listener.address)?;
        if sockets.is_empty() {
            sockets = server::open(listener.address, workers, alone && !self.has_port(listener.address))?;
        }
        // Each worker gets a socket and each socket a worker; if there are fewer sockets than workers, some are shared.
        let share = |index: usize| {
            let socket = sockets[index % sockets.len()].try_clone()?;
            Ok((index % workers, ListenSocket { id: listener.id(), socket, own: !activated }))
        };
        let shares = (0..workers.max(sockets.len())).map(share).collect::<io::Result<_>>()?;
        let address = sockets.first().map_or(Ok(listener.address), TcpListener::local_addr)?;
        Ok(Held { id: listener.id(), address, sockets, shares, activated })
    }

    /// Opens the socket of the admin API. Returns it with a duplicate to keep.
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

    /// Duplicates of the sockets that other processes opened on an address, and whether systemd did.
    fn find(&self, address: SocketAddr) -> io::Result<(Vec<TcpListener>, bool)> {
        for (passed, activated) in [(&self.handed_over, false), (&self.activated, true)] {
            let fits = |socket: &&TcpListener| socket.local_addr().is_ok_and(|own| own == address);
            let found =
                passed.iter().filter(fits).map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>()?;
            if !found.is_empty() {
                return Ok((found, activated));
            }
        }
        Ok((Vec::new(), false))
    }

    /// Whether another process passed a socket with this port, on any address: then the port is not taken by a stranger.
    fn has_port(&self, address: SocketAddr) -> bool {
        let fits = |socket: &TcpListener| socket.local_addr().is_ok_and(|own| own.port() == address.port());
        self.handed_over.iter().chain(&self.activated).any(fits)
    }

    /// Keeps the sockets of a listener and returns those of the workers.
    pub(super) fn keep(&mut self, mut held: Held) -> Vec<(usize, ListenSocket)> {
        let shares = std::mem::take(&mut held.shares);
        tracing::info!("listening on {}", held.address);
        self.listeners.push(held);
        shares
    }

    /// Directs new connections to the admin API to another socket on its port, unless systemd has the socket. Returns whether
    /// it did.
    pub(super) fn detach_admin(&self) -> bool {
        let Some((address, socket)) = &self.admin else { return false };
        let activated =
            self.activated.iter().any(|socket| socket.local_addr().is_ok_and(|own| own == *address));
        !activated && server::detach(socket)
    }

    /// Keeps the socket of the admin API, or none.
    pub(super) fn keep_admin(&mut self, admin: Option<(SocketAddr, TcpListener)>) {
        self.admin = admin;
    }

    /// Drops the sockets of a listener.
    pub(super) fn release(&mut self, id: &str) {
        self.listeners.retain(|held| held.id != id);
    }

    /// Keeps the sockets on these addresses apart, so that they can be opened again, and drops the others.
    pub(super) fn suspend(&mut self, taken: &[SocketAddr]) {
        let listeners = self.listeners.drain(..).filter(|held| !held.activated);
        let listeners = listeners.map(|held| (held.address, held.sockets));
        let admin = self.admin.take().map(|(address, socket)| (address, vec![socket]));
        let kept = listeners.chain(admin).filter(|(address, _)| taken.contains(address));
        self.handed_over = kept.flat_map(|(_, sockets)| sockets).collect();
    }

    /// Drops unused sockets of the predecessor and logs unused sockets of systemd.
    pub(super) fn drop_unused(&mut self) {
        self.handed_over.clear();
        let used = self.addresses();
        for address in self.activated.iter().filter_map(|socket| socket.local_addr().ok()) {
            if !used.contains(&address) {
                tracing::warn!("systemd passed a socket on {address}, where nothing is configured to listen");
            }
        }
    }

    /// The addresses on which the process listens.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let admin = self.admin.iter().filter_map(|(_, socket)| socket.local_addr().ok());
        self.listeners.iter().map(|held| held.address).chain(admin).collect()
    }

    /// All listening sockets, for a successor.
    pub(super) fn all(&self) -> Vec<&TcpListener> {
        let admin = self.admin.iter().map(|(_, socket)| socket);
        self.listeners.iter().flat_map(|held| &held.sockets).chain(admin).collect()
    }

    /// The ids of the listeners whose sockets stay open when this process closes them, because systemd has duplicates or a
    /// successor serves on their addresses (`taken`).
    pub(super) fn left_to_others(&self, taken: &[SocketAddr]) -> Vec<String> {
        let left = self.listeners.iter().filter(|held| held.activated || taken.contains(&held.address));
        left.map(|held| held.id.clone()).collect()
    }
}
