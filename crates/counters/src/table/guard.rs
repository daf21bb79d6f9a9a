//! The locks of a table.

use std::ops::{Deref, DerefMut};

use super::super::state_codec::StateCodec;
use super::super::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use super::ShardState;

/// An exclusive lock.
pub(super) enum Exclusive<'a, A: StateCodec> {
    Shard(MutexGuard<'a, ShardState<A>>),
    Overflow(RwLockWriteGuard<'a, ShardState<A>>),
}

/// The lock of a key.
pub(super) enum Guard<'a, A: StateCodec> {
    Exclusive(Exclusive<'a, A>),
    /// A read lock of the overflow bucket, which refuses the request and does not count refusals.
    Refused(RwLockReadGuard<'a, ShardState<A>>),
}

impl<A: StateCodec> Deref for Exclusive<'_, A> {
    type Target = ShardState<A>;

    #[inline]
    fn deref(&self) -> &ShardState<A> {
        match self {
            Self::Shard(part) => part,
            Self::Overflow(part) => part,
        }
    }
}

impl<A: StateCodec> DerefMut for Exclusive<'_, A> {
    #[inline]
    fn deref_mut(&mut self) -> &mut ShardState<A> {
        match self {
            Self::Shard(part) => part,
            Self::Overflow(part) => part,
        }
    }
}

impl<A: StateCodec> Deref for Guard<'_, A> {
    type Target = ShardState<A>;

    #[inline]
    fn deref(&self) -> &ShardState<A> {
        match self {
            Self::Exclusive(part) => part,
            Self::Refused(part) => part,
        }
    }
}
