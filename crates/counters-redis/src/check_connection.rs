//! Whether a store can be used, for those who ask before a gateway runs.

use std::sync::Arc;
use std::time::Duration;

use super::store::Store;
use super::store_state::StoreState;
use crate::{Clock, Settings};

/// The longest that this takes.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether the connections are there.
const LOOK: Duration = Duration::from_millis(10);

/// Connects to the servers as a [`Store`] does, and tries whether they can count. Blocks for seconds at most.
///
/// # Errors
/// Why it cannot: of the first connection that failed.
pub fn check_connection(settings: Settings, clock: Clock) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no thread to connect with: {error}"))?;
    let state = Arc::new(StoreState::new(settings));
    let connecting = async {
        let store = Store::new(Arc::clone(&state), clock, 0, Arc::new(()));
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
