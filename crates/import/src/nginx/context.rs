//! What an import knows while it walks through the directives: what became of each, and which one is in force where.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use super::parse::{Block, Directive};
use super::protection::{is_protection, protects};
use super::units::{Piece, pieces};
use crate::report::{Outcome, Report};

/// What became of directives so far.
#[derive(Default)]
pub(super) struct Context {
    /// By the address of the directive: the tree does not change during an import.
    marks: HashMap<usize, Vec<(Outcome, String)>>,
    /// The addresses of directives without which something is open or unlimited.
    open: HashSet<usize>,
    pub(super) report: Report,
}

/// What is in force at a place: its own directives, and those of the blocks around it.
#[derive(Clone)]
pub(super) struct Scope<'a>(Vec<Rc<Level<'a>>>);

/// The directives of one block by their names: a server may have thousands of locations, and each asks for what it inherits.
type Level<'a> = BTreeMap<&'a str, Vec<&'a Directive>>;

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

    /// The same of what nginx protects or limits, and the result does not. It comes first in the report.
    pub(super) fn open(&mut self, directive: &Directive, text: impl Into<String>) {
        self.open.insert(std::ptr::from_ref(directive) as usize);
        self.unsupported(directive, text);
    }

    pub(super) fn is_lost(&self, directive: &Directive) -> bool {
        self.outcomes(directive).any(|outcome| outcome == Outcome::Unsupported)
    }

    /// What was said about a directive.
    fn outcomes(&self, directive: &Directive) -> impl Iterator<Item = Outcome> {
        let marks = self.marks.get(&(std::ptr::from_ref(directive) as usize));
        marks.into_iter().flatten().map(|(outcome, _)| *outcome)
    }

    /// Says of variables what became of the directives that use them.
    fn variables(&mut self, directives: &[Directive]) {
        let mut uses: HashMap<String, Vec<&Directive>> = HashMap::new();
        let mut definitions = Vec::new();
        each(directives, &mut |directive| {
            match directive.name.as_str() {
                "set" => definitions.push((directive, directive.arg(0))),
                "map" | "geo" | "split_clients" => {
                    definitions.push((directive, directive.args.last().map_or("", String::as_str)));
                }
                _ => {}
            }
            let names = directive.args.iter().skip(usize::from(directive.name == "set"));
            for piece in names.flat_map(|text| pieces(text)) {
                if let Piece::Variable(name) = piece {
                    uses.entry(name).or_default().push(directive);
                }
            }
        });
        for (directive, variable) in definitions {
            let users = uses.get(variable.trim_start_matches('$')).into_iter().flatten();
            let mut users = users.filter(|user| !std::ptr::eq(**user, directive));
            if self.outcomes(directive).next().is_some() {
                continue;
            }
            let lost = users.clone().find(|user| self.is_lost(user));
            if let Some(user) = lost {
                let why = format!("what uses it could not be converted: {}  {}", user.source, user.shown());
                self.unsupported(directive, why);
            } else if directive.name == "set" && users.any(|user| self.outcomes(user).next().is_some()) {
                self.converted(directive, "its value stands where it is used");
            }
        }
    }

    /// Writes all directives to the report, in their order. `rest` says what becomes of those that nothing was said about.
    pub(super) fn finish(
        mut self,
        directives: &[Directive],
        rest: &dyn Fn(&Directive) -> (Outcome, String),
    ) -> Report {
        self.variables(directives);
        self.walk(directives, rest);
        self.report
    }

    fn walk(&mut self, directives: &[Directive], rest: &dyn Fn(&Directive) -> (Outcome, String)) {
        for directive in directives {
            let address = std::ptr::from_ref(directive) as usize;
            let mut marks = self.marks.remove(&address).unwrap_or_else(|| vec![rest(directive)]);
            let is_lost =
                |(outcome, _): &(Outcome, String)| matches!(outcome, Outcome::Unsupported | Outcome::Ignored);
            // One item stands for all of a block that is left out, except for what was said about its lines before.
            let whole = matches!(&directive.block, Some(Block::Directives(_))) && marks.iter().all(is_lost);
            let has_parameters = has_parameters(&directive.name);
            if whole && !has_parameters && !directive.children().is_empty() {
                marks.iter_mut().for_each(|(_, text)| *text += " (with the lines in it)");
            }
            let protects = self.open.contains(&address) || is_protection(directive);
            for (outcome, text) in marks {
                let first = protects && outcome == Outcome::Unsupported;
                self.report.add_item(&directive.source, directive.shown(), outcome, text, first);
            }
            if whole || has_parameters {
                let mut said = Vec::new();
                each(directive.children(), &mut |child| {
                    let address = std::ptr::from_ref(child) as usize;
                    if child.name == "include" || self.marks.contains_key(&address) {
                        said.push(child);
                    }
                });
                said.into_iter().for_each(|child| self.walk(std::slice::from_ref(child), rest));
            } else {
                self.walk(directive.children(), rest);
            }
        }
    }
}

