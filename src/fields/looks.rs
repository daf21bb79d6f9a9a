//! Names that are looked for together.

use super::{Fields, tag};

/// Names that are looked for together. Nearly all lines with other names are passed over without a look at these.
pub struct Looks([bool; 256]);

impl Looks {
    /// Those of names in lower case.
    pub const fn of(names: &[&[u8]]) -> Self {
        let (mut looks, mut at) = ([false; 256], 0);
        while at < names.len() {
            looks[tag(names[at]) as usize] = true;
            at += 1;
        }
        Self(looks)
    }

    pub(super) fn have(&self, tag: u8) -> bool {
        self.0[usize::from(tag)]
    }
}

impl Fields {
    /// Names and values of the lines that may have one of some names: of all that have one, and of few others.
    pub fn like<'a>(&'a self, looks: &'static Looks) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let lines = self.lines.iter().filter(|line| looks.have(line.tag));
        lines.map(|line| (line.name(&self.text), line.value(&self.text)))
    }

    /// Keeps the lines for whose names `keep` says so; they are told whether they may be one of some names.
    pub fn sift(&mut self, looks: &'static Looks, mut keep: impl FnMut(&[u8], bool) -> bool) {
        let Self { text, lines, .. } = self;
        lines.retain(|line| keep(line.name(text), looks.have(line.tag)));
    }

    /// Whether a line may have one of some names.
    pub fn any_like(&self, looks: &'static Looks) -> bool {
        self.lines.iter().any(|line| looks.have(line.tag))
    }
}
