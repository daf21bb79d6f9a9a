//! The listening sockets, opened by this process, by systemd or by the predecessor.
//!
//! The workers have duplicates of them. The sockets here are passed to a successor, and have to be dropped before the
//! workers close theirs, because a socket listens until its last duplicate is closed.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use listenfd::ListenFd;
use socket2::SockRef;

use crate::server::{self, ListenSocket, listen_address};
use sluicegate_config::{ListenAddress, ListenerConfig};

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
    address: ListenAddress,
    sockets: Vec<TcpListener>,
    /// The sockets of the workers, each with the index of its worker.
    shares: Vec<(usize, ListenSocket)>,
    /// Whether systemd has duplicates.
    activated: bool,
}

impl Held {
    /// Removes the file of a Unix socket, unless systemd has it.
    fn remove_file(&self) {
        if let ListenAddress::Unix(path) = &self.address
            && !self.activated
        {
            let _ = std::fs::remove_file(path); // one that stays does no harm
        }
    }
}

impl Sockets {
    /// Sockets that other processes opened: systemd, according to the environment, and the predecessor.
    ///
    /// It changes the environment, so it has to be called before other threads are started.
    pub(super) fn passed(handed_over: Vec<TcpListener>) -> io::Result<Self> {
        let mut sockets = Self { handed_over, ..Self::default() };
        let mut passed = ListenFd::from_env();
        for index in 0..passed.len() {
            let socket = match passed.take_tcp_listener(index) {
                Ok(socket) => socket,
                Err(_) => passed.take_unix_listener(index)?.map(|socket| OwnedFd::from(socket).into()),
            };
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
        let (mut sockets, activated) = self.find(&listener.address)?;
        if sockets.is_empty() {
            sockets = match &listener.address {
                ListenAddress::Tcp(address) => {
                    server::open(*address, workers, alone && !self.has_port(*address))?
                }
                ListenAddress::Unix(path) => vec![server::open_unix(path)?],
            };
        }
        // Each worker gets a socket and each socket a worker; if there are fewer sockets than workers, some are shared.
        let share = |index: usize| {
            let socket = sockets[index % sockets.len()].try_clone()?;
            Ok((index % workers, ListenSocket { id: listener.id(), socket, own: !activated }))
        };
        let shares = (0..workers.max(sockets.len())).map(share).collect::<io::Result<_>>()?;
        let address = sockets.first().map_or_else(|| Ok(listener.address.clone()), listen_address)?;
        Ok(Held { id: listener.id(), address, sockets, shares, activated })
    }

    /// Opens the socket of the admin API. Returns it with a duplicate to keep.
    pub(super) fn open_admin(
        &self,
        address: SocketAddr,
        alone: bool,
    ) -> io::Result<(TcpListener, TcpListener)> {
        let (found, _) = self.find(&ListenAddress::Tcp(address))?;
        let socket = match found.into_iter().next() {
            Some(socket) => socket,
            None => server::open(address, 1, alone && !self.has_port(address))?.remove(0),
        };
        Ok((socket.try_clone()?, socket))
    }

    /// Duplicates of the sockets that other processes opened on an address, and whether systemd did.
    fn find(&self, address: &ListenAddress) -> io::Result<(Vec<TcpListener>, bool)> {
        for (passed, activated) in [(&self.handed_over, false), (&self.activated, true)] {
            let fits = |socket: &&TcpListener| listen_address(socket).is_ok_and(|own| own == *address);
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
        for held in self.listeners.extract_if(.., |held| held.id == id) {
            held.remove_file();
        }
    }

    /// Keeps the sockets on these addresses apart, so that they can be opened again, and drops the others.
    pub(super) fn suspend(&mut self, taken: &[ListenAddress]) {
        let (kept, dropped): (Vec<_>, Vec<_>) =
            self.listeners.drain(..).partition(|held| taken.contains(&held.address));
        dropped.iter().for_each(Held::remove_file);
        let kept = kept.into_iter().filter(|held| !held.activated).flat_map(|held| held.sockets);
        let admin = self.admin.take().filter(|(address, _)| taken.contains(&ListenAddress::Tcp(*address)));
        self.handed_over = kept.chain(admin.map(|(_, socket)| socket)).collect();
    }

    /// Removes the files of the Unix sockets that nobody else has: nothing listens there from now on.
    pub(super) fn remove_files(&self) {
        self.listeners.iter().for_each(Held::remove_file);
    }

    /// Drops unused sockets of the predecessor and logs unused sockets of systemd.
    pub(super) fn drop_unused(&mut self) {
        self.handed_over.clear();
        let used = self.addresses();
        for address in self.activated.iter().filter_map(|socket| listen_address(socket).ok()) {
            if !used.contains(&address) {
                tracing::warn!("systemd passed a socket on {address}, where nothing is configured to listen");
            }
        }
    }

    /// The addresses on which the process listens.
    pub(super) fn addresses(&self) -> Vec<ListenAddress> {
        let admin = self.admin.iter().filter_map(|(_, socket)| listen_address(socket).ok());
        self.listeners.iter().map(|held| held.address.clone()).chain(admin).collect()
    }

    /// All listening sockets, for a successor.
    pub(super) fn all(&self) -> Vec<&TcpListener> {
        let admin = self.admin.iter().map(|(_, socket)| socket);
        self.listeners.iter().flat_map(|held| &held.sockets).chain(admin).collect()
    }

    /// The ids of the listeners whose sockets stay open when this process closes them, because systemd has duplicates or a
    /// successor serves on their addresses (`taken`).
    pub(super) fn left_to_others(&self, taken: &[ListenAddress]) -> Vec<String> {
        let left = self.listeners.iter().filter(|held| held.activated || taken.contains(&held.address));
        left.map(|held| held.id.clone()).collect()
    }
}
