//! Whether a store can be used, for those who ask before a gateway runs.

use std::sync::Arc;
use std::time::Duration;

use super::{Store, StoreState};
use crate::clock::Clock;
use crate::config::RedisConfig;

/// The longest that this takes.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether the connections are there.
const LOOK: Duration = Duration::from_millis(10);

/// Connects to the store of a configuration as a gateway does, and tries whether it can be counted in.
///
/// # Errors
/// Why it cannot: of the first connection that failed.
pub fn try_store(config: &RedisConfig) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no thread to connect with: {error}"))?;
    let state = Arc::new(StoreState::new(config.clone()));
    let connecting = async {
        let store = Store::new(Arc::clone(&state), Clock::start(), 0, Arc::default());
        let connected = tokio::time::timeout(PATIENCE, async {
            loop {
                let status = state.status();
                match status.trouble {
                    Some(trouble) => return Err(trouble),
                    None if status.up => return Ok(()),
                    None => tokio::time::sleep(LOOK).await,
                }
            }
        });
        let connected = connected.await.unwrap_or_else(|_| Err("it does not answer in time".to_owned()));
        store.close();
        connected
    };
    tokio::task::LocalSet::new().block_on(&runtime, connecting)
}
