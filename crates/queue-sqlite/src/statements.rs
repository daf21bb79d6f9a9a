//! The statements that change a queue.

use rusqlite::{Connection, Statement};

/// Prepared once for a connection.
pub(crate) struct Statements<'c> {
    pub(crate) known: Statement<'c>,
    pub(crate) forget_idempotency: Statement<'c>,
    pub(crate) queue: Statement<'c>,
    pub(crate) add_queue: Statement<'c>,
    pub(crate) of_key: Statement<'c>,
    pub(crate) count: Statement<'c>,
    pub(crate) add: Statement<'c>,
    pub(crate) add_request: Statement<'c>,
    pub(crate) is_blocked: Statement<'c>,
    pub(crate) join_awake: Statement<'c>,
    pub(crate) join_flow: Statement<'c>,
    pub(crate) leave_flow: Statement<'c>,
    pub(crate) remove_flow: Statement<'c>,
    pub(crate) wake_flows: Statement<'c>,
    pub(crate) next_flow: Statement<'c>,
    pub(crate) next_message: Statement<'c>,
    pub(crate) next_due: Statement<'c>,
    pub(crate) next_due_of_all: Statement<'c>,
    pub(crate) put_to_sleep: Statement<'c>,
    pub(crate) pause_flow: Statement<'c>,
    pub(crate) claim: Statement<'c>,
    pub(crate) serve_flow: Statement<'c>,
    pub(crate) set_turn: Statement<'c>,
    pub(crate) find: Statement<'c>,
    pub(crate) wait_again: Statement<'c>,
    pub(crate) finish: Statement<'c>,
    pub(crate) remove_request: Statement<'c>,
    pub(crate) next_of_key: Statement<'c>,
    pub(crate) promote: Statement<'c>,
}

impl<'c> Statements<'c> {
    pub(crate) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        let prepare = |sql| connection.prepare(sql);
        Ok(Self {
            known: prepare(
                "SELECT id, content, owner, ordinal, lim, key, state FROM messages WHERE id = ?1 OR idempotency = ?2 LIMIT 1",
            )?,
            forget_idempotency: prepare("UPDATE messages SET idempotency = NULL, content = NULL WHERE id = ?1")?,
            queue: prepare("SELECT length, bytes, failed, accepted, ended FROM queues WHERE lim = ?1")?,
            add_queue: prepare("INSERT INTO queues (lim) VALUES (?1) ON CONFLICT DO NOTHING")?,
            of_key: prepare(
                "SELECT count(*) FROM (SELECT 1 FROM messages WHERE lim = ?1 AND key = ?2 AND state < 3 LIMIT ?3)",
            )?,
            count: prepare(
                "UPDATE queues SET length = length + ?2, bytes = bytes + ?3, failed = failed + ?4,
                 accepted = accepted + ?5, ended = ended + ?6 WHERE lim = ?1",
            )?,
            add: prepare(
                "INSERT INTO messages (id, lim, key, consumer, owner, idempotency, content, ordered, ordinal, state, due, accepted,
                 expires, attempts, claims, size) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11, ?12, 0, 0, ?13)",
            )?,
            add_request: prepare("INSERT INTO requests (number, request) VALUES (?1, ?2)")?,
            is_blocked: prepare(
                "SELECT 1 FROM messages WHERE lim = ?1 AND key = ?2 AND ordered = 1 AND state < 3 AND number <> ?3 LIMIT 1",
            )?,
            // Most flows are ready, and then no index changes.
            join_awake: prepare(
                "UPDATE flows SET waiting = waiting + ?3 WHERE lim = ?1 AND consumer = ?2 AND ready = 1",
            )?,
            join_flow: prepare(
                "INSERT INTO flows (lim, consumer, waiting, turn, ready, paused, due)
                 VALUES (?1, ?2, ?3, (SELECT turn FROM queues WHERE lim = ?1), 1, 0, 0)
                 ON CONFLICT DO UPDATE SET waiting = waiting + ?3, ready = 1 - paused",
            )?,
            leave_flow: prepare("UPDATE flows SET waiting = waiting - 1 WHERE lim = ?1 AND consumer = ?2")?,
            remove_flow: prepare("DELETE FROM flows WHERE lim = ?1 AND consumer = ?2 AND waiting <= 0")?,
            wake_flows: prepare(
                "UPDATE flows SET ready = 1, paused = 0 WHERE lim = ?1 AND ready = 0 AND due BETWEEN ?2 AND ?3",
            )?,
            next_flow: prepare(
                "SELECT consumer, turn FROM flows WHERE lim = ?1 AND ready = 1 ORDER BY turn, consumer LIMIT 1",
            )?,
            next_message: prepare(
                "SELECT number, id, key, attempts, accepted, expires, claims, due FROM messages
                 WHERE lim = ?1 AND consumer = ?2 AND state = 0 ORDER BY due, number LIMIT 1",
            )?,
            next_due: prepare(
                "SELECT due FROM messages WHERE lim = ?1 AND consumer = ?2 AND state = 0 ORDER BY due LIMIT 1",
            )?,
            next_due_of_all: prepare(
                "SELECT CASE WHEN EXISTS (SELECT 1 FROM flows WHERE lim = ?1 AND ready = 1) THEN 0
                 ELSE (SELECT min(due) FROM flows WHERE lim = ?1 AND ready = 0) END",
            )?,
            put_to_sleep: prepare(
                "UPDATE flows SET ready = 0, due = ?3 WHERE lim = ?1 AND consumer = ?2",
            )?,
            pause_flow: prepare(
                "UPDATE flows SET ready = 0, paused = 1, due = ?3 WHERE lim = ?1 AND consumer = ?2",
            )?,
            claim: prepare("UPDATE messages SET state = 2, attempts = attempts + 1, claims = claims + 1 WHERE number = ?1")?,
            serve_flow: prepare(
                "UPDATE flows SET waiting = waiting - 1, turn = ?3 + 1 WHERE lim = ?1 AND consumer = ?2",
            )?,
            set_turn: prepare("UPDATE queues SET turn = max(turn, ?2) WHERE lim = ?1")?,
            find: prepare(
                "SELECT number, lim, key, consumer, owner, ordered, state, attempts, claims, size FROM messages WHERE id = ?1",
            )?,
            wait_again: prepare(
                "UPDATE messages SET state = 0, due = coalesce(?2, due), attempts = ?3, reason = coalesce(?4, reason)
                 WHERE number = ?1",
            )?,
            finish: prepare(
                "UPDATE messages SET state = ?2, ended = ?3, keep_until = ?4, reason = coalesce(?5, reason), answer = ?6
                 WHERE number = ?1",
            )?,
            remove_request: prepare("DELETE FROM requests WHERE number = ?1")?,
            next_of_key: prepare(
                "SELECT number, consumer FROM messages WHERE lim = ?1 AND key = ?2 AND ordered = 1 AND state = 1
                 ORDER BY number LIMIT 1",
            )?,
            promote: prepare("UPDATE messages SET state = 0 WHERE number = ?1")?,
        })
    }
}
