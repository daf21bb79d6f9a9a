//! The locks and atomics of this folder: the standard ones, or those that loom explores.

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

/// Pauses of the processor, some ten to thirty nanoseconds each, before each further try of a lock; then its thread
/// sleeps. The first is for who has just missed it, the others are for threads that meet at one key again and again.
const PAUSES: [u32; 6] = [4, 64, 128, 256, 512, 1_024];

/// Locks, also behind a panic: every state between two statements of this folder is a valid one.
#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => lock_later(mutex),
    }
}

/// Locks for those who change nothing, also behind a panic.
pub(super) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for one who changes something, also behind a panic.
pub(super) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whoever holds a lock of this folder lets it go in less time than it takes to sleep and be woken. Threads that meet
/// at one key keep out of each other's way for a while, so that the line of its lock is not sent to and fro all the time.
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
