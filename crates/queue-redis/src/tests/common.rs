//! A server of a test's own, and queues on it with the calls that a file has.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sluicegate_counters_redis::{Address, Clock, Deployment, Settings};
use sluicegate_limiter::Time;
use sluicegate_queue::{
    Accepted, Bounds, Cancelled, Claims, DeadLetters, End, Entry, Figures, Id, Message, Overdue, Refused,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{RedisQueue, RedisQueueError};

#[path = "../../../queue-sqlite/tests/it/messages.rs"]
mod messages;

pub(crate) use self::messages::*;

const PATIENCE: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, RedisQueueError>;

/// A server on a socket in a folder. Killed when it is dropped.
pub(crate) struct Server {
    folder: TempDir,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A server, and the path of its socket.
pub(crate) fn place() -> (Server, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let child = Command::new("redis-server")
        .args(["--port", "0", "--unixsocket"])
        .arg(&socket)
        .args(["--dir"])
        .arg(folder.path())
        .args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed");
    let server = Server { folder, child };
    let begun = Instant::now();
    while connection(&socket).is_err() {
        assert!(begun.elapsed() < PATIENCE, "redis-server does not come up");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(server.folder.path().exists());
    (server, socket)
}

fn connection(socket: &Path) -> redis::RedisResult<redis::Connection> {
    redis::Client::open(format!("unix://{}", socket.display()))?.get_connection()
}

/// Queues on a server, by their limits, with the calls of a file.
pub(crate) struct Store {
    socket: PathBuf,
    runtime: Runtime,
    queues: RefCell<BTreeMap<String, RedisQueue>>,
    connection: RefCell<redis::Connection>,
}

pub(crate) fn open(socket: &Path) -> Store {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let connection = RefCell::new(connection(socket).unwrap());
    let store = Store { socket: socket.to_owned(), runtime, queues: RefCell::default(), connection };
    store.set_clock(NOW);
    store
}

/// Claims are left to others when their lease has ended.
pub(crate) fn reopen(store: Store, socket: &Path) -> Store {
    drop(store);
    let store = open(socket);
    let connection = &mut connection(socket).unwrap();
    let claimed = format!("test:{{queue:{LIMIT}}}:claimed");
    let ids: Vec<String> = redis::cmd("ZRANGE").arg(&claimed).arg(0).arg(-1).query(connection).unwrap();
    for id in ids {
        redis::cmd("ZADD").arg(&claimed).arg(0).arg(id).exec(connection).unwrap();
    }
    let figures = format!("test:{{queue:{LIMIT}}}:figures");
    redis::cmd("HDEL").arg(figures).arg("clock").exec(connection).unwrap();
    store.with(LIMIT, async |queue| queue.claim(NOW, 1, 0).await).unwrap();
    store
}

impl Store {
    pub(crate) fn set_clock(&self, now: u64) {
        redis::cmd("SET").arg("clock").arg(now).exec(&mut self.connection.borrow_mut()).unwrap();
    }

    /// Bounds the memory of the server, in bytes; 0 for no bound.
    pub(crate) fn set_max_memory(&self, bytes: u64) {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("maxmemory").arg(bytes).exec(&mut self.connection.borrow_mut()).unwrap();
    }

    fn clock(&self) -> u64 {
        redis::cmd("GET").arg("clock").query(&mut self.connection.borrow_mut()).unwrap()
    }

    /// Runs a call on the queue of a limit.
    pub(crate) fn with<T>(&self, limit: &str, call: impl AsyncFnOnce(&RedisQueue) -> Result<T>) -> Result<T> {
        let mut queues = self.queues.borrow_mut();
        let queue = queues.entry(limit.to_owned()).or_insert_with(|| {
            let _inside = self.runtime.enter();
            let settings = Settings {
                servers: Deployment::Single(Address::Unix(self.socket.clone())),
                username: None,
                password: None,
                database: 0,
                tls: None,
                timeout: Duration::from_secs(10),
                prefix: "test".into(),
                gateways: 1,
                is_home: false,
                state_folder: self.socket.parent().unwrap().to_owned(),
            };
            let clock = Clock::new(Instant::now(), Time::from_nanos(0));
            let queue = RedisQueue::open(&settings, &clock, limit, limit);
            let begun = Instant::now();
            while queue.durability().is_none() {
                assert!(begun.elapsed() < PATIENCE, "there is no connection");
                std::thread::sleep(Duration::from_millis(1));
            }
            queue
        });
        self.runtime.block_on(call(queue))
    }

    pub(crate) fn accept(
        &self,
        message: Message,
        bounds: Bounds,
    ) -> Result<std::result::Result<Accepted, Refused>> {
        self.set_clock(message.accepted);
        let limit = message.limit.clone();
        self.with(&limit, async |queue| queue.accept(&message, bounds).await)
    }

    pub(crate) fn claim(&self, limit: &str, now: u64, keep: u64, max: usize) -> Result<Claims> {
        self.set_clock(now);
        self.with(limit, async |queue| queue.claim(now, keep.saturating_sub(now), max).await)
    }

    pub(crate) fn end(&self, id: Id, claim: u64, end: End, now: u64, keep: u64) -> Result<bool> {
        self.set_clock(now);
        self.with(LIMIT, async |queue| queue.end(id, claim, &end, now, keep.saturating_sub(now)).await)
    }

    pub(crate) fn cancel(&self, id: Id, owner: [u8; 32], now: u64, keep: u64) -> Result<Cancelled> {
        self.set_clock(now);
        self.with(LIMIT, async |queue| queue.cancel(id, &owner, keep.saturating_sub(now)).await)
    }

    pub(crate) fn expire(&self, limit: &str, now: u64, keep: u64, max: usize) -> Result<Overdue> {
        self.set_clock(now);
        self.with(limit, async |queue| queue.expire(keep.saturating_sub(now), max).await)
    }

    pub(crate) fn retry(&self, which: DeadLetters, now: u64, expires: u64) -> Result<u64> {
        self.set_clock(now);
        self.with(LIMIT, async |queue| queue.retry(&which, expires - now).await)
    }

    pub(crate) fn wake(&self, limit: &str) -> Result<u64> {
        self.with(limit, async |queue| queue.wake(1_000).await)
    }

    pub(crate) fn drop_failed(&self, which: DeadLetters) -> Result<u64> {
        self.with(LIMIT, async |queue| queue.drop_failed(&which).await)
    }

    pub(crate) fn get(&self, id: Id) -> Result<Option<Entry>> {
        self.with(LIMIT, async |queue| queue.get(id, self.clock()).await)
    }

    pub(crate) fn list(&self, limit: &str, failed: bool, after: u64, max: usize) -> Result<Vec<Entry>> {
        self.with(limit, async |queue| queue.list(failed, after, max, self.clock()).await)
    }

    pub(crate) fn figures(&self) -> Result<Vec<(String, Figures)>> {
        let limits: Vec<String> = self.queues.borrow().keys().cloned().collect();
        let figures = |limit: String| {
            let figures = self.with(&limit, async |queue| queue.figures(self.clock()).await)?;
            Ok((limit, figures))
        };
        limits.into_iter().map(figures).collect()
    }

    pub(crate) fn has_backlog(&self, limit: &str, key: &[u8], in_order: bool, now: u64) -> Result<bool> {
        self.set_clock(now);
        self.with(limit, async |queue| queue.has_backlog(key, in_order).await)
    }
}
