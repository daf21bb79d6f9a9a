//! Ways to Redis: addresses, credentials and TLS; which server holds which slot.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, Value,
};

use super::connection::LATE;
use super::key_name::SLOTS;
use crate::{Address, Settings};

/// Calls that may wait in the buffer of a connection before its task has written them.
const BUFFER: usize = 1 << 16;
/// How long the kernel goes on sending what nobody acknowledges.
const UNACKNOWLEDGED: Duration = Duration::from_secs(2);

/// Slots, from and to, and the server that holds them.
#[derive(PartialEq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) owner: Address,
}

/// A connection to a server that holds counters.
///
/// # Errors
/// When there is none within `within`, or the server does not accept the credentials.
pub(super) async fn connect(
    config: &Settings,
    address: &Address,
    within: Duration,
) -> RedisResult<MultiplexedConnection> {
    let settings = credentials(config.username.as_deref(), config.password.as_deref());
    dial(config, address, settings.set_db(i64::from(config.database)), within).await
}

/// Asks a node of a cluster who holds which slots.
///
/// # Errors
/// When it does not answer, or not with slots.
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

/// `[first, last, [host, port, …], …]`; the first server is the master. An empty host is the one that was asked.
fn slot_range(range: &Value, asked: &Address) -> Option<SlotRange> {
    let Value::Array(range) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(owner), ..] = range.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = owner.as_slice() else { return None };
    let host = match (host, asked) {
        (Value::BulkString(host), _) if !host.is_empty() => String::from_utf8(host.clone()).ok()?,
        (_, Address::Tcp { host, .. }) => host.clone(),
        (_, Address::Unix(_)) => return None,
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let owner = Address::Tcp { host, port: u16::try_from(*port).ok()? };
    (first <= last && last < SLOTS).then_some(SlotRange { first, last, owner })
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

/// A connection to any server. Our own deadlines are around every call: the library's own would not cover all that it waits for.
pub(super) async fn dial(
    config: &Settings,
    address: &Address,
    settings: RedisConnectionInfo,
    within: Duration,
) -> RedisResult<MultiplexedConnection> {
    let reached = match (address, &config.tls) {
        (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
        (Address::Tcp { host, port }, None) => ConnectionAddr::Tcp(host.clone(), *port),
        (Address::Tcp { host, port }, Some(_)) => {
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
        }
    };
    let tcp = TcpSettings::default().set_nodelay(true).set_user_timeout(UNACKNOWLEDGED);
    let info = reached.into_connection_info()?.set_redis_settings(settings).set_tcp_settings(tcp);
    let client = match (&config.tls, address) {
        (Some(tls), Address::Tcp { .. }) => {
            let client_tls = tls
                .client
                .as_ref()
                .map(|(cert, key)| ClientTlsConfig { client_cert: cert.clone(), client_key: key.clone() });
            Client::build_with_tls(info, TlsCertificates { client_tls, root_cert: tls.ca.clone() })?
        }
        _ => Client::open(info)?,
    };
    let options = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(BUFFER);
    let connecting = client.get_multiplexed_async_connection_with_config(&options);
    match tokio::time::timeout(within, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err((ErrorKind::Io, LATE).into()),
    }
}
