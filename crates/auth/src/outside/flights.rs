//! Calls in progress: one for each credential, however many requests wait for it, and not too many at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::remembered::Digest;
use sluicegate_base::boxed_future::spawn_local;

type Open<T> = HashMap<Digest, watch::Receiver<Option<T>>>;

/// The calls to a service that are in progress.
pub(crate) struct Flights<T> {
    open: Arc<Mutex<Open<T>>>,
    /// One place for each call that may be in flight, of all workers together.
    places: Arc<Semaphore>,
}

/// Ends a call, also if its worker ends before it.
struct Landing<T> {
    open: Arc<Mutex<Open<T>>>,
    key: Digest,
    _place: OwnedSemaphorePermit,
}

impl<T: Clone + 'static> Flights<T> {
    /// No calls yet, and at most `most` at the same time.
    pub(crate) fn new(most: usize) -> Self {
        Self { open: Arc::default(), places: Arc::new(Semaphore::new(most)) }
    }

    /// The result of the call for `key`: of one that is in progress, or what is `known` by now, or else of a new `call`,
    /// which remembers its result before it returns. A new call waits for its place at most for `patience`. `None` if it
    /// had to wait longer, or the call was cut off.
    pub(crate) async fn join(
        &self,
        key: Digest,
        patience: Duration,
        known: impl FnOnce() -> Option<T>,
        call: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        let in_progress = lock(&self.open).get(&key).cloned();
        let mut result = match in_progress {
            Some(result) => result,
            None => {
                // A request that waits here starts nothing, so that nothing is left of it if its client leaves.
                let place = Arc::clone(&self.places).acquire_owned();
                let place = tokio::time::timeout(patience, place).await.ok()?.ok()?;
                let mut open = lock(&self.open);
                if let Some(result) = open.get(&key) {
                    result.clone() // of an equal request that came to its place first
                } else if let Some(known) = known() {
                    return Some(known); // by a call that has just ended
                } else {
                    let (sender, result) = watch::channel(None);
                    open.insert(key, result.clone());
                    let landing = Landing { open: Arc::clone(&self.open), key, _place: place };
                    // A task of its own: the client that came first may leave, and others wait too.
                    spawn_local(async move {
                        let result = call.await;
                        drop(landing);
                        sender.send_replace(Some(result));
                    });
                    result
                }
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

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::task::LocalSet;

    use super::*;

    #[test]
    fn a_call_waits_for_its_place_and_no_longer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let flights = Flights::new(1);
            let join = |key, call| flights.join([key; 32], Duration::from_millis(20), || None, call);
            assert_eq!(join(1, ready(10)).await, Some(10));
            assert_eq!(join(2, ready(20)).await, Some(20), "the place is free again");
            let endless = flights.join([3; 32], Duration::ZERO, || None, pending());
            assert!(tokio::time::timeout(Duration::from_millis(20), endless).await.is_err());
            assert_eq!(join(4, ready(40)).await, None);
        });
    }
}
