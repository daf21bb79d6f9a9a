//! Connections for other crates that keep something in the same Redis: to the one server that holds it.

use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{ErrorKind, RedisError, RedisResult};

use super::cluster::seeds;
use super::dial;
use super::errors::LATE;
use super::key_name;
use super::reconnect::is_master;
use super::sentinel::Sentinels;
use crate::{Address, Clock, Deployment, Settings};

/// Finds the server that holds the keys of one hash tag, and opens connections to it.
pub struct Locator {
    settings: Settings,
    clock: Clock,
    slot: u16,
    sentinels: Sentinels,
}

impl Locator {
    /// For keys whose names contain `{tag}`.
    pub fn new(settings: Settings, clock: Clock, tag: &str) -> Self {
        Self { settings, clock, slot: key_name::slot(tag.as_bytes()), sentinels: Sentinels::default() }
    }

    /// The settings of the servers.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Asks the sentinels or the cluster which server it is; a single server needs no asking.
    ///
    /// # Errors
    /// When nobody who knows it answers in time.
    pub async fn find(&mut self) -> RedisResult<Address> {
        let (settings, slot, within) = (&self.settings, self.slot, self.settings.round_trips(6));
        let asking = async {
            match &settings.servers {
                Deployment::Single(address) => Ok(address.clone()),
                Deployment::Sentinel { .. } => self.sentinels.master(settings, &self.clock).await,
                Deployment::Cluster(_) => {
                    let asked = seeds(settings).iter().map(|node| Box::pin(owner(settings, node, slot)));
                    Ok(select_ok(asked).await?.0)
                }
            }
        };
        in_time(within, asking).await
    }

    /// Opens a connection for commands. One to a master that sentinels name says that it is one.
    ///
    /// # Errors
    /// When it cannot be opened in time, or the server does not accept the credentials or is a replica.
    pub async fn connect(&self, address: &Address) -> RedisResult<MultiplexedConnection> {
        let connecting = async {
            let mut channel = dial::connect(&self.settings, address).await?;
            self.check_role(&mut channel).await?;
            Ok(channel)
        };
        in_time(self.settings.round_trips(5), connecting).await
    }

    /// Checks that the server has not become a replica; only sentinels do that to a server that one is connected to.
    ///
    /// # Errors
    /// When it has, or does not answer.
    pub async fn check_role(&self, channel: &mut MultiplexedConnection) -> RedisResult<()> {
        match self.settings.servers {
            Deployment::Sentinel { .. } => is_master(channel).await,
            _ => Ok(()),
        }
    }
}

/// Opens a connection that only subscribes.
///
/// # Errors
/// When it cannot be opened in time, or the server does not accept the credentials.
pub async fn subscriber(settings: &Settings, address: &Address) -> RedisResult<PubSub> {
    let client = dial::client(settings, address, dial::of_data(settings))?;
    in_time(settings.connect_timeout(), client.get_async_pubsub()).await
}

/// Eight random bytes.
pub fn random() -> [u8; 8] {
    super::random::random()
}

/// The server that one node of a cluster names as the owner of a slot.
async fn owner(settings: &Settings, node: &Address, slot: u16) -> RedisResult<Address> {
    let mut channel = dial::connect(settings, node).await?;
    let ranges = dial::slots(&mut channel, node).await?;
    let range = ranges.into_iter().find(|range| (range.first..=range.last).contains(&slot));
    range.map(|range| range.owner).ok_or_else(|| {
        RedisError::from((ErrorKind::Io, "a node of the cluster does not know who holds the slot"))
    })
}

async fn in_time<T>(within: Duration, what: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let late = |_| Err((ErrorKind::Io, LATE).into());
    tokio::time::timeout(within, what).await.unwrap_or_else(late)
}
