//! The tables of a file of rules.

use sluicegate_sqlite_file::Kind;

/// "SLCG" in the header of the file tells it from databases of other programs.
const APPLICATION_ID: i64 = 0x534c_4347;

/// The form of the tables and of the rules in them. A new field of `Rule` is a new form: releases before it could not read
/// the rules that have it.
const FORM: i64 = 1;

/// Keys come before limits in `rules_by_key`, so that it also serves who asks for a key in all limits.
const TABLES: &str = "
    CREATE TABLE rules (
        id TEXT NOT NULL PRIMARY KEY,
        lim TEXT NOT NULL,
        key TEXT NOT NULL,
        pattern INTEGER NOT NULL,   -- 1: the key is a pattern
        body TEXT NOT NULL,         -- the whole rule, in JSON
        version INTEGER NOT NULL    -- of the batch that last changed it
    );
    CREATE INDEX rules_by_key ON rules (key, lim);
    CREATE INDEX rules_by_limit ON rules (lim, id);
    CREATE INDEX rules_patterns ON rules (lim) WHERE pattern = 1;
    CREATE TABLE changes (
        n INTEGER PRIMARY KEY,      -- grows by one with each change
        version INTEGER NOT NULL,
        seq INTEGER NOT NULL,       -- the place among the changes of the version
        id TEXT NOT NULL,
        lim TEXT NOT NULL,
        key TEXT NOT NULL,
        pattern INTEGER NOT NULL,   -- 1: the rule before or the rule after is a pattern
        before TEXT,                -- the rule before, in JSON; null if it was created
        after TEXT,                 -- the rule after; null if it was deleted
        at INTEGER NOT NULL,        -- milliseconds since 1970
        actor TEXT NOT NULL
    );
    CREATE INDEX changes_by_version ON changes (version);
    INSERT INTO meta (name, value) VALUES
        ('epoch', lower(hex(randomblob(8)))),   -- of this file
        ('version', '0'),                       -- the number of batches that changed something
        ('trimmed', '0');                       -- the last version of which changes are not kept any more
";

/// What a file of rules must answer; read here so that a table that is missing is found when the file is opened.
const PROBES: [&str; 3] = [
    "SELECT id, lim, key, pattern, body, version FROM rules LIMIT 1",
    "SELECT n, version, seq, id, lim, key, pattern, before, after, at, actor FROM changes LIMIT 1",
    "SELECT CAST(value AS INTEGER) FROM meta WHERE name IN ('epoch', 'version', 'trimmed', 'clean') LIMIT 1",
];

/// A file of rules.
pub(crate) static RULES: Kind = Kind {
    content: "rules",
    sharing: "share rules among gateways with `rules: {redis: true}`",
    thread: "rules-writer",
    application_id: APPLICATION_ID,
    form: FORM,
    tables: TABLES,
    probes: &PROBES,
    numbers: &["version", "trimmed"],
    is_read_after_crash: true,
};
