//! What an import knows while it walks through the directives: what became of each, and which one is in force where.

use std::collections::HashMap;

use super::parse::{Block, Directive};
use crate::report::{Outcome, Report};

/// What became of directives so far.
#[derive(Default)]
pub(super) struct Context {
    /// By the address of the directive: the tree does not change during an import.
    marks: HashMap<usize, Vec<(Outcome, String)>>,
    pub(super) report: Report,
}

/// What is in force at a place: its own directives, and those of the blocks around it.
#[derive(Clone)]
pub(super) struct Scope<'a>(Vec<&'a [Directive]>);

impl Context {
    pub(super) fn mark(&mut self, directive: &Directive, outcome: Outcome, text: impl Into<String>) {
        let marks = self.marks.entry(std::ptr::from_ref(directive) as usize).or_default();
        let mark = (outcome, text.into());
        if !marks.contains(&mark) {
            marks.push(mark);
        }
    }

    pub(super) fn converted(&mut self, directive: &Directive, text: impl Into<String>) {
        self.mark(directive, Outcome::Converted, text);
    }

    pub(super) fn approximated(&mut self, directive: &Directive, text: impl Into<String>) {
        self.mark(directive, Outcome::Approximated, text);
    }

    pub(super) fn ignored(&mut self, directive: &Directive, text: impl Into<String>) {
        self.mark(directive, Outcome::Ignored, text);
    }

    pub(super) fn unsupported(&mut self, directive: &Directive, text: impl Into<String>) {
        self.mark(directive, Outcome::Unsupported, text);
    }

    /// Writes all directives to the report, in their order. `rest` says what becomes of those that nothing was said about.
    pub(super) fn finish(
        mut self,
        directives: &[Directive],
        rest: &dyn Fn(&Directive) -> (Outcome, String),
    ) -> Report {
        self.walk(directives, None, rest);
        self.report
    }

    fn walk(
        &mut self,
        directives: &[Directive],
        lost: Option<&(Outcome, String)>,
        rest: &dyn Fn(&Directive) -> (Outcome, String),
    ) {
        for directive in directives {
            let marks = self.marks.remove(&(std::ptr::from_ref(directive) as usize));
            let marks = marks.unwrap_or_else(|| match lost {
                Some(lost) => vec![lost.clone()],
                None => vec![rest(directive)],
            });
            for (outcome, text) in &marks {
                self.report.add(&directive.source, directive.shown(), *outcome, text.clone());
            }
            if has_parameters(&directive.name) {
                // Its block has no directives of its own, except for files that are included.
                for include in directive.children().iter().filter(|child| child.name == "include") {
                    let (outcome, text) = rest(include);
                    self.report.add(&include.source, include.shown(), outcome, text);
                }
                continue;
            }
            let lost_below = match (&directive.block, marks.first()) {
                (Some(Block::Directives(_)), Some((Outcome::Unsupported, _))) => {
                    Some((Outcome::Unsupported, format!("it is inside `{}`", directive.shown())))
                }
                (Some(Block::Directives(_)), Some((Outcome::Ignored, text))) => {
                    Some((Outcome::Ignored, text.clone()))
                }
                _ => None,
            };
            self.walk(directive.children(), lost_below.as_ref().or(lost), rest);
        }
    }
}

/// Whether the lines in the block of this directive are parameters, which the item of the directive covers.
pub(super) fn has_parameters(name: &str) -> bool {
    matches!(name, "types" | "map" | "geo" | "split_clients" | "charset_map")
}

impl<'a> Scope<'a> {
    pub(super) fn top(directives: &'a [Directive]) -> Self {
        Self(vec![directives])
    }

    /// The scope of a block within this one.
    pub(super) fn within(&self, directives: &'a [Directive]) -> Self {
        let mut levels = self.0.clone();
        levels.push(directives);
        Self(levels)
    }

    /// The directives of this name that are in force: those of the innermost block that has any, which replace all others.
    pub(super) fn all(&self, name: &str) -> Vec<&'a Directive> {
        self.all_of(&[name])
    }

    /// The same of several names, which replace each other.
    pub(super) fn all_of(&self, names: &[&str]) -> Vec<&'a Directive> {
        let of = |level: &&'a [Directive]| {
            level.iter().filter(|d| names.contains(&d.name.as_str())).collect::<Vec<_>>()
        };
        self.0.iter().rev().map(of).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// The directive of this name that is in force.
    pub(super) fn last(&self, name: &str) -> Option<&'a Directive> {
        self.all(name).pop()
    }

    /// The directives of this name in the innermost block alone: those that are not inherited.
    pub(super) fn own(&self, name: &str) -> Vec<&'a Directive> {
        self.0.last().map(|level| level.iter().filter(|d| d.name == name).collect()).unwrap_or_default()
    }

    /// All directives of this name, of all blocks, the outermost first: for variables.
    pub(super) fn every(&self, name: &str) -> Vec<&'a Directive> {
        self.0.iter().flat_map(|level| level.iter()).filter(|d| d.name == name).collect()
    }

    /// The directives that are in force, of all names that a directive chosen by `chosen` has.
    pub(super) fn in_force(&self, chosen: &dyn Fn(&Directive) -> bool) -> Vec<&'a Directive> {
        let mut names: Vec<&str> = Vec::new();
        for directive in self.0.iter().flat_map(|level| level.iter()).filter(|directive| chosen(directive)) {
            if !names.contains(&directive.name.as_str()) {
                names.push(&directive.name);
            }
        }
        names.into_iter().flat_map(|name| self.all(name)).collect()
    }

    /// The directives of the innermost block.
    pub(super) fn innermost(&self) -> &'a [Directive] {
        self.0.last().copied().unwrap_or_default()
    }

    /// The directives of the blocks around the innermost one.
    pub(super) fn outer(&self) -> impl Iterator<Item = &'a Directive> {
        self.0.iter().rev().skip(1).flat_map(|level| level.iter())
    }
}
