//! The model of the store. Debug output contains no password and no private key.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::at::FileContent;

/// A Redis that several gateways count in.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// Its addresses.
    pub servers: RedisServers,
    /// The user; `None` for the default one.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u32,
    /// How its certificate is verified and the gateway's own; `None` for plain TCP or a Unix socket.
    pub tls: Option<RedisTls>,
    /// The longest that a request waits for a decision.
    pub timeout: Duration,
    /// The prefix of all keys.
    pub prefix: String,
    /// The least number of gateways that is assumed to share it.
    pub gateways: u32,
    /// The folder in which the last known number of gateways is kept across restarts.
    pub state_folder: PathBuf,
}

/// The addresses of a Redis. No list is empty.
#[derive(Clone, PartialEq, Eq)]
pub enum RedisServers {
    /// One server.
    Single(RedisAddress),
    /// The master, found through sentinels.
    Sentinel {
        /// Its name at the sentinels.
        master: String,
        /// The sentinels.
        nodes: Vec<RedisAddress>,
        /// The user at the sentinels.
        username: Option<String>,
        /// The password at the sentinels.
        password: Option<String>,
    },
    /// Some nodes of a cluster; they know the others.
    Cluster(Vec<RedisAddress>),
}

/// The address of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisAddress {
    /// A host and a port.
    Tcp {
        /// A name or an address; IPv6 without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// The PEM files of a connection with TLS.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// Trusted authorities; `None` for those of the system.
    pub ca: Option<FileContent>,
    /// The gateway's certificate chain and its private key.
    pub client: Option<(FileContent, FileContent)>,
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("servers", &self.servers)
            .field("username", &self.username)
            .field("database", &self.database)
            .field("tls", &self.tls)
            .field("timeout", &self.timeout)
            .field("prefix", &self.prefix)
            .field("gateways", &self.gateways)
            .field("state_folder", &self.state_folder)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(address) => f.debug_tuple("Single").field(address).finish(),
            Self::Cluster(nodes) => f.debug_tuple("Cluster").field(nodes).finish(),
            Self::Sentinel { master, nodes, username, password: _ } => f
                .debug_struct("Sentinel")
                .field("master", master)
                .field("nodes", nodes)
                .field("username", username)
                .finish_non_exhaustive(),
        }
    }
}

impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTls")
            .field("private_ca", &self.ca.is_some())
            .field("own_certificate", &self.client.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::at::{At, FileContent, FileRef};
    use crate::report::Place;

    #[test]
    fn nothing_that_is_printed_tells_a_secret() {
        let pem = || {
            let written = At { at: Place::START, value: "store.key".to_owned() };
            let file = FileRef { path: PathBuf::from("store.key"), written };
            FileContent { file, bytes: b"sesame".to_vec() }
        };
        let secret = || Some("sesame".to_owned());
        let config = RedisConfig {
            servers: RedisServers::Sentinel {
                master: "main".to_owned(),
                nodes: vec![RedisAddress::Tcp { host: "::1".to_owned(), port: 26379 }],
                username: None,
                password: secret(),
            },
            username: Some("app".to_owned()),
            password: secret(),
            database: 0,
            tls: Some(RedisTls { ca: None, client: Some((pem(), pem())) }),
            timeout: Duration::from_millis(50),
            prefix: "sluicegate".to_owned(),
            gateways: 1,
            state_folder: PathBuf::new(),
        };
        let printed = format!("{config:?}");
        let bytes = format!("{:?}", b"sesame");
        assert!(!printed.contains("sesame") && !printed.contains(&bytes), "{printed}");
        assert!(printed.contains("main") && printed.contains("app"), "{printed}");
    }

    #[test]
    fn addresses_are_written_as_people_write_them() {
        let tcp = |host: &str| RedisAddress::Tcp { host: host.to_owned(), port: 6379 }.to_string();
        assert_eq!([tcp("redis.internal"), tcp("::1")], ["redis.internal:6379", "[::1]:6379"]);
        assert_eq!(RedisAddress::Unix("/run/redis.sock".into()).to_string(), "/run/redis.sock");
    }
}
