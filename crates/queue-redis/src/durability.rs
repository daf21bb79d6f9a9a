//! How safely a server keeps what it has accepted.

use std::time::Duration;

use redis::{Cmd, Value};
use sluicegate_redis_link::Line;

/// How safely a server keeps what it has accepted, as far as it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durability {
    /// Whether it writes what it does into a file (`appendonly`); `None` if it does not say.
    pub appends: Option<bool>,
    /// Whether that file is on disk before an answer is given (`appendfsync always`).
    pub syncs_always: bool,
    /// Whether it knows WAITAOF (Redis 7.2).
    pub has_wait_aof: bool,
    /// How many replicas it has.
    pub replicas: u64,
    /// Whether it may remove keys when its memory is full.
    pub evicts: bool,
}

impl Durability {
    /// What the server says.
    pub(crate) async fn of(line: &Line, within: Duration) -> Self {
        let config = |name: &str| {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(name);
            command
        };
        let setting = async |name: &str| text_of(line.command(&config(name), within).await.ok()?);
        let info = async |section: &str| {
            let mut command = redis::cmd("INFO");
            command.arg(section);
            let value = line.command(&command, within).await.ok()?;
            match value {
                Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
                Value::VerbatimString { text, .. } => Some(text),
                _ => None,
            }
        };
        let field = |info: &Option<String>, name: &str| {
            let lines = info.as_deref().unwrap_or_default().lines();
            lines
                .filter_map(|line| line.split_once(':'))
                .find(|(known, _)| *known == name)
                .map(|(_, v)| v.trim().to_owned())
        };
        let (server, replication) = (info("server").await, info("replication").await);
        let version = field(&server, "redis_version").unwrap_or_default();
        let mut numbers = version.split('.').filter_map(|part| part.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let policy = setting("maxmemory-policy").await;
        Self {
            appends: setting("appendonly").await.map(|value| value == "yes"),
            syncs_always: setting("appendfsync").await.is_some_and(|value| value == "always"),
            has_wait_aof: version >= (7, 2),
            replicas: field(&replication, "connected_slaves").and_then(|n| n.parse().ok()).unwrap_or(0),
            evicts: policy.is_some_and(|policy| policy != "noeviction" && !policy.starts_with("volatile-")),
        }
    }

    /// What may be lost, in words; `None` if nothing is, as long as the disk works.
    pub fn risk(self) -> Option<&'static str> {
        match self {
            Self { evicts: true, .. } => {
                Some("Redis removes keys when its memory is full (maxmemory-policy): set it to noeviction")
            }
            Self { appends: Some(true), syncs_always: true, .. } => None,
            Self { appends: Some(true), has_wait_aof: true, .. } => None,
            Self { appends: Some(true), .. } => Some(
                "requests that were answered 202 within the last seconds are lost if Redis or its machine fails: set appendfsync \
                 to always, or use Redis 7.2, which confirms each",
            ),
            Self { appends: Some(false), .. } => Some(
                "requests that were answered 202 are lost if Redis ends: set appendonly to yes and appendfsync to always",
            ),
            Self { appends: None, .. } => Some(
                "Redis does not say whether it keeps what it has accepted (CONFIG GET is refused): it has to have appendonly \
                 yes and appendfsync always",
            ),
        }
    }

    /// The command that confirms that what was written is safe, if it is not safe at once.
    pub(crate) fn confirmation(self, within: Duration) -> Option<Cmd> {
        let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let replicas = u64::from(self.replicas > 0);
        if self.has_wait_aof && self.appends == Some(true) && !self.syncs_always {
            let mut command = redis::cmd("WAITAOF");
            command.arg(1).arg(0).arg(millis);
            return Some(command);
        }
        (replicas > 0).then(|| {
            let mut command = redis::cmd("WAIT");
            command.arg(replicas).arg(millis);
            command
        })
    }
}

/// The value of CONFIG GET.
fn text_of(value: Value) -> Option<String> {
    let text = match value {
        Value::Array(pair) => pair.into_iter().nth(1)?,
        Value::Map(pairs) => pairs.into_iter().next()?.1,
        _ => return None,
    };
    match text {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}
