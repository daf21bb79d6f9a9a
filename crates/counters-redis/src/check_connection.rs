//! Checks whether a store can be used, before a gateway runs.

use std::sync::Arc;
use std::time::Duration;

use super::connection::LATE;
use super::store::Store;
use super::store_state::StoreState;
use crate::{Clock, Settings};

/// The longest time of a check.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which the state is read.
const INTERVAL: Duration = Duration::from_millis(10);

/// Connects to the servers as a [`Store`] does. Blocks for at most five seconds.
///
/// # Errors
/// Why the first connection failed.
pub fn check_connection(settings: Settings, clock: Clock) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no thread to connect with: {error}"))?;
    let state = Arc::new(StoreState::new(settings));
    let connecting = async {
        let store = Store::new(Arc::clone(&state), clock, 0, Arc::new(()));
        let connected = tokio::time::timeout(TIMEOUT, async {
            loop {
                let status = state.status();
                match status.trouble {
                    Some(trouble) => return Err(trouble),
                    None if status.up => return Ok(()),
                    None => tokio::time::sleep(INTERVAL).await,
                }
            }
        });
        let connected = connected.await.unwrap_or_else(|_| Err(LATE.to_owned()));
        store.close();
        connected
    };
    tokio::task::LocalSet::new().block_on(&runtime, connecting)
}
