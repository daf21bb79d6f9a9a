//! Tokens that were verified, so that the next request with one costs a hash and no signature.
//!
//! Only a hash of a token is kept, and only if it was good: whoever sends bad ones pays for nobody's memory. All
//! workers share the table, as they share counters: clients come on several connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::claims::Verified;

const SHARDS: usize = 16;
/// Tokens of a shard that are remembered in one generation, of two.
const MAX_TOKENS: usize = 512;

/// A hash of a token.
pub(super) type Digest = [u8; 32];

/// Tokens that were verified.
#[derive(Default)]
pub(super) struct Remembered([Mutex<Shard>; SHARDS]);

/// When the young ones are too many they become the old ones, and the old ones, of which nobody asked since, go. So
/// room is made without a search.
#[derive(Default)]
struct Shard {
    young: HashMap<Digest, Arc<Verified>>,
    old: HashMap<Digest, Arc<Verified>>,
}

impl Remembered {
    /// What a token was found to say, expired or not.
    pub(super) fn get(&self, token: &Digest) -> Option<Arc<Verified>> {
        let mut shard = self.shard(token).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = shard.young.get(token) {
            return Some(Arc::clone(found));
        }
        let found = shard.old.remove(token)?;
        shard.insert(*token, Arc::clone(&found));
        Some(found)
    }

    /// Remembers what a token says.
    pub(super) fn insert(&self, token: Digest, verified: Arc<Verified>) {
        self.shard(&token).lock().unwrap_or_else(PoisonError::into_inner).insert(token, verified);
    }

    fn shard(&self, token: &Digest) -> &Mutex<Shard> {
        &self.0[usize::from(token[0]) % SHARDS]
    }
}

impl Shard {
    fn insert(&mut self, token: Digest, verified: Arc<Verified>) {
        if self.young.len() >= MAX_TOKENS {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear(); // and keeps its memory
        }
        self.young.insert(token, verified);
    }
}
