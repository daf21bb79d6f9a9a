//! Sets of field names that are looked up together.

use super::line::tag;

/// A set of field names. It may match a few other names too, so the caller compares the name afterwards.
pub struct NameFilter([bool; 256]);

impl NameFilter {
    /// A filter for these names, which are in lower case.
    pub const fn of(names: &[&[u8]]) -> Self {
        let (mut tags, mut at) = ([false; 256], 0);
        while at < names.len() {
            tags[tag(names[at]) as usize] = true;
            at += 1;
        }
        Self(tags)
    }

    #[inline]
    pub(super) fn has(&self, tag: u8) -> bool {
        self.0[usize::from(tag)]
    }
}
