//! The model of the store. Neither its debug output nor its serialized form contains a password or a private key.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::language::secret::Secret;
use crate::model::serialize::{authorities, is_some, path, seconds, text, texts};
use crate::read::at::FileContent;

/// A Redis that several gateways count in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedisConfig {
    /// Its addresses.
    #[serde(flatten)]
    pub servers: RedisServers,
    /// The user; `None` for the default one.
    pub username: Option<String>,
    /// The password; empty for none.
    pub password: Secret,
    /// The number of the database.
    pub database: u32,
    /// How its certificate is verified and the gateway's own; `None` for plain TCP or a Unix socket.
    pub tls: Option<RedisTls>,
    /// The longest that a request waits for a decision.
    #[serde(serialize_with = "seconds")]
    pub timeout: Duration,
    /// The prefix of all keys.
    pub prefix: String,
    /// The least number of gateways that is assumed to share it.
    pub gateways: u32,
    /// The folder in which the last known number of gateways is kept across restarts.
    #[serde(serialize_with = "path")]
    pub state_folder: PathBuf,
}

/// The addresses of a Redis. No list is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RedisServers {
    /// One server.
    #[serde(rename = "server", serialize_with = "text")]
    Single(RedisAddress),
    /// The master, found through sentinels.
    Sentinel {
        /// Its name at the sentinels.
        master: String,
        /// The sentinels.
        #[serde(serialize_with = "texts")]
        nodes: Vec<RedisAddress>,
        /// The user at the sentinels.
        username: Option<String>,
        /// The password at the sentinels; empty for none.
        password: Secret,
    },
    /// Some nodes of a cluster; they know the others.
    #[serde(serialize_with = "texts")]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RedisTls {
    /// Trusted authorities; `None` for those of the system.
    #[serde(serialize_with = "authorities")]
    pub ca: Option<FileContent>,
    /// The gateway's certificate chain and its private key.
    #[serde(rename = "own_certificate", serialize_with = "is_some")]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::at::{At, FileContent, FileRef};
    use crate::read::report::Place;

    #[test]
    fn nothing_that_is_printed_tells_a_secret() {
        let pem = || {
            let written = At { at: Place::START, value: "store.key".to_owned() };
            let file = FileRef { path: PathBuf::from("store.key"), written };
            FileContent { file, bytes: b"sesame".to_vec() }
        };
        let secret = || Secret::new("sesame");
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
