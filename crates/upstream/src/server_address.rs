//! Where a server listens: a TCP address or a Unix socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};

use sluicegate_config::UNIX;

/// The pause before another attempt to connect to a Unix socket whose queue is full.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(Arc<Path>),
}

impl ServerAddress {
    /// The address that a configured server has without a lookup; `None` for a name.
    pub(super) fn parse(authority: &str) -> Option<Self> {
        match authority.strip_prefix(UNIX) {
            Some(path) => Some(Self::Unix(Path::new(path).into())),
            None => authority.parse().ok().map(Self::Tcp),
        }
    }

    /// Opens a connection. That of a Unix socket is a `TcpStream` too: both are read and written with the same system calls,
    /// and options of TCP fail on it without harm.
    pub(super) async fn connect(&self) -> io::Result<TcpStream> {
        let path = match self {
            Self::Tcp(address) => return TcpStream::connect(address).await,
            Self::Unix(path) => path,
        };
        loop {
            match UnixStream::connect(path).await {
                Ok(stream) => {
                    return TcpStream::from_std(OwnedFd::from(stream.into_std()?).into());
                }
                // Unlike TCP, the kernel does not wait until there is room.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(FULL_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}
