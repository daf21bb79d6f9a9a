//! Fields as the libraries have them.

use std::cell::RefCell;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{ADDED, Fields, Line};

/// Bytes of the fields that most requests have.
const USUAL: usize = 576;
/// Names that are kept; a power of two.
const KEPT: usize = 64;
/// The longest name that is kept.
const LONGEST: usize = 64;

/// Names as they were made last, for the next heads: answers have the same ones again and again.
pub struct Names(RefCell<[Option<HeaderName>; KEPT]>);

impl Default for Names {
    fn default() -> Self {
        Self(RefCell::new([const { None }; KEPT]))
    }
}

impl Names {
    /// The name that a line has, which was checked when the line was written.
    fn get(&self, line: Line, text: &[u8]) -> Option<HeaderName> {
        let name = line.name(text);
        // The last letter but one: names of a family often differ behind where they are the same, and end alike.
        let letter = name.get(name.len().wrapping_sub(2)).copied().unwrap_or_default();
        let mut kept = self.0.borrow_mut();
        let slot = &mut kept[usize::from(line.tag.wrapping_add(letter.wrapping_mul(5))) % KEPT];
        if let Some(known) = slot
            && known.as_str().as_bytes() == name
        {
            return Some(known.clone());
        }
        let made = HeaderName::from_bytes(name).ok()?;
        if name.len() <= LONGEST {
            *slot = Some(made.clone());
        }
        Some(made)
    }
}

impl Fields {
    /// No fields, and room for those of a map and for what a gateway adds to them.
    pub fn for_map(map: &HeaderMap) -> Self {
        let mut fields = Self::recycled();
        fields.text.reserve(USUAL + ADDED);
        fields.lines.reserve(map.len());
        fields
    }

    /// The fields as a map, with names that are kept for the next. Values are not copied.
    pub fn into_map(self, names: &Names) -> HeaderMap {
        self.mapped(|line, text| names.get(line, text))
    }

    fn mapped(mut self, mut name: impl FnMut(Line, &[u8]) -> Option<HeaderName>) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.lines.len());
        let text = Bytes::from(std::mem::take(&mut self.text));
        for line in std::mem::take(&mut self.lines) {
            let value = line.value as usize..line.value as usize + line.value_length as usize;
            // Both were checked when they were written.
            if let (Some(name), Ok(value)) =
                (name(line, &text), HeaderValue::from_maybe_shared(text.slice(value)))
            {
                map.append(name, value);
            }
        }
        map
    }
}

impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        let mut fields = Self::for_map(map);
        for (name, value) in map {
            fields.append(name, value);
        }
        fields
    }
}

impl From<Fields> for HeaderMap {
    fn from(fields: Fields) -> Self {
        fields.mapped(|line, text| HeaderName::from_bytes(line.name(text)).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_meet_are_told_apart() {
        // Of the same length and first letter.
        let names = Names::default();
        for name in ["x-a", "x-b", "x-a", "via", "vie"] {
            let map = Fields::from_iter([(name, "v")]).into_map(&names);
            assert_eq!(map.get(name).map(HeaderValue::as_bytes), Some(&b"v"[..]), "{name}");
        }
    }
}
