//! Imports, and the circles among them.

use std::collections::{BTreeMap, BTreeSet};

/// One file or module names an item of another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The path by which the item is named.
    pub(crate) path: String,
}

/// The members of each circle, by name.
pub(crate) fn circles(imports: &[Import]) -> Vec<Vec<String>> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for one in imports {
        next.entry(&one.from).or_default().insert(&one.to);
    }
    let reached = |from: &str| {
        let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(one) = left.pop() {
            let new = next.get(one).into_iter().flatten().filter(|to| reached.insert(**to));
            left.extend(new.copied().collect::<Vec<_>>());
        }
        reached
    };
    let all: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|from| (*from, reached(from))).collect();
    let mut circles = BTreeSet::new();
    for (from, reached) in &all {
        let both = reached.iter().filter(|to| all.get(**to).is_some_and(|back| back.contains(from)));
        let circle: Vec<String> = both.map(|one| (*one).to_owned()).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}
