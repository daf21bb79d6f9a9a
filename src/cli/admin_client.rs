//! A client of the admin API, for commands.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;

use super::options::default_source;
use sluicegate_gateway::resources::{Source, admin_address};

/// The address where nothing else is said.
const DEFAULT: &str = "127.0.0.1:9090";

/// Where the admin API is.
#[derive(clap::Args, Default)]
pub(super) struct AdminOptions {
    /// The admin API of the gateway: HOST:PORT, or http://HOST:PORT [default: that of the configuration in this folder, or 127.0.0.1:9090]
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// The token of the admin API [default: the variable SLUICEGATE_ADMIN_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
}

impl AdminOptions {
    /// The admin API at this address, or else at that of a configuration, or at the default one.
    pub(super) fn new<'a>(
        admin: Option<String>,
        token: Option<String>,
        source: impl FnOnce() -> &'a Source,
    ) -> Self {
        Self { admin: Some(address(admin.as_deref(), source)), token }
    }

    /// The admin API at the address that is given, or else at that of a configuration.
    pub(super) fn or(&self, source: &Source) -> Self {
        Self::new(self.admin.clone(), self.token.clone(), || source)
    }
}

/// The address that is given; else that of the configuration, if it has one; else the default one.
pub(super) fn address<'a>(given: Option<&str>, source: impl FnOnce() -> &'a Source) -> String {
    given.map(str::to_owned).or_else(|| admin_address(source())).unwrap_or_else(|| DEFAULT.to_owned())
}

/// The admin API of one gateway.
pub(super) struct AdminClient {
    host: String,
    token: Option<String>,
}

/// An answer.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Reply {
    /// The body of a successful answer; `""` for one without.
    pub(super) fn success(&self) -> Result<String, String> {
        if (200..300).contains(&self.status) {
            return Ok(self.body.clone());
        }
        Err(self
            .errors(0)
            .unwrap_or_else(|| format!("the gateway answers {}: {}", self.status, self.body.trim())))
    }

    /// What is wrong, as problem+json says it; `None` for a success or another body.
    /// `before` lines were sent before.
    pub(super) fn errors(&self, before: usize) -> Option<String> {
        if self.status < 400 {
            return None;
        }
        let body: Value = serde_json::from_str(&self.body).ok()?;
        let mut text = body["detail"].as_str()?.to_owned();
        for error in body["errors"].as_array().into_iter().flatten() {
            if let (Some(line), Some(detail)) = (error["line"].as_u64(), error["detail"].as_str()) {
                let field = error["field"].as_str().filter(|field| !field.is_empty());
                let field = field.map_or(String::new(), |field| format!("{field}: "));
                text = format!("{text}\n  line {}: {field}{detail}", line + before as u64);
            }
        }
        Some(text)
    }
}

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take: a large batch takes seconds.
const ANSWER: Duration = Duration::from_secs(120);

impl AdminClient {
    pub(super) fn new(options: &AdminOptions) -> Result<Self, String> {
        let admin = address(options.admin.as_deref(), default_source);
        let admin = admin.trim_end_matches('/');
        if admin.starts_with("https://") {
            return Err(
                "the admin API has no TLS: reach it through a tunnel, or on its own machine".to_owned()
            );
        }
        let host = admin.strip_prefix("http://").unwrap_or(admin).to_owned();
        let token = options.token.clone().or_else(|| std::env::var("SLUICEGATE_ADMIN_TOKEN").ok());
        if let Some(token) = token.as_ref().filter(|token| token.bytes().any(|byte| byte.is_ascii_control()))
        {
            return Err(format!("the token has {} characters, and not all can be sent", token.len()));
        }
        Ok(Self { host, token })
    }

    pub(super) fn get(&mut self, path: &str) -> Result<Reply, String> {
        self.send("GET", path, None, "")
    }

    /// The JSON at a path.
    pub(super) fn json(&mut self, path: &str) -> Result<Value, String> {
        let Reply { status, body } = self.get(path)?;
        let value: Value = serde_json::from_str(&body).unwrap_or_default();
        match status {
            200 if value.is_null() => Err(format!(
                "http://{} is not an admin API: its answer to {path} is not JSON (see --admin)",
                self.host
            )),
            200 => Ok(value),
            _ => Err(format!(
                "the admin API at http://{} answers {status} to {path}: {}",
                self.host,
                value["detail"].as_str().unwrap_or("no reason is given")
            )),
        }
    }

    /// The version of the rules.
    pub(super) fn version(&mut self) -> Result<u64, String> {
        let reply = self.get("/status")?;
        let status: Value = serde_json::from_str(&reply.body).unwrap_or_default();
        let none = || format!("the gateway at {} has no rules", self.host);
        status["rules"]["version"].as_u64().ok_or_else(none)
    }

    /// Sends a request and reads the answer. `condition` is the value of If-Match.
    pub(super) fn send(
        &mut self,
        method: &str,
        path: &str,
        condition: Option<&str>,
        body: &str,
    ) -> Result<Reply, String> {
        let reply = self
            .exchange(method, path, condition, body)
            .map_err(|error| format!("cannot reach the admin API at http://{}: {error}", self.host))?;
        match (reply.status, &self.token) {
            (401, None) => Err(format!(
                "the admin API at http://{} needs a token for this: --token, or the variable SLUICEGATE_ADMIN_TOKEN",
                self.host
            )),
            (401, Some(_)) => Err(format!(
                "the admin API at http://{} does not know this token (--token, or the variable SLUICEGATE_ADMIN_TOKEN)",
                self.host
            )),
            _ => Ok(reply),
        }
    }

    fn exchange(
        &self,
        method: &str,
        path: &str,
        condition: Option<&str>,
        body: &str,
    ) -> std::io::Result<Reply> {
        let mut connection = self.connect()?;
        connection.set_read_timeout(Some(ANSWER))?;
        connection.set_write_timeout(Some(ANSWER))?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.host);
        for (name, value) in [("If-Match", condition.map(str::to_owned)), ("Authorization", self.bearer())] {
            if let Some(value) = value {
                head = format!("{head}{name}: {value}\r\n");
            }
        }
        if !body.is_empty() {
            head = format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        connection.write_all(format!("{head}\r\n").as_bytes())?;
        connection.write_all(body.as_bytes())?;
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer)?;
        read(&answer).ok_or_else(|| std::io::Error::other("the answer is not HTTP/1.1"))
    }

    fn bearer(&self) -> Option<String> {
        self.token.as_ref().map(|token| format!("Bearer {token}"))
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let mut last_error = std::io::Error::other("the name has no address");
        for address in self.host.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(connection) => return Ok(connection),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }
}

/// An answer whose body ends with the connection, or has a length: the admin API sends no chunked bodies.
fn read(answer: &[u8]) -> Option<Reply> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let body = String::from_utf8_lossy(&answer[end + 4..]).into_owned();
    Some(Reply { status, body })
}
