//! The position of one field in the text of a head, and the tags by which fields are found.

/// The position of one field in the text.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) name: u32,
    pub(super) value: u32,
    pub(super) value_length: u32,
    pub(super) name_length: u16,
    pub(super) tag: u8,
    /// The text contains the field as HTTP/1.1 writes it: `name: value` CRLF.
    pub(super) whole: bool,
}

/// A hash of length and first letter: equal names have equal tags, few different names do.
pub(super) const fn tag(name: &[u8]) -> u8 {
    match name {
        [] => 0,
        [first, ..] => (name.len() as u8).wrapping_mul(37).wrapping_add(*first),
    }
}

pub(super) const fn bit(tag: u8) -> u64 {
    1 << (tag & 63)
}

impl Line {
    #[inline]
    pub(super) fn name(self, text: &[u8]) -> &[u8] {
        &text[self.name as usize..][..usize::from(self.name_length)]
    }

    #[inline]
    pub(super) fn value(self, text: &[u8]) -> &[u8] {
        &text[self.value as usize..][..self.value_length as usize]
    }

    /// A field whose name and value are at these positions and whose tag is set later; `None` if it is too long.
    pub(super) fn at(name: (usize, usize), value: (usize, usize), whole: bool) -> Option<Self> {
        let is_short = value.1 <= u32::MAX as usize && name.1 - name.0 <= usize::from(u16::MAX);
        is_short.then_some(Self {
            name: name.0 as u32,
            value: value.0 as u32,
            value_length: (value.1 - value.0) as u32,
            name_length: (name.1 - name.0) as u16,
            tag: 0,
            whole,
        })
    }

    #[inline]
    pub(super) fn is(self, text: &[u8], tag: u8, name: &[u8]) -> bool {
        self.tag == tag && self.name(text) == name
    }
}
