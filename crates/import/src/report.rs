//! What became of each directive of a source.

use std::collections::HashSet;
use std::fmt::{self, Write as _};

use serde::Serialize;

/// Where a directive is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Source {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

/// What became of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It has no equivalent. The text says what to do instead.
    Unsupported,
    /// The gateway behaves differently in some cases. The text says in which.
    Approximated,
    /// It has no effect on the result. The text says why.
    Ignored,
    /// The gateway does the same.
    Converted,
}

/// One directive and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Item {
    /// Where it is written.
    #[serde(flatten)]
    pub source: Source,
    /// The directive as it is written, in one line.
    pub directive: String,
    /// What became of it.
    pub outcome: Outcome,
    /// What it was converted to, how that differs, why it does not matter, or what to do instead.
    pub text: String,
    /// Whether the source protected or limited something by it. Such losses come first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub protection: bool,
}

/// All directives of a source, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Differences that concern the whole result, each once.
    pub notes: Vec<String>,
    /// The directives.
    pub items: Vec<Item>,
    /// The same, to find them.
    #[serde(skip)]
    known: HashSet<Item>,
}

/// The result of an import.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The text of the gateway.yaml.
    pub yaml: String,
    /// What became of each directive.
    pub report: Report,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl Outcome {
    /// All outcomes, those that need attention first.
    pub const ALL: [Self; 4] = [Self::Unsupported, Self::Approximated, Self::Ignored, Self::Converted];

    /// The word of the report.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unsupported => "unsupported",
            Self::Approximated => "approximated",
            Self::Ignored => "ignored",
            Self::Converted => "converted",
        }
    }
}

impl Report {
    /// Adds what became of a directive, unless the same was said of it already.
    pub fn add(&mut self, source: &Source, directive: String, outcome: Outcome, text: impl Into<String>) {
        self.add_item(source, directive, outcome, text.into(), false);
    }

    pub(crate) fn add_item(
        &mut self,
        source: &Source,
        directive: String,
        outcome: Outcome,
        text: String,
        protection: bool,
    ) {
        let item = Item { source: source.clone(), directive, outcome, text, protection };
        if self.known.insert(item.clone()) {
            self.items.push(item);
        }
    }

    /// Adds a difference that concerns the whole result, once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// How many items have this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.items.iter().filter(|item| item.outcome == outcome).count()
    }

    /// The numbers of the items, in one line.
    pub fn summary(&self) -> String {
        let counts =
            Outcome::ALL.iter().rev().map(|outcome| format!("{} {}", self.count(*outcome), outcome.word()));
        counts.collect::<Vec<_>>().join(", ")
    }

    /// The report as text: the summary, the notes, then the items, those that need attention first.
    pub fn render(&self) -> String {
        let mut out = format!("{}\n", self.summary());
        if !self.notes.is_empty() {
            out += "\nnotes\n";
            self.notes.iter().for_each(|note| out += &wrapped("  - ", "    ", note));
        }
        for outcome in Outcome::ALL {
            let mut items: Vec<_> = self.items.iter().filter(|item| item.outcome == outcome).collect();
            items.sort_by_key(|item| !item.protection);
            if !items.is_empty() {
                let _ = writeln!(out, "\n{}", outcome.word()); // writing to a String cannot fail
            }
            for item in items {
                let _ = writeln!(out, "  {}  {}", item.source, item.directive);
                out += &wrapped("      ", "      ", &item.text);
            }
        }
        out
    }
}

/// The text in lines of at most 100 characters, as far as its words allow.
fn wrapped(first: &str, next: &str, text: &str) -> String {
    let mut out = String::new();
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > 100 {
            out += &line;
            out.push('\n');
            next.clone_into(&mut line);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line += word;
        empty = false;
    }
    if empty { out } else { out + &line + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(line: u32) -> Source {
        Source { file: "nginx.conf".into(), line }
    }

    #[test]
    fn what_needs_attention_comes_first() {
        let mut report = Report::default();
        report.add(&source(1), "rate 5".into(), Outcome::Converted, "limits.one");
        report.add(&source(2), "if (x) { … }".into(), Outcome::Unsupported, "word ".repeat(30));
        report.add(&source(2), "if (x) { … }".into(), Outcome::Unsupported, "word ".repeat(30));
        report.note("one");
        report.note("one");
        let expected =
            "1 converted, 0 ignored, 0 approximated, 1 unsupported\n\nnotes\n  - one\n\nunsupported\n  \
                        nginx.conf:2  if (x) { … }\n      "
                .to_owned()
                + &["word"; 19].join(" ")
                + "\n      "
                + &["word"; 11].join(" ")
                + "\n\nconverted\n  nginx.conf:1  rate 5\n      limits.one\n";
        assert_eq!(report.render(), expected);
    }
}
