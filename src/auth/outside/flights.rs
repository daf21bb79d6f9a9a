//! Calls in progress: one for each credential, however many requests wait for it, and not too many at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::auth::remembered::Digest;
use crate::boxed_future::spawn_local;

/// The most calls to a service at the same time, of all workers together.
const MOST: usize = 64;

type Open<T> = HashMap<Digest, watch::Receiver<Option<T>>>;

/// The calls to a service that are in progress.
pub(in crate::auth) struct Flights<T>(Arc<Mutex<Open<T>>>);

/// Ends a call, also if its worker ends before it.
struct Landing<T> {
    open: Arc<Mutex<Open<T>>>,
    key: Digest,
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + 'static> Flights<T> {
    /// The result of the call for `key`: of one that is in progress, or what is `known` by now, or else of a new `call`,
    /// which remembers its result before it returns. `None` if there are too many calls, or the call was cut off.
    pub(in crate::auth) async fn join(
        &self,
        key: Digest,
        known: impl FnOnce() -> Option<T>,
        call: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        let mut result = {
            let mut open = lock(&self.0);
            if let Some(result) = open.get(&key) {
                result.clone()
            } else if let Some(known) = known() {
                return Some(known); // by a call that has just ended
            } else if open.len() >= MOST {
                return None;
            } else {
                let (sender, result) = watch::channel(None);
                open.insert(key, result.clone());
                let landing = Landing { open: Arc::clone(&self.0), key };
                // A task of its own: the client that came first may leave, and others wait too.
                spawn_local(async move {
                    let told = call.await;
                    drop(landing);
                    sender.send_replace(Some(told));
                });
                result
            }
        };
        result.wait_for(Option::is_some).await.ok()?.clone()
    }
}

impl<T> Drop for Landing<T> {
    fn drop(&mut self) {
        lock(&self.open).remove(&self.key);
    }
}

fn lock<T>(open: &Mutex<Open<T>>) -> MutexGuard<'_, Open<T>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}
