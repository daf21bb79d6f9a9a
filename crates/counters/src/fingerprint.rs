//! Keys as counters know them. A key is hashed where a request comes in, so that a table holds eight bytes of it
//! whatever a client sends, and nobody outside can make two keys collide.

use std::hash::{BuildHasher, DefaultHasher, RandomState};

use smallvec::SmallVec;

/// A key as the tables know it. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(u64);

/// The secret of this process that fingerprints are made with: a keyed hash.
#[derive(Clone, Debug, Default)]
pub struct KeySecret(RandomState);

/// A key in full, in a form that is the same in every process: what its name in a shared store is made of.
pub type KeyText = SmallVec<[u8; 40]>;

impl Fingerprint {
    /// The fingerprint that the overflow bucket of a table goes by.
    pub const OVERFLOW: Self = Self(u64::MAX);

    /// The hash itself.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The fingerprint of a key that hashes to this, with a hash that nobody outside can foresee.
    #[inline]
    pub fn from_hash(hash: u64) -> Self {
        Self(hash.clamp(1, u64::MAX - 1))
    }
}

impl BuildHasher for KeySecret {
    type Hasher = DefaultHasher;

    #[inline]
    fn build_hasher(&self) -> DefaultHasher {
        self.0.build_hasher()
    }
}
