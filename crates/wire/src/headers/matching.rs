//! Fields whose names match a filter.

use super::{Headers, NameFilter};

impl Headers {
    /// Names and values of the fields that match the filter.
    #[inline]
    pub fn matching<'a>(&'a self, filter: &'static NameFilter) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let lines = self.lines.iter().filter(|line| filter.has(line.tag));
        lines.map(|line| (line.name(&self.text), line.value(&self.text)))
    }

    /// Removes the fields for which `keep` returns false. It is called with the name and whether the name matches the
    /// filter.
    #[inline]
    pub fn retain_matching(
        &mut self,
        filter: &'static NameFilter,
        mut keep: impl FnMut(&[u8], bool) -> bool,
    ) {
        let Self { text, lines, .. } = self;
        lines.retain(|line| keep(line.name(text), filter.has(line.tag)));
    }

    /// Whether a field matches the filter.
    #[inline]
    pub fn any_matching(&self, filter: &'static NameFilter) -> bool {
        self.lines.iter().any(|line| filter.has(line.tag))
    }
}
