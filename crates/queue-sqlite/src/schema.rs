//! The tables of a file of queued requests.

use sluicegate_sqlite_file::Kind;

/// The columns `state` have the numbers of [`State`](sluicegate_queue::State). Bodies are in a table of their own, so that
/// those who look for messages do not read them. Each consumer that has messages waiting has a flow, so that the next
/// message is found without looking at all of them.
const TABLES: &str = "
    CREATE TABLE messages (
        number INTEGER PRIMARY KEY AUTOINCREMENT,   -- the order in which they were accepted
        id BLOB NOT NULL UNIQUE,
        lim TEXT NOT NULL,
        key BLOB NOT NULL,
        consumer TEXT NOT NULL,
        owner BLOB NOT NULL,
        idempotency BLOB,                -- what makes two requests the same, if their client said so
        content BLOB,
        ordered INTEGER NOT NULL,   -- 1: those of a key in order
        ordinal INTEGER NOT NULL,   -- how many were accepted before it in its queue
        state INTEGER NOT NULL,
        due INTEGER NOT NULL,       -- milliseconds since 1970, as all times
        accepted INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        claims INTEGER NOT NULL,    -- the number of the last claim: attempts and released claims
        size INTEGER NOT NULL,
        ended INTEGER,
        keep_until INTEGER,             -- when a message that has ended is removed
        reason TEXT,
        answer BLOB
    );
    CREATE TABLE requests (number INTEGER PRIMARY KEY, request BLOB NOT NULL);
    CREATE INDEX messages_waiting ON messages (lim, consumer, due, number) WHERE state = 0;
    CREATE INDEX messages_by_key ON messages (lim, key, number) WHERE state < 3;
    CREATE INDEX messages_unfinished ON messages (lim, number) WHERE state < 3;
    CREATE INDEX messages_claimed ON messages (number) WHERE state = 2;
    CREATE INDEX messages_failed ON messages (lim, number) WHERE state = 4;
    CREATE INDEX messages_by_expiry ON messages (lim, expires) WHERE state < 2;
    CREATE INDEX messages_to_remove ON messages (keep_until) WHERE keep_until IS NOT NULL;
    CREATE UNIQUE INDEX messages_by_idempotency ON messages (idempotency) WHERE idempotency IS NOT NULL;
    CREATE TABLE flows (
        lim TEXT NOT NULL,
        consumer TEXT NOT NULL,
        waiting INTEGER NOT NULL,   -- messages in state 0
        turn INTEGER NOT NULL,      -- the flow with the lowest is next
        ready INTEGER NOT NULL,     -- 0: none of its messages is due before `due`
        paused INTEGER NOT NULL,    -- 1: nor is any that will be accepted before `due`
        due INTEGER NOT NULL,
        PRIMARY KEY (lim, consumer)
    ) WITHOUT ROWID;
    CREATE INDEX flows_ready ON flows (lim, turn, consumer) WHERE ready = 1;
    CREATE INDEX flows_asleep ON flows (lim, due) WHERE ready = 0;
    CREATE TABLE queues (
        lim TEXT NOT NULL PRIMARY KEY,
        length INTEGER NOT NULL DEFAULT 0,      -- messages in states 0, 1 and 2
        bytes INTEGER NOT NULL DEFAULT 0,       -- of their requests, and of those that failed
        failed INTEGER NOT NULL DEFAULT 0,      -- messages in state 4
        accepted INTEGER NOT NULL DEFAULT 0,    -- since the queue exists
        ended INTEGER NOT NULL DEFAULT 0,
        turn INTEGER NOT NULL DEFAULT 0         -- that of the flow that was served last
    ) WITHOUT ROWID;
";

const PROBES: [&str; 4] = [
    "SELECT id, lim, key, consumer, owner, idempotency, content, ordered, ordinal, state, due, accepted, expires, attempts, claims, size, \
     ended, keep_until, reason, answer FROM messages LIMIT 1",
    "SELECT number, request FROM requests LIMIT 1",
    "SELECT lim, consumer, waiting, turn, ready, paused, due FROM flows LIMIT 1",
    "SELECT lim, length, bytes, failed, accepted, ended, turn FROM queues LIMIT 1",
];

/// A file of queued requests.
pub(crate) static QUEUE: Kind = Kind {
    content: "queued requests",
    sharing: "share the queue among gateways with `queue: {redis: …}`",
    thread: "queue-writer",
    application_id: 0x534c_4351, // "SLCQ"
    form: 1,
    tables: TABLES,
    probes: &PROBES,
    numbers: &[],
    // The file is opened while clients wait for the gateway to start.
    is_read_after_crash: false,
};