/// Goes through directives and what is in their blocks.
fn each<'a>(directives: &'a [Directive], visit: &mut dyn FnMut(&'a Directive)) {
    for directive in directives {
        visit(directive);
        each(directive.children(), visit);
    }
}

/// Whether the lines in the block of this directive are parameters, which the item of the directive covers.
pub(super) fn has_parameters(name: &str) -> bool {
    matches!(name, "types" | "map" | "geo" | "split_clients" | "charset_map")
}

impl<'a> Scope<'a> {
    pub(super) fn top(directives: &'a [Directive]) -> Self {
        Self(Vec::new()).within(directives)
    }

    /// The scope of a block within this one.
    pub(super) fn within(&self, directives: &'a [Directive]) -> Self {
        let mut level = Level::new();
        for directive in directives {
            level.entry(directive.name.as_str()).or_default().push(directive);
        }
        let mut levels = self.0.clone();
        levels.push(Rc::new(level));
        Self(levels)
    }

    /// The directives of this name that are in force: those of the innermost block that has any, which replace all others.
    pub(super) fn all(&self, name: &str) -> Vec<&'a Directive> {
        self.0.iter().rev().find_map(|level| level.get(name)).cloned().unwrap_or_default()
    }

    /// The same of two names, which replace each other, in the order of the file.
    pub(super) fn all_of(&self, names: [&str; 2]) -> Vec<&'a Directive> {
        let has = |level: &&Rc<Level<'a>>| names.iter().any(|name| level.contains_key(*name));
        let Some(level) = self.0.iter().rev().find(has) else { return Vec::new() };
        let mut found: Vec<_> = names.iter().filter_map(|name| level.get(*name)).flatten().copied().collect();
        found.sort_by_key(|directive| std::ptr::from_ref(*directive)); // those of a block are in one slice
        found
    }

    /// The directive of this name that is in force.
    pub(super) fn last(&self, name: &str) -> Option<&'a Directive> {
        self.0.iter().rev().find_map(|level| level.get(name))?.last().copied()
    }

    /// The directives of this name in the innermost block alone: those that are not inherited.
    pub(super) fn own(&self, name: &str) -> Vec<&'a Directive> {
        self.0.last().and_then(|level| level.get(name)).cloned().unwrap_or_default()
    }

    /// All directives of this name, of all blocks, the outermost first: for variables.
    pub(super) fn every(&self, name: &str) -> Vec<&'a Directive> {
        self.0.iter().filter_map(|level| level.get(name)).flatten().copied().collect()
    }

    /// The directives that are in force, of all names that a directive chosen by `chosen` has.
    pub(super) fn in_force(&self, chosen: &dyn Fn(&Directive) -> bool) -> Vec<&'a Directive> {
        let mut names: Vec<&str> = Vec::new();
        for (name, directives) in self.0.iter().flat_map(|level| level.iter()) {
            if !is_place(name)
                && !names.contains(name)
                && directives.iter().any(|directive| chosen(directive))
            {
                names.push(name);
            }
        }
        names.into_iter().flat_map(|name| self.all(name)).collect()
    }

    /// Whether the block, or one inside of it, keeps anybody from anything.
    pub(super) fn is_protected(&self) -> bool {
        // Of the blocks around it, what is inherited: not other blocks.
        self.outer().any(|directive| directive.block.is_none() && protects(directive))
            || self.innermost().any(protects)
    }

    /// The directives of the innermost block.
    pub(super) fn innermost(&self) -> impl Iterator<Item = &'a Directive> {
        self.0.last().into_iter().flat_map(|level| level.values().flatten().copied())
    }

    /// The directives of the blocks around the innermost one that a block may inherit.
    pub(super) fn outer(&self) -> impl Iterator<Item = &'a Directive> {
        let levels = self.0.iter().rev().skip(1).flat_map(|level| level.iter());
        levels.filter(|(name, _)| !is_place(name)).flat_map(|(_, found)| found.iter().copied())
    }
}

/// Whether a directive has routes of its own, of which nothing is inherited.
fn is_place(name: &str) -> bool {
    matches!(name, "server" | "location")
}
