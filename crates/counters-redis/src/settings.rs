//! The settings of a store. They have no `Debug`, because they contain passwords and private keys.

use std::path::PathBuf;
use std::time::Duration;

use crate::Address;

/// The settings of a store.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// The addresses of the servers.
    pub servers: Deployment,
    /// The user; `None` for the default one.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u32,
    /// The certificates for TLS; `None` for plain TCP or a Unix socket.
    pub tls: Option<TlsFiles>,
    /// The longest time that a request waits for a decision.
    pub timeout: Duration,
    /// The prefix of the names of all keys.
    pub prefix: String,
    /// The smallest number of gateways that is assumed to share the store.
    pub gateways: u32,
    /// Whether it is the home store of regions, in which no limit is counted.
    pub is_home: bool,
    /// The folder for the file with the last known number of gateways.
    pub state_folder: PathBuf,
}

impl Settings {
    /// The longest time of so many round trips for which no request waits: each may take as long as a request waits for
    /// one. At least a second, so that a busy server is not given up, and at most ten, unless the timeout is longer.
    pub fn round_trips(&self, count: u32) -> Duration {
        let most = self.timeout.max(Duration::from_secs(10));
        self.timeout.saturating_mul(count).clamp(Duration::from_secs(1), most)
    }

    /// The longest time in which a connection is opened: TCP, two round trips of TLS, and the credentials.
    pub fn connect_timeout(&self) -> Duration {
        self.round_trips(4)
    }
}

/// The addresses of the servers. No list is empty.
#[derive(Clone, PartialEq, Eq)]
pub enum Deployment {
    /// One server.
    Single(Address),
    /// The master that sentinels name.
    Sentinel {
        /// The name of the master.
        master: String,
        /// The sentinels.
        nodes: Vec<Address>,
        /// The user at the sentinels.
        username: Option<String>,
        /// The password at the sentinels.
        password: Option<String>,
    },
    /// Some nodes of a cluster, which know the others.
    Cluster(Vec<Address>),
}

/// The PEM files of a connection with TLS.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The trusted authorities; `None` for those of the system.
    pub ca: Option<Vec<u8>>,
    /// The client's certificate chain and its private key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}
