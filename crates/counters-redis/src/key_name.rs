//! The names of keys in Redis: the same on every gateway, short for any value, and without the value itself.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use sluicegate_counters::{Ask, CountedLimit, Fingerprint, KeyText};

/// The used bytes of the digest. A second key for 96 bits cannot be found, and 10⁹ keys collide with a probability of 10⁻¹¹.
const TAG: usize = 12;
/// The length as text: six bits per character.
const TAG_TEXT: usize = 16;
/// Hash slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The hash of a key: the part of the name that determines the hash slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tag([u8; TAG_TEXT]);

/// A key of a limit that the store counts.
#[derive(Clone)]
pub(super) struct StoreKey {
    pub(super) limit: Arc<CountedLimit>,
    /// The key in this process.
    pub(super) key: Fingerprint,
    /// The key in the store.
    pub(super) tag: Tag,
}

/// A hash of a key that is the same on every gateway, and that nobody can make two keys share.
pub fn shared_hash(text: &KeyText) -> u64 {
    let digest = digest(&SHA256, text);
    digest.as_ref().iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

impl StoreKey {
    pub(super) fn of(ask: &Ask<'_>) -> Self {
        Self { limit: Arc::clone(ask.limit), key: ask.key, tag: Tag::of(&ask.text) }
    }

    /// Identifies the key among those of all limits.
    pub(super) fn id(&self) -> (u64, Fingerprint) {
        (self.limit.counters.id, self.key)
    }

    /// Its name in the store.
    pub(super) fn name(&self) -> Vec<u8> {
        self.tag.name(key_prefix(&self.limit))
    }

    /// The name of its ban in the store, if the limit bans.
    pub(super) fn ban_name(&self) -> Option<Vec<u8>> {
        self.limit.ban.map(|_| self.tag.ban(key_prefix(&self.limit)))
    }
}

impl Tag {
    /// The tag of a key. Limits with the same key specification give a request the same tag, so that their keys share a slot
    /// and are decided by one call in a cluster too.
    pub(super) fn of(text: &KeyText) -> Self {
        let digest = digest(&SHA256, text);
        let mut tag = [0; TAG_TEXT];
        for (bytes, chars) in digest.as_ref()[..TAG].chunks_exact(3).zip(tag.chunks_exact_mut(4)) {
            let bits = u32::from(bytes[0]) << 16 | u32::from(bytes[1]) << 8 | u32::from(bytes[2]);
            for (at, char) in chars.iter_mut().enumerate() {
                *char = ALPHABET[(bits >> (18 - 6 * at)) as usize & 63];
            }
        }
        Self(tag)
    }

    /// The name of this key under a limit whose names begin with `start`: `sluicegate:per-key:{TAG}`.
    pub(super) fn name(&self, start: &[u8]) -> Vec<u8> {
        let mut name = Vec::with_capacity(start.len() + TAG_TEXT + 2);
        name.extend_from_slice(start);
        name.push(b'{');
        name.extend_from_slice(&self.0);
        name.push(b'}');
        name
    }

    /// The name of this key's ban: `sluicegate:per-key:ban:{TAG}`, in the same slot.
    pub(super) fn ban(&self, start: &[u8]) -> Vec<u8> {
        self.name(&[start, b"ban:"].concat())
    }

    /// The name of a report about this key: `sluicegate:per-key:report:{TAG}:ID`, in the same slot.
    pub(super) fn report(&self, start: &[u8], id: &[u8; 8]) -> Vec<u8> {
        let mut name = self.name(&[start, b"report:"].concat());
        name.extend_from_slice(format!(":{:016x}", u64::from_be_bytes(*id)).as_bytes());
        name
    }

    /// Its hash slot.
    pub(super) fn slot(&self) -> u16 {
        slot(&self.0)
    }
}

/// The prefix of the names of a limit's keys.
pub(super) fn key_prefix(limit: &CountedLimit) -> &[u8] {
    limit.shared.as_ref().map_or(&[], |shared| &shared.key_prefix)
}

/// The hash slot of the text in braces.
pub(super) fn slot(tag: &[u8]) -> u16 {
    crc16(tag) % SLOTS
}

/// A name that begins with `start` and belongs to this slot.
pub(super) fn in_slot(start: &str, slot: u16) -> String {
    // One in 16,384 numbers fits, so this tries as many on average, once for each connection.
    let tag = (0_u32..).find(|number| self::slot(number.to_string().as_bytes()) == slot).unwrap_or_default();
    format!("{start}:{{{tag}}}")
}

/// CRC-16/XMODEM, as in the specification of Redis Cluster.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"user1000"), 3_443);
    }

    #[test]
    fn a_name_is_short_and_stable_and_does_not_contain_the_key() {
        let tag = Tag::of(&KeyText::from_slice(b"a secret"));
        let name = String::from_utf8(tag.name(b"sluicegate:per-key:")).expect("plain text");
        assert_eq!(name.len(), "sluicegate:per-key:{0123456789abcdef}".len());
        assert_eq!(
            name,
            String::from_utf8(Tag::of(&KeyText::from_slice(b"a secret")).name(b"sluicegate:per-key:"))
                .expect("plain text")
        );
        assert_ne!(tag, Tag::of(&KeyText::from_slice(b"b secret")));
        assert!(!name.contains("secret"));
    }
}
