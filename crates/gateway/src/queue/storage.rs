//! The calls to the storage of a queue. None of them blocks the thread.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::state::QueueState;
use sluicegate_base::boxed_future::spawn_blocking;
use sluicegate_queue::{Accepted, Bounds, Claimed, End, Entry, Figures, Id, Message, Refused};
use sluicegate_queue_sqlite::{Cancelled, DeadLetters, QueueError, QueueFile};

/// The most messages that are ended or removed at a time because their time is over.
const MAX_EXPIRED: usize = 1_000;

impl QueueState {
    /// Stores a message. It is durable when this returns.
    ///
    /// # Errors
    /// If the storage cannot be written. The inner result says why the queue refuses the message.
    pub async fn accept(
        &self,
        message: Message,
        bounds: Bounds,
    ) -> Result<Result<Accepted, Refused>, QueueError> {
        self.begin_accept();
        let file = self.file();
        let stored = reply(|reply| file.accept_then(message, bounds, reply)).await;
        self.wake.notify_one();
        stored
    }

    /// Begins an attempt for each of at most `max` messages that are due. A message whose time is over is ended instead, and can be
    /// seen until `keep_until`.
    ///
    /// # Errors
    /// If the storage cannot be written.
    pub async fn claim(&self, now: u64, keep_until: u64, max: usize) -> Result<Vec<Claimed>, QueueError> {
        let file = self.file();
        reply(|reply| file.claim_then(self.limit(), now, keep_until, max, reply)).await
    }

    /// Ends an attempt of a message, which can then be seen until `keep_until` if it ends with it.
    ///
    /// # Errors
    /// If the storage cannot be written.
    pub async fn end(
        &self,
        attempt: (Id, u32),
        end: End,
        now: u64,
        keep_until: u64,
    ) -> Result<bool, QueueError> {
        let file = self.file();
        let ended = reply(|reply| file.end_then(attempt, end, now, keep_until, reply)).await;
        self.wake.notify_one();
        ended
    }

    /// Cancels a message of this owner that waits. It can be seen until `keep_until`.
    ///
    /// # Errors
    /// If the storage cannot be written.
    pub async fn cancel(
        &self,
        id: Id,
        owner: [u8; 32],
        now: u64,
        keep_until: u64,
    ) -> Result<Cancelled, QueueError> {
        self.blocking(move |file, _| file.cancel(id, owner, now, keep_until)).await
    }

    /// The message of this name, of any queue in the same storage.
    ///
    /// # Errors
    /// If the storage cannot be read.
    pub async fn get(&self, id: Id) -> Result<Option<Entry>, QueueError> {
        self.blocking(move |file, _| file.get(id)).await
    }

    /// A page of the dead letters, or of the messages that have not ended: those whose number is above `after`.
    ///
    /// # Errors
    /// If the storage cannot be read.
    pub async fn list(&self, failed: bool, after: u64, max: usize) -> Result<Vec<Entry>, QueueError> {
        self.blocking(move |file, limit| file.list(limit, failed, after, max)).await
    }

    /// Whether messages of this key have to be delivered before a new one.
    ///
    /// # Errors
    /// If the storage cannot be read.
    pub async fn has_backlog(&self, key: [u8; 32], in_order: bool, now: u64) -> Result<bool, QueueError> {
        self.blocking(move |file, limit| file.has_backlog(limit, &key, in_order, now)).await
    }

    /// When the next message may be due, 0 if one may be now; `None` if none waits.
    ///
    /// # Errors
    /// If the storage cannot be read.
    pub async fn next_due(&self) -> Result<Option<u64>, QueueError> {
        self.blocking(move |file, limit| file.next_due(limit)).await
    }

    /// Ends messages whose time is over, removes those that are to be forgotten, and reads the figures.
    ///
    /// # Errors
    /// If the storage cannot be read or written.
    pub async fn care(self: &Arc<Self>, now: u64, keep_until: u64) -> Result<Figures, QueueError> {
        let state = Arc::clone(self);
        self.blocking(move |file, _| {
            while file.expire(now, keep_until, MAX_EXPIRED)? >= MAX_EXPIRED as u64 {}
            state.read_figures()
        })
        .await
    }

    /// Reads the figures.
    ///
    /// # Errors
    /// If the storage cannot be read.
    pub async fn figures(self: &Arc<Self>) -> Result<Figures, QueueError> {
        let state = Arc::clone(self);
        self.blocking(move |_, _| state.read_figures()).await
    }

    /// Queues dead letters again until `expires`. Returns how many there were.
    ///
    /// # Errors
    /// If the storage cannot be written.
    pub async fn retry(&self, which: DeadLetters, now: u64, expires: u64) -> Result<u64, QueueError> {
        self.begin_accept();
        let count = self.blocking(move |file, _| file.retry(which, now, expires)).await;
        self.wake.notify_one();
        count
    }

    /// Removes dead letters. Returns how many there were.
    ///
    /// # Errors
    /// If the storage cannot be written.
    pub async fn drop_failed(&self, which: DeadLetters) -> Result<u64, QueueError> {
        self.blocking(move |file, _| file.drop_failed(which)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&QueueFile, &str) -> Result<T, QueueError> + Send + 'static,
    ) -> Result<T, QueueError> {
        let (file, limit) = (self.file(), self.limit().to_owned());
        let done = spawn_blocking(move || call(&file, &limit));
        done.await.unwrap_or_else(|error| Err(QueueError::Storage(error.to_string())))
    }
}

/// Makes a call that replies later.
async fn reply<T: Send + 'static>(
    call: impl FnOnce(Box<dyn FnOnce(Result<T, QueueError>) + Send>) -> Result<(), QueueError>,
) -> Result<T, QueueError> {
    let (sender, receiver) = oneshot::channel();
    call(Box::new(move |outcome| _ = sender.send(outcome)))?;
    receiver.await.unwrap_or_else(|_| Err(QueueError::failed()))
}
