//! Real Redis servers. Each belongs to one test, which may kill, freeze or reconfigure it.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ::redis::{Client, Cmd, Connection, FromRedisValue, TlsCertificates};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::permits::Permit;
use super::ports::ReservedPort;
use super::{deadline, until};

/// The user of the harness, which keeps access when a test changes the password of the default user.
const OWN: &str = "harness:harness";

/// A server to be started.
#[derive(Default)]
pub struct RedisSetup {
    args: Vec<String>,
    user: Option<String>,
    password: Option<String>,
    database: u8,
    tls: bool,
    unix: bool,
    sentinel: Option<String>,
    clock: bool,
}

/// A running server. It is killed when this is dropped.
pub struct RedisServer {
    /// Where it listens, unless it is on a Unix socket.
    pub address: SocketAddr,
    child: Child,
    setup: RedisSetup,
    folder: TempDir,
    _port: ReservedPort,
    _permit: Arc<Permit>,
}

impl RedisSetup {
    /// One more setting, as in redis.conf.
    pub fn config(mut self, name: &str, values: &[&str]) -> Self {
        self.args.push(format!("--{name}"));
        self.args.extend(values.iter().map(|&value| value.to_owned()));
        self
    }

    /// Clients need this password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.config("requirepass", &[password])
    }

    /// Clients need to be this user, whose permissions are `rules`.
    pub fn user(mut self, name: &str, password: &str, rules: &[&str]) -> Self {
        self.user = Some(name.to_owned());
        self.password = Some(password.to_owned());
        let secret = format!(">{password}");
        self.config("user", &["default", "off"]).config("user", &[&[name, "on", &secret], rules].concat())
    }

    /// The database in its URL.
    pub fn database(mut self, database: u8) -> Self {
        self.database = database;
        self
    }

    /// It accepts only TLS, with a certificate of a CA of its own.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// It listens only on a Unix socket.
    pub fn unix(mut self) -> Self {
        self.unix = true;
        self
    }

    /// It is a sentinel with these lines of sentinel.conf.
    pub fn sentinel(mut self, lines: &str) -> Self {
        self.sentinel = Some(lines.to_owned());
        self
    }

    /// Its clock can be set.
    pub fn clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// Starts it and waits until it answers.
    #[track_caller]
    pub fn start(self) -> RedisServer {
        let permit = Permit::acquire();
        let folder = TempDir::new().unwrap();
        if self.tls {
            certificates(&folder);
        }
        let port = ReservedPort::new();
        let child = self.spawn(&folder, port.address);
        let mut server =
            RedisServer { address: port.address, child, setup: self, folder, _port: port, _permit: permit };
        server.wait();
        server
    }

    /// Starts the process, which can bind the reserved address because the socket that reserves it does not listen.
    fn spawn(&self, folder: &TempDir, address: SocketAddr) -> Child {
        let path = |name: &str| folder.path().join(name).display().to_string();
        let port = address.port().to_string();
        let mut command = Command::new("redis-server");
        if let Some(lines) = &self.sentinel {
            let text = format!("bind 127.0.0.1\nport {port}\nprotected-mode no\ndir {}\n{lines}", path("."));
            fs::write(path("sentinel.conf"), text).unwrap();
            command.arg(path("sentinel.conf")).arg("--sentinel");
        } else {
            command.args([
                "--bind",
                "127.0.0.1",
                "--protected-mode",
                "no",
                "--save",
                "",
                "--appendonly",
                "no",
            ]);
            command.args(["--enable-debug-command", "yes", "--dir", &path(".")]);
            command.args(["--user", "harness", "on", ">harness", "~*", "&*", "+@all"]);
            match (self.unix, self.tls) {
                (true, _) => command.args(["--port", "0", "--unixsocket", &path("socket")]),
                (_, true) => command
                    .args(["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no"])
                    .args(["--tls-cert-file", &path("cert.pem"), "--tls-key-file", &path("key.pem")])
                    .args(["--tls-ca-cert-file", &path("ca.pem")]),
                _ => command.args(["--port", &port]),
            };
            command.args(&self.args);
        }
        if self.clock {
            fs::write(path("clock"), "0").unwrap();
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/harness/clock.c");
            let built = Command::new("cc")
                .args(["-shared", "-fPIC", "-O1", "-o", &path("clock.so"), source])
                .status();
            assert!(built.unwrap().success(), "the C compiler cc builds tests/harness/clock.c");
            command.env("LD_PRELOAD", path("clock.so")).env("CLOCK_FILE", path("clock"));
        }
        let log = fs::OpenOptions::new().create(true).append(true).open(path("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command.spawn().unwrap_or_else(|error| {
            panic!("redis-server does not start ({error}): install the package redis-server")
        })
    }
}

/// A CA, and a certificate of it for this host.
fn certificates(folder: &TempDir) {
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut ca = CertificateParams::new([]).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_cert = ca.self_signed(&ca_key).unwrap();
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let cert =
        CertificateParams::new(names).unwrap().signed_by(&key, &Issuer::from_params(&ca, &ca_key)).unwrap();
    for (name, text) in
        [("ca.pem", ca_cert.pem()), ("cert.pem", cert.pem()), ("key.pem", key.serialize_pem())]
    {
        fs::write(folder.path().join(name), text).unwrap();
    }
}

