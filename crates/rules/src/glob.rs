//! Texts with `*`, matched in linear time.

/// A text with at least one `*`, each of which matches any run of bytes, also none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    /// What stands before the first `*`.
    prefix: Box<[u8]>,
    /// What stands between two, without what is empty.
    middle: Box<[Needle]>,
    /// What stands behind the last.
    suffix: Box<[u8]>,
    /// How many `*` there are.
    stars: u32,
}

/// A text to search for by the algorithm of Knuth, Morris and Pratt, so that no text makes the search slow.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Needle {
    bytes: Box<[u8]>,
    /// For each number of matched bytes, less one: how many of them still match if the next byte does not.
    borders: Box<[u32]>,
}

impl Glob {
    /// `None` if the text has no `*`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (prefix, rest) = text.split_once('*')?;
        let (middle, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
        Some(Self {
            prefix: prefix.as_bytes().into(),
            middle: middle.split('*').filter(|part| !part.is_empty()).map(Needle::new).collect(),
            suffix: suffix.as_bytes().into(),
            stars: u32::try_from(text.matches('*').count()).unwrap_or(u32::MAX),
        })
    }

    /// What stands before the first `*`.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// How many `*` there are.
    pub(crate) fn stars(&self) -> u32 {
        self.stars
    }

    /// Whether nothing but `*` follows the prefix.
    pub(crate) fn is_prefix(&self) -> bool {
        self.middle.is_empty() && self.suffix.is_empty()
    }

    /// Whether the text matches.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let inner = text.strip_prefix(&*self.prefix).and_then(|text| text.strip_suffix(&*self.suffix));
        let Some(mut rest) = inner else { return false };
        // The first place of each part leaves the most room for the next.
        self.middle.iter().all(|needle| {
            let end = needle.end_in(rest);
            rest = &rest[end.unwrap_or(0)..];
            end.is_some()
        })
    }
}

impl Needle {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut borders = vec![0_u32; bytes.len()];
        let mut matched = 0;
        for at in 1..bytes.len() {
            while matched > 0 && bytes[matched] != bytes[at] {
                matched = borders[matched - 1] as usize;
            }
            matched += usize::from(bytes[matched] == bytes[at]);
            borders[at] = matched as u32;
        }
        Self { bytes: bytes.into(), borders: borders.into() }
    }

    /// Where its first occurrence in the text ends.
    fn end_in(&self, text: &[u8]) -> Option<usize> {
        let mut matched = 0;
        for (at, byte) in text.iter().enumerate() {
            while matched > 0 && self.bytes[matched] != *byte {
                matched = self.borders[matched - 1] as usize;
            }
            matched += usize::from(self.bytes[matched] == *byte);
            if matched == self.bytes.len() {
                return Some(at + 1);
            }
        }
        None
    }
}
