//! Lists of addresses, which routes deny or allow and limits exempt.

use super::criterion::Kind;
use crate::names::unused;
use crate::report::Source;
use crate::yaml::{Node, list, map, text};

/// All lists of a configuration.
#[derive(Default)]
pub(super) struct Lists {
    found: Vec<(String, Kind, Node)>,
}

impl Lists {
    /// The name of the list of some addresses.
    pub(super) fn named(&mut self, kind: &Kind, source: &Source, word: &str) -> String {
        if let Some((name, ..)) = self.found.iter().find(|(_, known, _)| known == kind) {
            return name.clone();
        }
        let taken = |name: &str| self.found.iter().any(|(known, ..)| known == name);
        let name = unused(word, &taken);
        let node = match kind {
            Kind::SourceFile(file) => map().with("file", text(file)),
            Kind::Source(networks) => list(networks.iter().map(text)),
            _ => list([]),
        };
        self.found.push((name.clone(), kind.clone(), node.source(source)));
        name
    }

    /// The same, as an entry of `exempt`.
    pub(super) fn exempt(&mut self, kind: &Kind, source: &Source) -> String {
        match kind {
            Kind::Source(networks) if networks.len() == 1 => networks[0].clone(),
            kind => format!("list:{}", self.named(kind, source, "exempt")),
        }
    }

    /// The section `lists`.
    pub(super) fn finish(self) -> Node {
        self.found.into_iter().fold(map(), |section, (name, _, node)| section.with(name, node)).block()
    }
}
