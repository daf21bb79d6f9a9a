//! Requests above a limit that are delivered later.

use std::time::Duration;

use http::HeaderName;
use serde::Serialize;

use crate::model::serialize::{seconds, texts};
use crate::model::store::RedisConfig;
use crate::read::at::FileRef;

/// Where requests above a limit are kept until the limit admits them.
#[derive(Clone, Debug, Serialize)]
pub struct QueueConfig {
    /// Whether a client is answered 202 that has not asked for it with `Prefer: respond-async`.
    #[serde(skip)]
    pub accepts_all: bool,
    /// Where it is kept.
    #[serde(flatten)]
    pub storage: QueueStorage,
    /// The most requests in it.
    pub max_length: u64,
    /// The most bytes of these requests.
    pub max_bytes: u64,
    /// The largest body of a request.
    pub max_body: u64,
    /// How long a request may wait.
    #[serde(serialize_with = "seconds")]
    pub ttl: Duration,
    /// How long its outcome can be read.
    #[serde(serialize_with = "seconds")]
    pub keep: Duration,
    /// How often a request is sent.
    pub max_attempts: u32,
    /// How many requests are sent at a time.
    pub concurrency: usize,
    /// Whether requests of a key are delivered in the order in which they were accepted.
    pub ordered: bool,
    /// Whether credentials are stored, too.
    pub keep_credentials: bool,
    /// The key that seals them, where the file names one.
    pub key_file: Option<FileRef>,
    /// The headers that are stored; empty for all but credentials.
    #[serde(serialize_with = "texts")]
    pub headers: Vec<HeaderName>,
}

/// Where a queue is kept.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueStorage {
    /// In a file of this gateway.
    File(FileRef),
    /// In the Redis of the shared counters, under this name.
    Redis(SharedQueue),
}

/// A queue that several gateways share.
#[derive(Clone, Debug, Serialize)]
pub struct SharedQueue {
    /// Its name.
    pub stream: String,
    /// The Redis, which is described elsewhere.
    #[serde(skip)]
    pub redis: Box<RedisConfig>,
}
