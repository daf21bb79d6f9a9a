//! The locks of a table.

use std::ops::{Deref, DerefMut};

use super::super::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// An exclusive lock.
pub(super) enum Exclusive<'a, S> {
    Shard(MutexGuard<'a, S>),
    Overflow(RwLockWriteGuard<'a, S>),
}

/// The lock of a key.
pub(super) enum Guard<'a, S> {
    Exclusive(Exclusive<'a, S>),
    /// A read lock of the overflow bucket, which refuses the request and does not count refusals.
    Refused(RwLockReadGuard<'a, S>),
}

impl<S> Deref for Exclusive<'_, S> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        match self {
            Self::Shard(part) => part,
            Self::Overflow(part) => part,
        }
    }
}

impl<S> DerefMut for Exclusive<'_, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut S {
        match self {
            Self::Shard(part) => part,
            Self::Overflow(part) => part,
        }
    }
}

impl<S> Deref for Guard<'_, S> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        match self {
            Self::Exclusive(part) => part,
            Self::Refused(part) => part,
        }
    }
}
