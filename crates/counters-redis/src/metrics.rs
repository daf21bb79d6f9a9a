//! What callers can count: calls to the store, and refusals without a call.

use sluicegate_limiter::Span;

/// Counts calls to the store. Each instance is used by one thread.
pub trait CallMetrics {
    /// A call has ended after `took`.
    fn finish(&self, operation: Operation, took: Span);
    /// A request was refused without a call, from a remembered refusal.
    fn remembered(&self);
    /// A script admitted another number of requests than the core does from the same state.
    fn disagrees(&self);
}

/// Declares the results of calls with their names in metrics.
macro_rules! operations {
    ($(#[doc = $meaning:literal] $variant:ident = $name:literal,)*) => {
        /// The result of a call to the store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Operation { $(#[doc = $meaning] $variant,)* }

        impl Operation {
            /// The names of all results, in the order of the variants.
            pub const NAMES: &'static [&'static str] = &[$($name,)*];
        }
    };
}

operations! {
    /// It was answered.
    Ok = "ok",
    /// There was no answer in time.
    Timeout = "timeout",
    /// It failed.
    Error = "error",
    /// It reached the store after its deadline and changed nothing there.
    Expired = "expired",
}

/// Counts nothing.
impl CallMetrics for () {
    fn finish(&self, _: Operation, _: Span) {}
    fn remembered(&self) {}
    fn disagrees(&self) {}
}
