//! Where a listener accepts connections.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::model::upstream::UNIX;

/// Where a listener accepts connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// On a TCP address.
    Tcp(SocketAddr),
    /// On a Unix socket at this path.
    Unix(PathBuf),
}

impl ListenAddress {
    /// The address that [`Display`](fmt::Display) writes; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix(UNIX) {
            Some(path) => Some(Self::Unix(path.into())),
            None => text.parse().ok().map(Self::Tcp),
        }
    }

    /// The TCP address, if it is one.
    #[inline]
    pub const fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// The TCP port, if it has one.
    pub fn port(&self) -> Option<u16> {
        self.tcp().map(|address| address.port())
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}
