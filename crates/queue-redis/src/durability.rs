//! How safely a server keeps what it has accepted.

use std::time::Duration;

use redis::{Cmd, Value};
use sluicegate_redis_link::{CallError, Line};

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
    ///
    /// # Errors
    /// If it does not answer. A setting that it refuses to tell counts as unknown.
    pub(crate) async fn of(line: &Line, within: Duration) -> Result<Self, CallError> {
        let ask = async |command: &Cmd| match line.command(command, within).await {
            Ok(value) => Ok(Some(value)),
            Err(CallError::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        };
        let setting = async |name: &str| {
            let value = ask(redis::cmd("CONFIG").arg("GET").arg(name)).await?;
            Ok::<_, CallError>(value.and_then(text_of))
        };
        let info = async |section: &str| {
            Ok::<_, CallError>(match ask(redis::cmd("INFO").arg(section)).await? {
                Some(Value::BulkString(bytes)) => String::from_utf8(bytes).ok(),
                Some(Value::VerbatimString { text, .. }) => Some(text),
                _ => None,
            })
        };
        let field = |info: &Option<String>, name: &str| {
            let lines = info.as_deref().unwrap_or_default().lines();
            lines
                .filter_map(|line| line.split_once(':'))
                .find(|(known, _)| *known == name)
                .map(|(_, v)| v.trim().to_owned())
        };
        let (server, replication) = (info("server").await?, info("replication").await?);
        let version = field(&server, "redis_version").unwrap_or_default();
        let mut numbers = version.split('.').filter_map(|part| part.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let policy = setting("maxmemory-policy").await?;
        Ok(Self {
            appends: setting("appendonly").await?.map(|value| value == "yes"),
            syncs_always: setting("appendfsync").await?.is_some_and(|value| value == "always"),
            has_wait_aof: version >= (7, 2),
            replicas: field(&replication, "connected_slaves").and_then(|n| n.parse().ok()).unwrap_or(0),
            evicts: policy.is_some_and(|policy| policy != "noeviction" && !policy.starts_with("volatile-")),
        })
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

    /// The commands that confirm that a write is on disk and on a replica. None is needed for what the answer itself confirms.
    pub(crate) fn confirmations(self, within: Duration) -> Vec<Cmd> {
        let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let mut commands = Vec::new();
        if self.has_wait_aof && self.appends == Some(true) && !self.syncs_always {
            let mut command = redis::cmd("WAITAOF");
            command.arg(1).arg(0).arg(millis);
            commands.push(command);
        }
        if self.replicas > 0 {
            let mut command = redis::cmd("WAIT");
            command.arg(1).arg(millis);
            commands.push(command);
        }
        commands
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
