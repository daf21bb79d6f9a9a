//! The permit of a request to use an endpoint.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::endpoint_state::{EndpointState, WorkerCounts};
use super::upstream_state::PersistentState;

/// The requests that one worker has in flight at an endpoint.
pub(super) struct EndpointUse {
    pub(super) state: Arc<EndpointState>,
    /// The number of these requests, which the choice of an endpoint considers.
    pub(super) in_flight: Rc<Cell<u32>>,
    /// The same for operators.
    counts: Arc<WorkerCounts>,
}

/// The permit of one request to use an endpoint. Dropping it releases the permit.
pub(crate) struct Permit {
    used: Rc<EndpointUse>,
    /// Notified on release, if `max_connections` limits the requests in flight.
    counted: Option<Arc<PersistentState>>,
}

impl EndpointUse {
    pub(super) fn new(state: &Arc<EndpointState>) -> Rc<Self> {
        let counts = state.worker_counts();
        Rc::new(Self { state: Arc::clone(state), in_flight: Rc::default(), counts })
    }

    /// Begins a request. `counted` is notified when it ends, if `max_connections` counts it.
    pub(super) fn begin(self: &Rc<Self>, counted: Option<Arc<PersistentState>>) -> Permit {
        self.in_flight.set(self.in_flight.get() + 1);
        self.counts.begins(self.in_flight.get());
        Permit { used: Rc::clone(self), counted }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let EndpointUse { state, in_flight, counts } = &*self.used;
        in_flight.set(in_flight.get() - 1);
        counts.ends(in_flight.get());
        if let Some(persistent) = &self.counted {
            state.release();
            persistent.freed();
        }
    }
}
