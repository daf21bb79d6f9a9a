//! What the tests share: a server of a test's own, stores that use it, and batches.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue};
use sluicegate_counters_redis::{Address, Clock, Deployment, Settings};
use sluicegate_limiter::Time;
use sluicegate_rules::{Batch, Changes, Head, Op, Precondition, Rule, Stored, Write, Written};
use sluicegate_rules_redis::{Event, ReadError, RedisRules, WriteError};
use tempfile::TempDir;

/// No test takes longer, even on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Longer than anything that is no failure takes on a busy machine.
pub(crate) const PATIENT: Duration = Duration::from_secs(10);

/// A server on a socket in a folder of its own. Killed when it is dropped.
pub(crate) struct Server {
    folder: TempDir,
    child: Child,
}

impl Server {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = run(folder.path().join("socket"));
        let server = Self { folder, child };
        server.wait();
        server
    }

    /// Kills it without warning; nothing that it knew is kept.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again.
    pub(crate) fn again(&mut self) {
        _ = std::fs::remove_file(self.socket());
        self.child = run(self.socket());
        self.wait();
    }

    /// Nothing is executed and no connection is closed until the signal `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.unwrap().success());
    }

    /// A command with words for arguments.
    pub(crate) fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        redis::cmd(words[0]).arg(&words[1..]).query(&mut self.connection().unwrap()).unwrap()
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            servers: Deployment::Single(Address::Unix(self.socket())),
            username: None,
            password: None,
            database: 0,
            tls: None,
            timeout: Duration::from_millis(50),
            prefix: "test".into(),
            gateways: 1,
            is_home: false,
            state_folder: self.folder.path().to_owned(),
        }
    }

    /// Waits until so many stores listen.
    pub(crate) fn wait_for_listeners(&self, stores: u64) {
        let (begun, channel) = (Instant::now(), "test:{rules}:changed:0");
        while self.command::<(String, u64)>(&["PUBSUB", "NUMSUB", channel]).1 != stores {
            assert!(begun.elapsed() < DEADLINE, "they do not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A store whose calls have as long as a busy machine may take.
    pub(crate) fn store(&self) -> Store {
        self.store_within(PATIENT).0
    }

    /// A store whose calls have so long, and what it tells, each with the time.
    pub(crate) fn store_within(&self, timeout: Duration) -> (Store, Events) {
        open(self.settings(), timeout)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn connection(&self) -> redis::RedisResult<Connection> {
        redis::Client::open(format!("unix://{}", self.socket().display()))?.get_connection()
    }

    fn wait(&self) {
        let begun = Instant::now();
        let answers = || self.connection().and_then(|mut c| redis::cmd("PING").exec(&mut c)).is_ok();
        while !answers() {
            assert!(begun.elapsed() < DEADLINE, "redis-server does not come up");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A store with these settings, and what it tells.
pub(crate) fn open(settings: Settings, timeout: Duration) -> (Store, Events) {
    let (tell, reply) = channel();
    let now = Clock::new(Instant::now(), Time::from_nanos(0));
    let tell = move |event| _ = tell.send((Instant::now(), event));
    (Store(RedisRules::open(settings, now, timeout, tell)), Events(reply))
}

/// A store whose calls are made again while Redis is away. They were not executed, and a machine that stops for a second lets
/// Redis look away.
pub(crate) struct Store(pub(crate) RedisRules);

macro_rules! reads {
    ($(fn $read:ident($($argument:ident: $kind:ty),*) -> $found:ty;)+) => {$(
        pub(crate) async fn $read(&self, $($argument: $kind),*) -> Result<$found, ReadError> {
            let begun = Instant::now();
            loop {
                match self.0.$read($($argument),*).await {
                    Err(ReadError::Away(_)) if begun.elapsed() < PATIENT => pause().await,
                    found => return found,
                }
            }
        }
    )+};
}

impl Store {
    reads! {
        fn exact(limit: &str, keys: &[String]) -> Vec<Result<Stored, ReadError>>;
        fn patterns() -> (u64, Vec<Result<Stored, ReadError>>);
        fn limits() -> Vec<String>;
        fn get(id: &str) -> Option<Stored>;
        fn list(limit: Option<&str>, key: Option<&str>, after: Option<&str>, most: usize) -> Vec<Stored>;
        fn count() -> u64;
        fn version() -> Head;
        fn changes(since: u64, most: usize) -> Changes;
    }

    pub(crate) async fn write(&self, batch: Batch) -> Result<Written, WriteError> {
        let begun = Instant::now();
        loop {
            match self.0.write(batch.clone()).await {
                Err(WriteError::Away(_)) if begun.elapsed() < PATIENT => pause().await,
                written => return written,
            }
        }
    }
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

fn run(socket: PathBuf) -> Child {
    let mut server = Command::new("redis-server");
    server.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(socket);
    server.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("redis-server is not installed")
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// What a store has told.
pub(crate) struct Events(Receiver<(Instant, Event)>);

impl Events {
    /// The next one, and when it was told. Blocks.
    pub(crate) fn next(&self) -> (Instant, Event) {
        self.0.recv_timeout(DEADLINE).expect("nothing is told")
    }

    /// The next one that is no outage.
    pub(crate) fn next_but_outages(&self) -> (Instant, Event) {
        std::iter::repeat_with(|| self.next()).find(|(_, event)| !is_outage(event)).unwrap()
    }

    /// The next ones until one is `wanted`, which is the last.
    pub(crate) fn until(&self, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut reply = Vec::new();
        loop {
            reply.push(self.next().1);
            if reply.last().is_some_and(&wanted) {
                return reply;
            }
        }
    }

    /// All until the store has told of this version.
    pub(crate) fn until_version(&self, version: u64) -> Vec<Event> {
        self.until(|event| matches!(event, Event::At(head) if head.version == version))
    }

    /// What waits to be taken.
    pub(crate) fn waiting(&self) -> Vec<Event> {
        self.0.try_iter().map(|(_, event)| event).collect()
    }
}

/// All but outages, for tests that cause none: a machine that stops for a second causes one.
pub(crate) fn but_outages(reply: Vec<Event>) -> Vec<Event> {
    reply.into_iter().filter(|event| !is_outage(event)).collect()
}

fn is_outage(event: &Event) -> bool {
    matches!(event, Event::Away(_) | Event::Back)
}

/// Runs a test on a runtime with two threads, for no longer than the deadline.
pub(crate) fn run_test(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let ended = runtime.block_on(async { tokio::time::timeout(DEADLINE, test).await });
    runtime.shutdown_background();
    ended.expect("the test does not end");
}

/// A rule of the limit `api`.
pub(crate) fn rule(id: &str, key: &str, note: &str) -> Rule {
    rule_of("api", id, key, note)
}

/// A rule.
pub(crate) fn rule_of(limit: &str, id: &str, key: &str, note: &str) -> Rule {
    let [id, limit, key, note] = [id, limit, key, note].map(str::to_owned);
    Rule { id, limit, key, note, rate: Some("500/min".into()), ..Rule::default() }
}

/// A change that creates or replaces a rule; a key with `*` is a pattern.
pub(crate) fn put(rule: Rule) -> Write {
    put_if(rule, Precondition::None)
}

pub(crate) fn put_if(rule: Rule, precondition: Precondition) -> Write {
    let pattern = rule.key.contains('*');
    Write { op: Op::Put { rule, pattern }, precondition }
}

/// A change that deletes a rule.
pub(crate) fn delete(id: &str) -> Write {
    Write { op: Op::Delete { id: id.into() }, precondition: Precondition::None }
}

/// A batch of these changes.
pub(crate) fn batch(changes: impl IntoIterator<Item = Write>) -> Batch {
    let changes = changes.into_iter().collect();
    Batch { actor: "test".into(), at: 1_700_000_000_000, dry_run: false, changes }
}

/// The same, as a dry run.
pub(crate) fn dry(changes: impl IntoIterator<Item = Write>) -> Batch {
    Batch { dry_run: true, ..batch(changes) }
}

pub(crate) fn ids(found: &[Stored]) -> Vec<&str> {
    found.iter().map(|stored| stored.rule.id.as_str()).collect()
}

/// Rules that can all be read.
pub(crate) fn readable(read: Vec<Result<Stored, ReadError>>) -> Vec<Stored> {
    read.into_iter().collect::<Result<_, _>>().unwrap()
}
