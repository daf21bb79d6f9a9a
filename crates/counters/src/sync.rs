//! The locks and atomics of this crate: the standard ones, or those of loom.

#[cfg(feature = "model")]
pub(super) use loom::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(feature = "model"))]
pub(super) use std::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use std::sync::{PoisonError, TryLockError};

/// The numbers of spin-loop hints, of ten to thirty nanoseconds each, before each further try of a lock; after the last the
/// thread sleeps. The first try is for a lock that was just missed, the others for many threads on one key.
const PAUSES: [u32; 6] = [4, 64, 128, 256, 512, 1_024];

/// Locks a mutex, also a poisoned one: the state is valid between any two statements of this crate.
#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => lock_later(mutex),
    }
}

/// Locks for reading, also a poisoned lock.
pub(super) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing, also a poisoned lock.
pub(super) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a lock. Locks of this crate are held for less time than it takes to sleep and be woken, so the thread spins
/// first, with pauses that keep the cache line of the lock from bouncing between cores.
#[cold]
fn lock_later<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let tries = if cfg!(feature = "model") { 0 } else { PAUSES.len() };
    for pauses in &PAUSES[..tries] {
        (0..*pauses).for_each(|_| std::hint::spin_loop());
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
