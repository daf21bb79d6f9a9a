//! What is waited for seldom, kept out of the way of what nearly every request does.

use std::pin::Pin;

/// A future of which nothing stands where it is waited for: neither its memory, which it has of its own, nor its code,
/// nor the place on the stack that it is made in. A function with all of these in it would touch more of the caches with
/// each request, also with those that never come here.
#[inline(never)]
pub(crate) fn apart<'a, F: Future + 'a>(
    make: impl FnOnce() -> F,
) -> Pin<Box<dyn Future<Output = F::Output> + 'a>> {
    Box::pin(make())
}
