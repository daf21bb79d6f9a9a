//! The calls to the storage of a queue. None of them blocks the thread. A message that ends can be seen for `keep` milliseconds.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::error::QueueError;
use super::state::{QueueState, SharedFile, Storage};
use sluicegate_base::boxed_future::spawn_blocking;
use sluicegate_base::queue_event::QueueEvent;
use sluicegate_queue::{
    Accepted, Bounds, Cancelled, Claims, DeadLetters, End, Entry, Figures, Id, Message, Overdue, Refused,
};
use sluicegate_queue_sqlite::QueueFile;

/// The most messages that are ended or removed at a time because their time is over.
const MAX_EXPIRED: usize = 1_000;

type FileResult<T> = Result<T, sluicegate_queue_sqlite::QueueError>;

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
        let stored = match &self.storage {
            Storage::File(shared) => {
                reply(|reply| shared.file.load().accept_then(message, bounds, reply)).await?
            }
            Storage::Redis(remote) => remote.queue.accept(&message, bounds).await?,
        };
        self.begin_accept(); // discards figures that were read before it was stored
        self.wake.notify_one();
        Ok(stored)
    }

    /// Begins an attempt for each of at most `max` messages that are due. A message whose time is over is ended instead.
    ///
    /// # Errors
    /// If the storage cannot be written.
    pub async fn claim(&self, now: u64, keep: u64, max: usize) -> Result<Claims, QueueError> {
        let until = now.saturating_add(keep);
        let claims = match &self.storage {
            Storage::File(shared) => {
                reply(|reply| shared.file.load().claim_then(self.limit(), now, until, max, reply)).await?
            }
            Storage::Redis(remote) => remote.queue.claim(now, keep, max).await?,
        };
        self.count_expired(claims.expired);
        Ok(claims)
    }

    /// Renews claims, and returns for each whether this process still holds it. A claim that is not renewed in time is lost.
    ///
    /// # Errors
    /// If the storage cannot be written.
    pub async fn renew(&self, claims: &[(Id, u64)]) -> Result<Vec<bool>, QueueError> {
        match &self.storage {
            Storage::File(_) => Ok(vec![true; claims.len()]),
            Storage::Redis(remote) => Ok(remote.queue.renew(claims).await?),
        }
    }

    /// Ends the attempt of a claim. Returns whether it was still in progress.
    ///
    /// # Errors
    /// If the storage cannot be written.
    pub async fn end(&self, claim: (Id, u64), end: End, now: u64, keep: u64) -> Result<bool, QueueError> {
        let until = now.saturating_add(keep);
        let ended = match &self.storage {
            Storage::File(shared) => {
                reply(|reply| shared.file.load().end_then(claim, end, now, until, reply)).await?
            }
            Storage::Redis(remote) => remote.queue.end(claim.0, claim.1, &end, now, keep).await?,
        };
        self.wake.notify_one();
        Ok(ended)
    }

    /// Cancels a message of this owner that waits.
    ///
    /// # Errors
    /// If the storage cannot be written.
    pub async fn cancel(
        &self,
        id: Id,
        owner: [u8; 32],
        now: u64,
        keep: u64,
    ) -> Result<Cancelled, QueueError> {
        let cancelled = match &self.storage {
            Storage::File(shared) => {
                blocking(shared, move |file| file.cancel(id, owner, now, now.saturating_add(keep))).await?
            }
            Storage::Redis(remote) => remote.queue.cancel(id, &owner, keep).await?,
        };
        if cancelled == Cancelled::Done {
            self.counts.count(QueueEvent::Cancelled);
        }
        Ok(cancelled)
    }

    /// The message of this name, of any queue in the same storage.
    ///
    /// # Errors
    /// If the storage cannot be read.
    pub async fn get(&self, id: Id, now: u64) -> Result<Option<Entry>, QueueError> {
        match &self.storage {
            Storage::File(shared) => blocking(shared, move |file| file.get(id)).await,
            Storage::Redis(remote) => Ok(remote.queue.get(id, now).await?),
        }
    }

    /// A page of the dead letters, or of the messages that have not ended: those whose number is above `after`.
    ///
    /// # Errors
    /// If the storage cannot be read.
    pub async fn list(
        &self,
        failed: bool,
        after: u64,
        max: usize,
        now: u64,
    ) -> Result<Vec<Entry>, QueueError> {
        match &self.storage {
            Storage::File(shared) => {
                let limit = self.limit().to_owned();
                blocking(shared, move |file| file.list(&limit, failed, after, max)).await
            }
            Storage::Redis(remote) => Ok(remote.queue.list(failed, after, max, now).await?),
        }
    }

    /// Whether messages of this key have to be delivered before a new one: one is due, or with `in_order` one has not ended.
    ///
    /// # Errors
    /// If the storage cannot be read.
    pub async fn has_backlog(&self, key: [u8; 32], in_order: bool, now: u64) -> Result<bool, QueueError> {
        match &self.storage {
            Storage::File(shared) => {
                let limit = self.limit().to_owned();
                blocking(shared, move |file| file.has_backlog(&limit, &key, in_order, now)).await
            }
            Storage::Redis(remote) => Ok(remote.queue.has_backlog(&key, in_order).await?),
        }
    }

    /// Ends messages whose time is over, removes those that ended long ago, and reads the figures.
    ///
    /// # Errors
    /// If the storage cannot be read or written.
    pub async fn care(&self, now: u64, keep: u64) -> Result<Figures, QueueError> {
        loop {
            let Overdue { expired, removed } = match &self.storage {
                Storage::File(shared) => {
                    let (limit, until) = (self.limit().to_owned(), now.saturating_add(keep));
                    blocking(shared, move |file| file.expire(&limit, now, until, MAX_EXPIRED)).await?
                }
                Storage::Redis(remote) => remote.queue.expire(keep, MAX_EXPIRED).await?,
            };
            self.count_expired(expired);
            if expired.max(removed) < MAX_EXPIRED as u64 {
                break;
            }
        }
        self.figures(now).await
    }

    fn count_expired(&self, count: u64) {
        if count > 0 {
            self.counts.add(QueueEvent::Expired, count);
            tracing::warn!(
                "{count} queued requests of the limit `{}` have expired: they were not delivered",
                self.limit()
            );
        }
    }

    /// Reads the figures.
    ///
    /// # Errors
    /// If the storage cannot be read.
    pub async fn figures(&self, now: u64) -> Result<Figures, QueueError> {
        let accepted = self.accepted();
        let figures = match &self.storage {
            Storage::File(shared) => {
                let limit = self.limit().to_owned();
                blocking(shared, move |file| figures_of(file, &limit)).await?
            }
            Storage::Redis(remote) => remote.queue.figures(now).await?,
        };
        self.set_figures(figures, accepted);
        Ok(figures)
    }

    /// Queues dead letters again for `ttl` milliseconds. Returns how many there were.
    ///
    /// # Errors
    /// If the storage cannot be written.
    pub async fn retry(&self, which: DeadLetters, now: u64, ttl: u64) -> Result<u64, QueueError> {
        self.begin_accept();
        let count = match &self.storage {
            Storage::File(shared) => {
                blocking(shared, move |file| file.retry(which, now, now.saturating_add(ttl))).await?
            }
            Storage::Redis(remote) => remote.queue.retry(&which, ttl).await?,
        };
        self.begin_accept();
        self.wake.notify_one();
        Ok(count)
    }

    /// Gives paused consumers a turn again: their limits may admit now what they did not admit before.
    ///
    /// # Errors
    /// If the storage cannot be written.
    pub async fn wake_consumers(&self) -> Result<u64, QueueError> {
        match &self.storage {
            Storage::File(shared) => {
                let limit = self.limit().to_owned();
                blocking(shared, move |file| file.wake(&limit)).await
            }
            Storage::Redis(remote) => Ok(remote.queue.wake(MAX_EXPIRED).await?),
        }
    }

    /// Removes dead letters. Returns how many there were.
    ///
    /// # Errors
    /// If the storage cannot be written.
    pub async fn drop_failed(&self, which: DeadLetters) -> Result<u64, QueueError> {
        match &self.storage {
            Storage::File(shared) => blocking(shared, move |file| file.drop_failed(which)).await,
            Storage::Redis(remote) => Ok(remote.queue.drop_failed(&which).await?),
        }
    }
}

/// The figures of the queue of a limit.
pub(super) fn figures_of(file: &QueueFile, limit: &str) -> FileResult<Figures> {
    let figures = file.figures()?.into_iter().find(|(of, _)| of == limit);
    Ok(figures.map(|(_, figures)| figures).unwrap_or_default())
}

async fn blocking<T: Send + 'static>(
    shared: &Arc<SharedFile>,
    call: impl FnOnce(&QueueFile) -> FileResult<T> + Send + 'static,
) -> Result<T, QueueError> {
    let file = shared.file.load_full();
    let done = spawn_blocking(move || call(&file));
    let done = done.await.map_err(|error| QueueError::Internal(error.to_string()))?;
    Ok(done?)
}

/// Makes a call that replies later.
async fn reply<T: Send + 'static>(
    call: impl FnOnce(Box<dyn FnOnce(FileResult<T>) + Send>) -> FileResult<()>,
) -> FileResult<T> {
    let (sender, receiver) = oneshot::channel();
    call(Box::new(move |outcome| _ = sender.send(outcome)))?;
    receiver.await.unwrap_or_else(|_| Err(sluicegate_queue_sqlite::QueueError::failed()))
}
