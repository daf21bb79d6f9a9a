//! How the servers are reached and used. There is no way to print it: it holds passwords and private keys.

use std::path::PathBuf;
use std::time::Duration;

use crate::Address;

/// How the servers are reached and used.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where they are.
    pub servers: Deployment,
    /// The user; `None` for the default one.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u32,
    /// How certificates are verified; `None` for plain TCP or a Unix socket.
    pub tls: Option<TlsFiles>,
    /// The longest time that a request waits for a decision.
    pub timeout: Duration,
    /// What the names of all keys begin with.
    pub prefix: String,
    /// The smallest number of gateways that share the store, however many it knows of.
    pub gateways: u32,
    /// The folder in which the last known number of gateways outlives the process.
    pub state_folder: PathBuf,
}

/// Where the servers are. No list is empty.
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
    /// Some nodes of a cluster; they know the others.
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
