//! Checks whether a store can be used, before a gateway runs.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_limiter::Span;

use super::errors::LATE;
use super::store::Store;
use super::store_state::StoreState;
use crate::{Clock, Settings};

/// The longest time of a check, unless a far server needs longer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which the state is read.
const INTERVAL: Duration = Duration::from_millis(10);
/// The calls of which the fastest counts.
const CALLS: usize = 3;

/// Connects to the servers as a [`Store`] does. Returns the round trip of a call. Blocks for at most five seconds, or for as long
/// as ten calls may take.
///
/// # Errors
/// Why the first connection failed.
pub fn check_connection(settings: Settings, clock: Clock) -> Result<Span, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no thread to connect with: {error}"))?;
    let within = settings.round_trips(10).max(TIMEOUT);
    let state = Arc::new(StoreState::new(settings));
    let connecting = async {
        let store = Store::new(Arc::clone(&state), clock, 0, Arc::new(()));
        let connected = tokio::time::timeout(within, async {
            loop {
                let status = state.status();
                match status.trouble {
                    Some(trouble) => return Err(trouble),
                    None if status.up => break,
                    None => tokio::time::sleep(INTERVAL).await,
                }
            }
            let mut fastest = Span::MAX;
            for _ in 0..CALLS {
                let sent = clock.now();
                store.send_to_gateways(&redis::cmd("TIME")).await.ok_or("calls are not answered in time")?;
                fastest = fastest.min(clock.now().since(sent));
            }
            Ok(fastest)
        });
        let connected = connected.await.unwrap_or_else(|_| Err(LATE.to_owned()));
        store.close();
        connected
    };
    tokio::task::LocalSet::new().block_on(&runtime, connecting)
}
