//! Rules: where they are kept, and how long they are remembered.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::language::http_url::HttpUrl;
use crate::language::secret::Secret;
use crate::model::serialize::seconds;
use crate::model::store::RedisConfig;
use crate::read::at::{FileContent, FileRef};

/// Where rules are kept, and how long they are remembered.
#[derive(Clone, Debug, Serialize)]
pub struct RulesConfig {
    /// Where they are kept.
    #[serde(flatten)]
    pub source: RulesSource,
    /// How long the rule of a key is remembered.
    #[serde(serialize_with = "seconds")]
    pub ttl: Duration,
    /// The longest that a request waits for the rule of its key.
    #[serde(serialize_with = "seconds")]
    pub wait: Duration,
    /// The number of keys whose rules are remembered.
    pub max_cached: usize,
}

/// Where rules are kept.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RulesSource {
    /// In a file of this gateway.
    File(FileRef),
    /// In the Redis of the shared counters.
    #[serde(serialize_with = "of_store")]
    Redis(Box<RedisConfig>),
    /// In a service of the user's, which is only read.
    #[serde(rename = "url")]
    Service(Box<RulesService>),
}

/// A service that knows rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesService {
    /// Where it is; without a query.
    pub url: HttpUrl,
    /// The authorities that are trusted; `None` for those of the system.
    pub ca: Option<FileContent>,
    /// What it is sent as a bearer token; empty for none.
    pub token: Secret,
    /// How long the answer for a key may take.
    pub timeout: Duration,
}

impl Serialize for RulesService {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.url.serialize(serializer)
    }
}

/// The Redis is described elsewhere.
fn of_store<S: Serializer>(_: &RedisConfig, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(true)
}
