//! Questions to the store that have no answer yet: one for each key, however many requests wait for it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot::Sender;

use super::EffectId;

/// The questions by key.
#[derive(Default)]
pub(super) struct Flights(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    flights: HashMap<u64, Flight>,
}

/// One question, with the requests that wait for the answer.
struct Flight {
    number: u64,
    waiting: Vec<Sender<Option<EffectId>>>,
}

impl Flights {
    /// Adds a waiting request to the question for a key. Returns the number of the question if the caller has to ask it.
    pub(super) fn begin(&self, slot: u64, waiting: Option<Sender<Option<EffectId>>>) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = state.flights.get_mut(&slot) {
            flight.waiting.extend(waiting);
            return None;
        }
        state.next += 1;
        let number = state.next;
        state.flights.insert(slot, Flight { number, waiting: waiting.into_iter().collect() });
        Some(number)
    }

    /// Ends a question: all that wait get the answer. One that was forgotten has nobody that waits.
    pub(super) fn end(&self, slot: u64, number: u64, answer: Option<EffectId>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.flights.get(&slot).is_none_or(|flight| flight.number != number) {
            return;
        }
        let flight = state.flights.remove(&slot);
        drop(state);
        for sender in flight.into_iter().flat_map(|flight| flight.waiting) {
            let _ = sender.send(answer); // a request that gave up
        }
    }

    /// The rule of a key has changed: an answer to an earlier question may be outdated. Those that wait have to ask again.
    pub(super) fn forget(&self, slot: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flights.remove(&slot);
    }

    /// The same for all keys.
    pub(super) fn forget_all(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flights.clear();
    }
}
