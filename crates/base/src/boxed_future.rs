//! Futures behind a pointer, so that the futures and tasks that contain them stay small.

use std::pin::Pin;

use tokio::task::JoinHandle;

/// Boxes a future in a function that is not inlined, so that neither its state nor its code sits in the caller.
#[inline(never)]
pub fn boxed_future<'a, F: Future + 'a>(
    make: impl FnOnce() -> F,
) -> Pin<Box<dyn Future<Output = F::Output> + 'a>> {
    // With `Box::pin`, the compiler makes the future on the stack and copies all of it.
    let future: Box<F> = Box::write(Box::new_uninit(), make());
    Box::into_pin(future)
}

/// Spawns a task on this thread. Tokio compiles its task code anew for each type of future, and boxes large ones anyway:
/// behind a pointer all of them share one copy.
///
/// # Panics
/// Outside of a `LocalSet`.
pub fn spawn_local(future: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    let future: Pin<Box<dyn Future<Output = ()>>> = Box::pin(future);
    tokio::task::spawn_local(future)
}

/// Runs what blocks on another thread. There is one copy of tokio's task code for each type of result.
///
/// # Panics
/// Outside of a runtime.
pub fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let work: Box<dyn FnOnce() -> T + Send> = Box::new(work);
    tokio::task::spawn_blocking(work)
}
