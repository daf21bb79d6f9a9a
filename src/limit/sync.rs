//! The locks and atomics of this folder: the standard ones, or those that loom explores.

#[cfg(feature = "model")]
pub(super) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(feature = "model"))]
pub(super) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use std::sync::PoisonError;

/// Locks, also behind a panic: every state between two statements of this folder is a valid one.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
