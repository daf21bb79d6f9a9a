//! What became of each part of a source, by the number of the part.

use crate::report::{Outcome, Report, Source};

/// What became of the parts so far.
#[derive(Default)]
pub(crate) struct Marks {
    /// By the number of the part.
    found: Vec<Vec<(Outcome, String)>>,
    pub(crate) report: Report,
}

impl Marks {
    pub(crate) fn mark(&mut self, part: usize, outcome: Outcome, text: impl Into<String>) {
        if self.found.len() <= part {
            self.found.resize(part + 1, Vec::new());
        }
        let mark = (outcome, text.into());
        if !self.found[part].contains(&mark) {
            self.found[part].push(mark);
        }
    }

    pub(crate) fn converted(&mut self, part: usize, text: impl Into<String>) {
        self.mark(part, Outcome::Converted, text);
    }

    pub(crate) fn approximated(&mut self, part: usize, text: impl Into<String>) {
        self.mark(part, Outcome::Approximated, text);
    }

    pub(crate) fn ignored(&mut self, part: usize, text: impl Into<String>) {
        self.mark(part, Outcome::Ignored, text);
    }

    pub(crate) fn unsupported(&mut self, part: usize, text: impl Into<String>) {
        self.mark(part, Outcome::Unsupported, text);
    }

    /// Whether anything was said about a part.
    pub(crate) fn has(&self, part: usize) -> bool {
        self.found.get(part).is_some_and(|marks| !marks.is_empty())
    }

    /// What was said first about a part.
    pub(crate) fn first(&self, part: usize) -> Option<&(Outcome, String)> {
        self.found.get(part)?.first()
    }

    /// Writes what became of a part to the report; `rest` says it of a part that nothing was said about.
    pub(crate) fn report(
        &mut self,
        part: usize,
        source: &Source,
        shown: &str,
        rest: &dyn Fn() -> (Outcome, String),
    ) {
        let marks = self.found.get(part).filter(|marks| !marks.is_empty()).cloned();
        for (outcome, text) in marks.unwrap_or_else(|| vec![rest()]) {
            self.report.add(source, shown.to_owned(), outcome, text);
        }
    }
}
