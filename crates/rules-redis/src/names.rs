//! The keys in Redis. All contain one hash tag, so that a node of a cluster holds them together and a script can use all.
//!
//! | key | type | |
//! | --- | --- | --- |
//! | `PREFIX:{rules}:meta` | hash | `epoch`, random; `version`; `mark`, a random text of the last batch |
//! | `PREFIX:{rules}:rules` | hash | id → entry: version, `p` for a pattern or `-`, JSON |
//! | `PREFIX:{rules}:ids` | sorted set, by bytes | `LIMIT\0ID` |
//! | `PREFIX:{rules}:keys` | sorted set, by bytes | `LIMIT\0KEY\0ID` |
//! | `PREFIX:{rules}:patterns` | hash | the entries of patterns once more |
//! | `PREFIX:{rules}:log` | stream | `VERSION-SEQ` → `b` and `a`, the entries before and after without their version; `t`, when; `w`, who; `p`, the mark before, of the first change of a version |
//! | `PREFIX:{rules}:staged:RANDOM` | list | a large batch that is being sent; it expires |
//!
//! News are published in `PREFIX:{rules}:changed:DATABASE`: channels are not of one database, unlike keys.

/// The hash tag.
pub(crate) const TAG: &str = "rules";

/// The names of the keys.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) meta: String,
    pub(crate) rules: String,
    pub(crate) ids: String,
    pub(crate) keys: String,
    pub(crate) patterns: String,
    pub(crate) log: String,
    /// The channel of news.
    pub(crate) channel: String,
    start: String,
}

impl Names {
    /// The names with this prefix, and the channel of this database.
    pub(crate) fn new(prefix: &str, database: u32) -> Self {
        let start = format!("{prefix}:{{{TAG}}}:");
        let name = |what: &str| format!("{start}{what}");
        Self {
            meta: name("meta"),
            rules: name("rules"),
            ids: name("ids"),
            keys: name("keys"),
            patterns: name("patterns"),
            log: name("log"),
            channel: name(&format!("changed:{database}")),
            start,
        }
    }

    /// The list of one batch that is sent in pieces.
    pub(crate) fn staged(&self) -> String {
        format!("{}staged:{}", self.start, random_text())
    }
}

/// Sixteen random characters.
pub(crate) fn random_text() -> String {
    format!("{:016x}", u64::from_be_bytes(sluicegate_counters_redis::random()))
}
