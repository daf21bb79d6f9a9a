//! What the state of a key answers, wherever it is counted.

use sluicegate_limiter::{Receipt, Refusal, Span, Time, Usage};

/// The state of one key, in this process or as a store returned it.
pub trait KeyState {
    /// See [`Algorithm::check`](sluicegate_limiter::Algorithm::check).
    fn check(&self, now: Time, cost: u64) -> Result<Span, Refusal>;
    /// See [`Algorithm::charge`](sluicegate_limiter::Algorithm::charge).
    fn charge(&mut self, now: Time, cost: u64) -> Receipt;
    /// See [`Algorithm::refused`](sluicegate_limiter::Algorithm::refused).
    fn refused(&mut self, now: Time, cost: u64);
    /// See [`Algorithm::usage`](sluicegate_limiter::Algorithm::usage).
    fn usage(&self, now: Time) -> Usage;
}
