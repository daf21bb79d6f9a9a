//! Named entries of the file and references to them: listeners, limits, upstreams.

use std::collections::HashMap;

use super::checks::check_name;
use crate::model::reference::Reference;
use crate::read::Named;
use crate::read::at::At;
use crate::read::report::Report;

/// All entries of one kind. A wrong entry is kept as `None`, so that references to it are not reported.
pub(super) struct Section<T> {
    what: &'static str,
    /// Whether all names are known; of a section that cannot be read they are not.
    complete: bool,
    things: Vec<(At<String>, Option<T>)>,
    /// Where each name stands, and how many valid things stand before it.
    by_name: HashMap<String, (usize, usize)>,
    /// The valid things.
    count: usize,
}

impl<T> Section<T> {
    /// A section without things. `given_but_wrong` if the file has it and it cannot be read.
    pub(super) fn new(what: &'static str, given_but_wrong: bool) -> Self {
        Self { what, complete: !given_but_wrong, things: Vec::new(), by_name: HashMap::new(), count: 0 }
    }

    /// A section of the file, its things read by `read`.
    pub(super) fn read<R>(
        mut self,
        raw: Option<&At<Named<R>>>,
        report: &mut Report,
        mut read: impl FnMut(&At<String>, &R, &mut Report) -> Option<T>,
    ) -> Self {
        for (name, raw) in raw.map_or(&[][..], |raw| &raw.value.0) {
            check_name(name, self.what, report);
            let thing = raw.as_ref().and_then(|raw| read(name, raw, report));
            if thing.is_none() && report.errors.is_empty() {
                // A thing must never vanish silently: the routes that ask for it would go on without it.
                report.error(
                    name.problem(format!("`{}` is wrong, and nothing says why: report this", name.value)),
                );
            }
            self.push(name.clone(), thing);
        }
        self
    }

    pub(super) fn push(&mut self, name: At<String>, thing: Option<T>) {
        self.by_name.entry(name.value.clone()).or_insert((self.things.len(), self.count));
        self.count += usize::from(thing.is_some());
        self.things.push((name, thing));
    }

    /// The thing called `name`, and a reference to it by its index among the valid ones. `None` if it is unknown or wrong;
    /// an unknown name is reported.
    pub(super) fn find(&self, name: &At<String>, report: &mut Report) -> Option<(Reference, &T)> {
        if let Some((at, index)) = self.by_name.get(&name.value) {
            let thing = self.things[*at].1.as_ref()?;
            return Some((Reference { index: *index, name: name.value.clone() }, thing));
        }
        if !self.complete {
            return None;
        }
        let names: Vec<&str> = self.things.iter().map(|(name, _)| name.value.as_str()).collect();
        let problem = name.problem(format!("there is no {} called `{}`", self.what, name.value));
        report.error(problem.did_you_mean(&name.value, names.iter().copied(), || match names.as_slice() {
            [] => format!("the file has no {}s", self.what),
            names => format!("there are: {}", names.join(", ")),
        }));
        None
    }

    /// Whether the section and all things in it could be read.
    pub(super) fn is_complete(&self) -> bool {
        self.complete && self.things.iter().all(|(_, thing)| thing.is_some())
    }

    /// The valid things with their names, in the order of the file.
    pub(super) fn valid(&self) -> impl Iterator<Item = (&At<String>, &T)> {
        self.things.iter().filter_map(|(name, thing)| Some((name, thing.as_ref()?)))
    }

    /// The valid things alone.
    pub(super) fn into_valid(self) -> Vec<T> {
        self.things.into_iter().filter_map(|(_, thing)| thing).collect()
    }
}
