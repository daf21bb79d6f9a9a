//! Rarely awaited futures, kept out of the state machines of their callers.

use std::pin::Pin;

/// Boxes a rarely awaited future in a function that is not inlined, so that neither its state nor its code sits in the
/// caller, which runs for nearly every request.
#[inline(never)]
pub(crate) fn boxed_future<'a, F: Future + 'a>(
    make: impl FnOnce() -> F,
) -> Pin<Box<dyn Future<Output = F::Output> + 'a>> {
    Box::pin(make())
}
