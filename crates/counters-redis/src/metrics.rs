//! What the caller may count of the calls to the store.

use sluicegate_limiter::Span;

/// Counts calls to the store. One thread writes to one of these.
pub trait CallMetrics {
    /// A call has ended after `took`.
    fn finish(&self, operation: Operation, took: Span);
    /// A request was refused without a call: the store had told until when its key is refused.
    fn remembered(&self);
    /// A script admitted more or fewer requests than the state that it returned admits.
    fn disagrees(&self);
}

/// The result of a call to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It was answered.
    Ok,
    /// There was no answer in time.
    Timeout,
    /// It failed.
    Error,
    /// It reached the store after its deadline and changed nothing there.
    Expired,
}

/// Counts nothing.
impl CallMetrics for () {
    fn finish(&self, _: Operation, _: Span) {}
    fn remembered(&self) {}
    fn disagrees(&self) {}
}
