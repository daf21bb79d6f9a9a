//! Converts the store of the configuration to the settings of `sluicegate_counters_redis`.

use sluicegate_counters_redis::{Address, Deployment, Settings, TlsFiles, check_connection};

use sluicegate_base::clock::Clock;
use sluicegate_config::{RedisAddress, RedisConfig, RedisServers, Secret};
use sluicegate_limiter::Span;

/// Connects to the store of a configuration as a gateway does, and checks whether it can be used. Returns the round trip of a call.
///
/// # Errors
/// Why the first connection that failed cannot be used.
pub fn try_store(config: &RedisConfig) -> Result<Span, String> {
    check_connection(settings(config), store_clock(&Clock::start()))
}

/// The clock of a store, which shows what the gateway's clock shows.
pub fn store_clock(clock: &Clock) -> sluicegate_counters_redis::Clock {
    let (started, at) = clock.origin();
    sluicegate_counters_redis::Clock::new(started, at)
}

/// The settings of a store.
pub fn settings(config: &RedisConfig) -> Settings {
    let servers = match &config.servers {
        RedisServers::Single(server) => Deployment::Single(address(server)),
        RedisServers::Sentinel { master, nodes, username, password } => Deployment::Sentinel {
            master: master.clone(),
            nodes: nodes.iter().map(address).collect(),
            username: username.clone(),
            password: given(password),
        },
        RedisServers::Cluster(nodes) => Deployment::Cluster(nodes.iter().map(address).collect()),
    };
    Settings {
        servers,
        username: config.username.clone(),
        password: given(&config.password),
        database: config.database,
        tls: config.tls.as_ref().map(|tls| TlsFiles {
            ca: tls.ca.as_ref().map(|ca| ca.bytes.clone()),
            client: tls.client.as_ref().map(|(cert, key)| (cert.bytes.clone(), key.bytes.clone())),
        }),
        timeout: config.timeout,
        prefix: config.prefix.clone(),
        gateways: config.gateways,
        is_home: false,
        state_folder: config.state_folder.clone(),
    }
}

fn given(secret: &Secret) -> Option<String> {
    (!secret.is_empty()).then(|| secret.reveal().to_owned())
}

fn address(address: &RedisAddress) -> Address {
    match address {
        RedisAddress::Tcp { host, port } => Address::Tcp { host: host.clone(), port: *port },
        RedisAddress::Unix(path) => Address::Unix(path.clone()),
    }
}
