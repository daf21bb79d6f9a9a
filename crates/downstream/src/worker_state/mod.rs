//! The state of a worker thread that its connections and requests use: clock, coarse deadlines, buffers and random numbers. It
//! is not shared with other threads.

mod backlog;
mod buffers;
mod deadline;
mod waiters;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

pub use self::backlog::Backlog;
pub use self::buffers::Buffers;
pub use self::buffers::READ_SIZE;
pub use self::deadline::{Deadline, Deadlines};
pub use self::waiters::Waiters;
use sluicegate_base::clock::Clock;
use sluicegate_config::ClientConfig;
use sluicegate_wire::headers::NameCase;

/// The state of one worker thread.
pub struct WorkerState {
    /// Coarse deadlines of all connections and requests.
    pub deadlines: Deadlines,
    /// Buffers of connections.
    pub buffers: Buffers,
    /// The order in which requests are read.
    pub backlog: Backlog,
    clock: Clock,
    /// The limits of clients in the present configuration.
    client: Cell<ClientConfig>,
    /// The case in which names of response headers are written over HTTP/1.1; `None` for lower case.
    header_case: RefCell<Option<Arc<NameCase>>>,
    /// The state of SplitMix64.
    random: Cell<u64>,
}

impl WorkerState {
    /// The state of the worker `index`. Numbers are seeded with the time and the index.
    pub fn new(clock: Clock, index: usize, client: ClientConfig) -> Self {
        Self {
            deadlines: Deadlines::default(),
            buffers: Buffers::new(clock.wall()),
            backlog: Backlog::default(),
            client: Cell::new(client),
            header_case: RefCell::default(),
            random: Cell::new(clock.now().as_nanos() ^ ((index as u64) << 48)),
            clock,
        }
    }

    /// The clock.
    #[inline]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The timeouts, rates and sizes that apply to clients.
    #[inline]
    pub fn client(&self) -> ClientConfig {
        self.client.get()
    }

    /// Applies the timeouts and rates of another configuration.
    pub fn set_client(&self, client: ClientConfig) {
        self.client.set(client);
    }

    /// Gives names of response headers another case from here on.
    pub fn set_header_case(&self, header_case: Option<Arc<NameCase>>) {
        self.header_case.replace(header_case);
    }

    /// Gives the names in a complete head of a response their case.
    #[inline]
    pub fn apply_header_case(&self, head: &mut [u8]) {
        if let Some(header_case) = &*self.header_case.borrow() {
            header_case.apply(head);
        }
    }

    /// A number that is unique in practice, but predictable (SplitMix64).
    pub fn random_u64(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
