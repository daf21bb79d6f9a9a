//! What messages add to the figures of their queues.

use std::collections::HashMap;

/// The figures of a queue that matter to a new message.
#[derive(Clone, Copy, Default)]
pub(crate) struct Queue {
    pub(crate) length: u64,
    pub(crate) bytes: u64,
    pub(crate) failed: u64,
    pub(crate) accepted: u64,
    pub(crate) ended: u64,
}

/// What a change adds to the figures of a queue.
#[derive(Default)]
pub(crate) struct Count {
    pub(crate) length: i64,
    pub(crate) bytes: i64,
    pub(crate) failed: i64,
    pub(crate) accepted: i64,
    pub(crate) ended: i64,
}

/// The rows that several messages of one transaction change: each is read once and written once.
#[derive(Default)]
pub(crate) struct Arrivals<'m> {
    /// The figures of each queue, and what the messages add to them.
    pub(crate) queues: HashMap<&'m str, (Queue, Count)>,
    /// How many messages of a key have not ended.
    pub(crate) of_key: HashMap<(&'m str, &'m [u8]), u64>,
    /// How many messages join a flow.
    pub(crate) joins: HashMap<(&'m str, &'m str), i64>,
}
