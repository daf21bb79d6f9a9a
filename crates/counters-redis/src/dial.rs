//! Opens connections to Redis with credentials and TLS, and asks a cluster for its slots.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, Value,
};

use super::errors::LATE;
use super::key_name::SLOTS;
use crate::{Address, Settings};

/// The number of calls that may wait in a connection to be written.
const BUFFER: usize = 1 << 16;
/// The time after which the kernel closes a connection with unacknowledged data.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(2);

/// A range of slots, and the server that holds it.
#[derive(PartialEq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) owner: Address,
}

/// Opens a connection to a server that holds counters.
///
/// # Errors
/// When it cannot be opened in time, or the server does not accept the credentials.
pub(super) async fn connect(config: &Settings, address: &Address) -> RedisResult<MultiplexedConnection> {
    dial(config, address, of_data(config)).await
}

/// The user, the password and the database of the servers that hold counters.
pub(super) fn of_data(config: &Settings) -> RedisConnectionInfo {
    let settings = credentials(config.username.as_deref(), config.password.as_deref());
    settings.set_db(i64::from(config.database))
}

/// Asks a node of a cluster who holds which slots.
///
/// # Errors
/// When it does not answer, or the reply is malformed.
pub(super) async fn slots(
    channel: &mut MultiplexedConnection,
    asked: &Address,
) -> RedisResult<Vec<SlotRange>> {
    let reply: Value = redis::cmd("CLUSTER").arg("SLOTS").query_async(channel).await?;
    let Value::Array(ranges) = reply else { return Err(malformed()) };
    ranges.iter().map(|range| slot_range(range, asked).ok_or_else(malformed)).collect()
}

fn malformed() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "CLUSTER SLOTS was not answered with slots").into()
}

/// `[first, last, [host, port, …], …]`; the first server is the master. An empty host means the node that was asked.
fn slot_range(range: &Value, asked: &Address) -> Option<SlotRange> {
    let Value::Array(range) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(owner), ..] = range.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = owner.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        _ => "",
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let owner = node(host, u16::try_from(*port).ok()?, asked)?;
    (first <= last && last < SLOTS).then_some(SlotRange { first, last, owner })
}

/// A node that another one names. An empty host means the one that was asked.
pub(super) fn node(host: &str, port: u16, asked: &Address) -> Option<Address> {
    let host = match (host, asked) {
        ("", Address::Tcp { host, .. }) => host.clone(),
        ("", Address::Unix(_)) => return None,
        (host, _) => host.to_owned(),
    };
    Some(Address::Tcp { host, port })
}

pub(super) fn credentials(username: Option<&str>, password: Option<&str>) -> RedisConnectionInfo {
    let mut settings = RedisConnectionInfo::default();
    if let Some(username) = username {
        settings = settings.set_username(username);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    settings
}

/// Opens a connection to any server. Calls have deadlines of our own, because those of the library do not cover all of a
/// call.
pub(super) async fn dial(
    config: &Settings,
    address: &Address,
    settings: RedisConnectionInfo,
) -> RedisResult<MultiplexedConnection> {
    let client = client(config, address, settings)?;
    let options = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(BUFFER);
    let connecting = client.get_multiplexed_async_connection_with_config(&options);
    match tokio::time::timeout(config.connect_timeout(), connecting).await {
        Ok(connected) => connected,
        Err(_) => Err((ErrorKind::Io, LATE).into()),
    }
}

/// What connections to a server are opened with.
///
/// # Errors
/// When the certificates cannot be read.
pub(super) fn client(
    config: &Settings,
    address: &Address,
    settings: RedisConnectionInfo,
) -> RedisResult<Client> {
    let at = match (address, &config.tls) {
        (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
        (Address::Tcp { host, port }, None) => ConnectionAddr::Tcp(host.clone(), *port),
        (Address::Tcp { host, port }, Some(_)) => {
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
        }
    };
    let tcp = TcpSettings::default().set_nodelay(true).set_user_timeout(TCP_USER_TIMEOUT);
    let info = at.into_connection_info()?.set_redis_settings(settings).set_tcp_settings(tcp);
    match (&config.tls, address) {
        (Some(tls), Address::Tcp { .. }) => {
            let client_tls = tls
                .client
                .as_ref()
                .map(|(cert, key)| ClientTlsConfig { client_cert: cert.clone(), client_key: key.clone() });
            Client::build_with_tls(info, TlsCertificates { client_tls, root_cert: tls.ca.clone() })
        }
        _ => Client::open(info),
    }
}
