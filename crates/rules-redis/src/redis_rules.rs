//! The rules that several gateways share.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_counters_redis::{Clock, Locator, Settings};
use sluicegate_rules::{Batch, Changes, Head, Stored, Written};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::ear::listen;
use crate::error::{ReadError, WriteError};
use crate::follower::{Event, Follower};
use crate::names::{Names, TAG};
use crate::read::Store;
use sluicegate_redis_link::Line;
use sluicegate_redis_link::keep;

/// So many messages wait to be told.
const HEARD: usize = 1_024;

/// Rules in Redis: one server, the master that sentinels name, or the node of a cluster that holds the slot of `{rules}`.
///
/// Any number of tasks and threads may use it. It keeps two connections open, one for commands and one that listens; a server
/// that is away is tried again after 50 to 250 ms, for ever. No call takes longer than the time-out, or, where its answer can
/// be of any size, four times that; while no connection can be opened, calls fail at once. Dropping it ends its tasks.
///
/// The server needs `maxmemory-policy noeviction` or one of the `volatile-` policies: rules do not expire, and must not be
/// evicted. The user needs `~PREFIX:{rules}:*` and `&PREFIX:{rules}:*`.
pub struct RedisRules {
    store: Arc<Store>,
    _tasks: JoinSet<()>,
}

impl RedisRules {
    /// Begins to connect, without waiting for it, and tells from now on what changes. `timeout` is the longest time for an
    /// answer to a small question, for example 250 ms; that of the settings is for counters and is not used. `tell` is called
    /// by a task of the runtime: it must not block.
    ///
    /// # Panics
    /// Outside of a runtime of tokio with timers and I/O.
    pub fn open(
        settings: Settings,
        clock: Clock,
        timeout: Duration,
        tell: impl FnMut(Event) + Send + 'static,
    ) -> Self {
        let line = Arc::new(Line::default());
        let names = Names::new(&settings.prefix, settings.database);
        let channel = names.channel.clone();
        let store = Arc::new(Store { names, line: Arc::clone(&line), timeout });
        let (hear, heard) = mpsc::channel(HEARD);
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(Arc::new(settings.clone()), channel, line.states(), hear));
        tasks.spawn(keep(line, Locator::new(settings, clock, TAG)));
        tasks.spawn(Follower::new(Arc::clone(&store), heard, tell).follow());
        Self { store, _tasks: tasks }
    }

    /// The rules of a limit whose key is one of `keys` and no pattern, in the order of `keys`, then of ids. One round trip. A
    /// rule that cannot be read is a [`ReadError::Content`].
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn exact(
        &self,
        limit: &str,
        keys: &[String],
    ) -> Result<Vec<Result<Stored, ReadError>>, ReadError> {
        self.store.exact(limit, keys).await
    }

    /// All rules of all limits whose keys are patterns, in no order, and the version of the store that they are of. Takes up
    /// to four times the time-out. A rule that cannot be read is a [`ReadError::Content`].
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn patterns(&self) -> Result<(u64, Vec<Result<Stored, ReadError>>), ReadError> {
        self.store.patterns().await
    }

    /// The limits that have rules, in the order of the bytes of their names. Takes up to four times the time-out.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn limits(&self) -> Result<Vec<String>, ReadError> {
        self.store.limits().await
    }

    /// The rule of this id.
    ///
    /// # Errors
    /// If Redis does not answer, or the rule cannot be read.
    pub async fn get(&self, id: &str) -> Result<Option<Stored>, ReadError> {
        self.store.get(id).await
    }

    /// A page of rules: at most `most` of them in the order of the bytes of their ids, those after the id `after`; only those
    /// of a limit and only those with exactly this key or pattern, if given. The last id of a page is the `after` of the next
    /// one.
    ///
    /// Two or three calls for each 2,000 rules, each up to four times the time-out: a rule that is changed meanwhile is as it
    /// was at one of them, and one that moves to another limit meanwhile may be missing.
    ///
    /// # Errors
    /// If Redis does not answer, or a rule cannot be read.
    pub async fn list(
        &self,
        limit: Option<&str>,
        key: Option<&str>,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<Stored>, ReadError> {
        self.page(limit, key, after, most).await?.into_iter().collect()
    }

    /// The same, with an error in the place of each rule that cannot be read.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn page(
        &self,
        limit: Option<&str>,
        key: Option<&str>,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<Result<Stored, ReadError>>, ReadError> {
        self.store.page(limit, key, after, most).await
    }

    /// How many rules there are.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn count(&self) -> Result<u64, ReadError> {
        self.store.count().await
    }

    /// Where the store stands.
    ///
    /// # Errors
    /// If Redis does not answer, or has to give a new store its epoch and cannot.
    pub async fn version(&self) -> Result<Head, ReadError> {
        let head = self.store.head().await?;
        Ok(Head { epoch: head.epoch, version: head.version })
    }

    /// The changes after the version `since`, about `most` of them: all of a version or none, and at least those of the next
    /// version. About the last 100,000 changes are kept. A version of another epoch means nothing here, which is for the
    /// caller to notice. Takes up to four times the time-out.
    ///
    /// # Errors
    /// If Redis does not answer, or a change cannot be read.
    pub async fn changes(&self, since: u64, most: usize) -> Result<Changes, ReadError> {
        Ok(self.store.since(since, most, false).await?.changes)
    }

    /// Writes a batch, all of it or nothing, in one script; batches above 5,000 changes are sent ahead in pieces. Returns when
    /// Redis has executed it, which says nothing about its disk or its replicas. Takes up to the time-out and 0.1 ms for each
    /// change, twice that if it is sent in pieces.
    ///
    /// While the script runs, the server does nothing else, neither for other gateways nor for counters: 10 to 15 µs for each
    /// change of a small batch, up to 20 of a large one (Redis 7.0, a core of a virtual machine). That is 10 to 15 ms for 1,000
    /// changes, 50 to 70 ms for 5,000, 0.3 s for 20,000 and 1.5 to 2 s for 100,000. Counters whose time-out is shorter count it
    /// as an outage: where 1,000 rules need not change at one moment, send batches of 1,000.
    ///
    /// A stored rule that cannot be read can be replaced and deleted; the rule before is missing in the outcome then.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn write(&self, batch: Batch) -> Result<Written, WriteError> {
        self.store.write(batch).await
    }
}

impl std::fmt::Debug for RedisRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisRules").field("names", &self.store.names).finish_non_exhaustive()
    }
}
