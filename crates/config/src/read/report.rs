//! The report of all mistakes in a file, each with its line, a caret and help.

use std::fmt::Write as _;

use crate::read::nearest::nearest;
use crate::read::redact::{printable, shown};

/// A place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
    /// Characters to underline, at least 1.
    pub length: u64,
}

/// One mistake or doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub at: Place,
    /// The error: what was expected and what was found.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Lines of its own: the mistakes of another file.
    pub details: Vec<String>,
}

/// A mistake in a value whose position is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The error.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// Everything that was found in a file.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Mistakes: the file cannot be used.
    pub errors: Vec<Problem>,
    /// Doubts: the file works, but perhaps not as meant.
    pub warnings: Vec<Problem>,
}

impl Place {
    /// The first character of the file.
    pub const START: Self = Self { line: 1, column: 1, length: 1 };

    /// `length` characters from a line and column.
    pub fn new(line: u64, column: u64, length: u64) -> Self {
        Self { line: line.max(1), column: column.max(1), length: length.max(1) }
    }
}

impl Problem {
    /// A problem without advice.
    pub fn new(at: Place, message: impl Into<String>) -> Self {
        Self { at, message: printable(&message.into()), help: None, details: Vec::new() }
    }

    /// Adds advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(printable(&help.into()));
        self
    }

    /// Suggests the name of `known` that is nearest to `name`, or gives other help if none is near.
    pub(crate) fn did_you_mean<'a>(
        self,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
        otherwise: impl FnOnce() -> String,
    ) -> Self {
        let near = nearest(name, known).map(|near| format!("did you mean `{near}`?"));
        self.help(near.unwrap_or_else(otherwise))
    }
}

impl Mistake {
    /// A mistake without advice.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }

    /// Adds advice.
    pub fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// The same advice below another message.
    pub fn saying(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }

    /// The problem that it is in its place.
    pub fn at(self, at: Place) -> Problem {
        let problem = Problem::new(at, self.message);
        match self.help {
            Some(help) => problem.help(help),
            None => problem,
        }
    }
}

impl From<String> for Mistake {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl Report {
    /// Notes a mistake.
    pub fn error(&mut self, problem: Problem) {
        self.errors.push(problem);
    }

    /// Notes a doubt.
    pub fn warning(&mut self, problem: Problem) {
        self.warnings.push(problem);
    }

    /// Sorts by place, for reading from the top.
    pub fn sort(&mut self) {
        self.errors.sort_by_key(|p| p.at);
        self.warnings.sort_by_key(|p| p.at);
    }

    /// The report as people read it, with the lines of `text`; empty when nothing was found.
    pub fn render(&self, file: &str, text: &str) -> String {
        let mut out = String::new();
        for (word, problems) in [("error", &self.errors), ("warning", &self.warnings)] {
            for problem in problems {
                render_problem(&mut out, file, text, word, problem);
            }
        }
        out
    }
}

fn render_problem(out: &mut String, file: &str, text: &str, word: &str, problem: &Problem) {
    let Place { line, column, length } = problem.at;
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{file}:{line}:{column}: {word}: {}", problem.message);
    if let Some(source) = shown(text, line) {
        let gutter = line.to_string();
        let width = source.chars().count() as u64;
        let length = length.min((width + 1).saturating_sub(column)).max(1);
        let indent: String = (source.chars().map(|c| if c == '\t' { '\t' } else { ' ' }))
            .chain(std::iter::repeat(' '))
            .take(column as usize - 1)
            .collect();
        let _ = writeln!(out, "  {gutter} | {source}");
        let _ = writeln!(out, "  {} | {indent}{}", " ".repeat(gutter.len()), "^".repeat(length as usize));
    }
    for detail in &problem.details {
        let _ = writeln!(out, "  {}", printable(detail));
    }
    if let Some(help) = &problem.help {
        let _ = writeln!(out, "  help: {help}");
    }
}