impl RedisServer {
    /// A server without passwords on a port of its own.
    #[track_caller]
    pub fn start() -> Self {
        Self::setup().start()
    }

    pub fn setup() -> RedisSetup {
        RedisSetup::default()
    }

    /// The URL for these credentials (`user:password`, or none).
    fn url_as(&self, credentials: &str) -> String {
        let database = self.setup.database;
        if self.setup.unix {
            let (user, password) = credentials.split_once(':').unwrap_or_default();
            let path = self.path("socket").display().to_string();
            let credentials = match (user, password) {
                ("", "") => String::new(),
                ("", password) => format!("&pass={password}"),
                (user, password) => format!("&user={user}&pass={password}"),
            };
            return format!("redis+unix://{path}?db={database}{credentials}");
        }
        let scheme = if self.setup.tls { "rediss" } else { "redis" };
        let at = if credentials.is_empty() { "" } else { "@" };
        format!("{scheme}://{credentials}{at}{}/{database}", self.address)
    }

    /// What a user writes into the configuration, with the credentials.
    pub fn url(&self) -> String {
        let user = self.setup.user.as_deref().unwrap_or_default();
        let credentials = self.setup.password.as_ref().map(|password| format!("{user}:{password}"));
        self.url_as(&credentials.unwrap_or_default())
    }

    /// The same without credentials.
    pub fn bare_url(&self) -> String {
        self.url_as("")
    }

    /// The `store` of a configuration, with the longest timeout: it expires only if the test causes a fault.
    pub fn store(&self) -> String {
        self.store_within("10s")
    }

    /// The `store` of a configuration with this timeout.
    pub fn store_within(&self, timeout: &str) -> String {
        let tls =
            if self.setup.tls { format!(", tls: {{ca: {}}}", self.ca().display()) } else { String::new() };
        format!("store: {{redis: {{url: \"{}\", timeout: {timeout}{tls}}}}}\n", self.url())
    }

    /// The CA that has signed its certificate.
    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A client of the harness.
    pub fn client(&self) -> Client {
        let url = self.url_as(if self.setup.sentinel.is_some() { "" } else { OWN });
        if !self.setup.tls {
            return Client::open(url).unwrap();
        }
        let root_cert = Some(fs::read(self.ca()).unwrap());
        Client::build_with_tls(url, TlsCertificates { client_tls: None, root_cert }).unwrap()
    }

    fn connection(&self) -> ::redis::RedisResult<Connection> {
        let connection = self.client().get_connection_with_timeout(deadline())?;
        connection.set_read_timeout(Some(deadline()))?;
        Ok(connection)
    }

    /// Runs one command, as redis-cli does.
    pub fn try_run<T: FromRedisValue>(&self, words: &[&str]) -> ::redis::RedisResult<T> {
        let mut command = Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        command.query(&mut self.connection()?)
    }

    /// Runs one command that has to work.
    #[track_caller]
    pub fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_run(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// A field of INFO, for example `info("replication", "role")`. `None` if the connection is closed meanwhile.
    pub fn info(&self, section: &str, name: &str) -> Option<String> {
        let text: String = self.try_run(&["INFO", section]).ok()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned))
    }

    /// How many times any of these commands was called, by clients and by scripts.
    #[track_caller]
    pub fn calls(&self, commands: &[&str]) -> u64 {
        let text: String = self.run(&["INFO", "commandstats"]);
        let calls = |command: &&str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")))?;
            line.split([',', '=']).nth(1)?.parse::<u64>().ok()
        };
        commands.iter().filter_map(calls).sum()
    }

    /// How many scripts were called: each is a round trip of a gateway.
    #[track_caller]
    pub fn scripts(&self) -> u64 {
        self.calls(&["evalsha", "eval", "fcall"])
    }

    /// All keys.
    #[track_caller]
    pub fn keys(&self) -> Vec<String> {
        self.run(&["KEYS", "*"])
    }

    /// Kills it (SIGKILL). Its data is lost unless it is persisted.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again at the same address, and empty.
    #[track_caller]
    pub fn restart(&mut self) {
        self.child = self.setup.spawn(&self.folder, self.address);
        self.wait();
    }

    /// Sets its clock back.
    pub fn set_clock_back(&self, seconds: u64) {
        fs::write(self.folder.path().join("clock"), format!("-{seconds}")).unwrap();
    }

    /// Suspends it (SIGSTOP): connections stay open and calls are not answered.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// One more setting from the next start on.
    pub fn configure(&mut self, name: &str, values: &[&str]) {
        self.setup = std::mem::take(&mut self.setup).config(name, values);
    }

    /// Resumes it (SIGCONT).
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    /// Closes the connections of all clients.
    pub fn disconnect(&self) {
        until("connections are closed", || self.try_run::<i64>(&["CLIENT", "KILL", "TYPE", "normal"]).ok());
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(format!("-{name}")).arg(pid).status().unwrap().success());
    }

    #[track_caller]
    fn wait(&mut self) {
        until("the Redis server answers", || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("redis-server ended with {status}:\n{}", self.log());
            }
            self.try_run::<String>(&["PING"]).ok()
        });
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the log of the Redis server at {}:\n{}", self.address, self.log());
        }
    }
}
