//! Keys as counters know them. A key is hashed where a request comes in, so that a table holds eight bytes of it
//! whatever a client sends, and nobody outside can make two keys collide.

use std::hash::{BuildHasher, DefaultHasher, RandomState};
use std::ops::Deref;

use smallvec::SmallVec;

/// A key as the tables know it. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(u64);

/// The secret of this process that fingerprints are made with: a keyed hash.
#[derive(Clone, Debug, Default)]
pub struct KeySecret(RandomState);

/// A key in full, in a form that is the same in every process: what its name in a shared store is made of. It is a slice of bytes,
/// and most need no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyText(SmallVec<[u8; 40]>);

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

impl KeyText {
    /// An empty one.
    #[inline]
    pub fn new() -> Self {
        Self(SmallVec::new())
    }

    /// One of these bytes.
    #[inline]
    pub fn from_slice(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    /// Appends a byte.
    #[inline]
    pub fn push(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Appends bytes.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Removes all bytes.
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Deref for KeyText {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for KeyText {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl BuildHasher for KeySecret {
    type Hasher = DefaultHasher;

    #[inline]
    fn build_hasher(&self) -> DefaultHasher {
        self.0.build_hasher()
    }
}
