//! A server of the test's own, on a socket in a folder of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use redis::{Connection, Value};
use sluicegate_limiter::{Ban, Quota, Time};
use tempfile::TempDir;

use crate::protocol::{self, Algorithms, Reply, StatesReply};
use crate::script_text::{REFUND, RENEW, SPEND, decide};

/// Longer than anything here takes, however slow the machine.
const DEADLINE: Duration = Duration::from_secs(30);

pub(super) const HOLDER: [u8; 8] = *b"gateway1";
/// In microseconds: long enough for a test that lets a hundred years pass.
pub(super) const LEASE: u64 = 5_000_000_000_000_000;

/// Killed when it is dropped.
pub(super) struct Server {
    child: Child,
    folder: TempDir,
}

impl Server {
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(folder.path().join("socket"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server is not installed");
        let log = BufReader::new(child.stdout.take().unwrap());
        let server = Self { child, folder };
        let (ready, wait) = mpsc::channel();
        // It goes on reading, so that the server never waits for somebody to read its log.
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                if line.to_lowercase().contains("ready to accept connections") {
                    let _ = ready.send(());
                }
            }
        });
        wait.recv_timeout(DEADLINE).expect("redis-server does not come up");
        server
    }

    /// A connection on which the scripts run by the server's own clock.
    pub(super) fn connect(&self) -> Store {
        self.connect_with(str::to_owned)
    }

    /// A connection on which the scripts run at the time that each call says, and keys live for hours, so that the
    /// server's own clock forgets nothing.
    pub(super) fn connect_timeless(&self) -> Store {
        let mut store = self.connect_with(|script| {
            let answered = script
                .replacen("redis.call('TIME')", "{ARGV[#ARGV - 1], ARGV[#ARGV]}", 1)
                .replacen("math.ceil(micros / 1000) + 1", "10000000", 1);
            assert!(answered.contains("#ARGV") && answered.contains("10000000"));
            answered
        });
        store.timeless = true;
        store
    }

    /// A connection for any command.
    pub(super) fn connection(&self) -> Connection {
        let url = format!("unix://{}", self.folder.path().join("socket").display());
        let connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        connection.set_read_timeout(Some(DEADLINE)).unwrap();
        connection.set_write_timeout(Some(DEADLINE)).unwrap();
        connection
    }

    fn connect_with(&self, change: impl Fn(&str) -> String) -> Store {
        let mut connection = self.connection();
        let all = [REFUND, SPEND, RENEW].into_iter().chain(Algorithms::ALL.map(decide));
        let scripts = all.map(|script| {
            redis::cmd("SCRIPT").arg("LOAD").arg(change(script)).query(&mut connection).unwrap()
        });
        let scripts = scripts.collect();
        Store { connection, scripts, timeless: false, now: 0 }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection, with the scripts.
pub(super) struct Store {
    pub(super) connection: Connection,
    /// Refund, spend, renew, and those that decide.
    scripts: Vec<String>,
    timeless: bool,
    /// The microsecond at which a timeless script runs.
    pub(super) now: u64,
}

impl Store {
    fn call(&mut self, script: usize, keys: &[String], fixed: &[&[u8]], arguments: &[Vec<u8>]) -> Value {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.scripts[script]).arg(keys.len()).arg(keys).arg(fixed).arg(arguments);
        if self.timeless {
            command.arg(self.now / 1_000_000).arg(self.now % 1_000_000);
        }
        command.query(&mut self.connection).unwrap()
    }

    /// The arguments as they are sent now.
    fn at(&self, arguments: &[Vec<u8>], quotas: &[&Quota]) -> Vec<Vec<u8>> {
        let now = || Time::from_nanos(self.now * 1_000);
        let sent = |(argument, quota): (&Vec<u8>, &&Quota)| protocol::at(argument, quota, now).into_owned();
        arguments.iter().zip(quotas).map(sent).collect()
    }

    pub(super) fn decide(
        &mut self,
        keys: &[String],
        quotas: &[&Quota],
        deadline: u64,
        requests: u32,
        arguments: &[Vec<u8>],
    ) -> Reply {
        self.decide_with_bans(keys, quotas, &[], deadline, requests, arguments)
    }

    /// The keys of bans are the last.
    pub(super) fn decide_with_bans(
        &mut self,
        keys: &[String],
        quotas: &[&Quota],
        bans: &[Ban],
        deadline: u64,
        requests: u32,
        arguments: &[Vec<u8>],
    ) -> Reply {
        let fixed = [
            deadline.to_string(),
            requests.to_string(),
            String::from_utf8_lossy(&HOLDER).into(),
            LEASE.to_string(),
        ];
        let script = 3 + Algorithms::of(quotas.iter().copied()) as usize;
        let arguments = self.at(arguments, quotas);
        let reply = self.call(script, keys, &fixed.each_ref().map(String::as_bytes), &arguments);
        Reply::read(&reply, quotas, bans).unwrap()
    }

    pub(super) fn refund(
        &mut self,
        keys: &[String],
        quotas: &[&Quota],
        arguments: &[Vec<u8>],
    ) -> StatesReply {
        let arguments = self.at(arguments, quotas);
        let reply = self.call(0, keys, &[&HOLDER], &arguments);
        StatesReply::read(&reply, quotas).unwrap()
    }

    pub(super) fn spend(&mut self, keys: &[String], quotas: &[&Quota], arguments: &[Vec<u8>]) -> StatesReply {
        let arguments = self.at(arguments, quotas);
        let reply = self.call(1, keys, &[], &arguments);
        StatesReply::read(&reply, quotas).unwrap()
    }

    pub(super) fn renew(
        &mut self,
        keys: &[String],
        quotas: &[&Quota],
        holders: [&[u8]; 2],
        lease: u64,
        places: &[u64],
    ) -> StatesReply {
        let places: Vec<Vec<u8>> = places.iter().map(|places| places.to_string().into_bytes()).collect();
        let lease = lease.to_string();
        let reply = self.call(2, keys, &[holders[0], holders[1], lease.as_bytes()], &places);
        StatesReply::read(&reply, quotas).unwrap()
    }

    /// A command with words for arguments.
    pub(super) fn command<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.connection).unwrap()
    }

    pub(super) fn put(&mut self, key: &str, value: &[u8]) {
        redis::cmd("SET").arg(key).arg(value).exec(&mut self.connection).unwrap();
    }

    pub(super) fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        redis::cmd("GET").arg(key).query(&mut self.connection).unwrap()
    }
}

/// The time of a reply, which must be a decision.
pub(super) fn decided(reply: Reply) -> (Time, u32, Vec<sluicegate_counters::RemoteState>) {
    let decided = reply.decided.expect("expired without a deadline");
    (reply.now, decided.admitted, decided.keys.into_vec())
}
