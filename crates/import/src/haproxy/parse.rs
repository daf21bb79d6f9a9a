//! The sections of a haproxy.cfg, each with its lines.

use super::lexer::{Environment, Mistake, words};
use crate::report::Source;

/// A line of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number among all lines with words, from 0.
    pub id: usize,
    /// Where it is written.
    pub source: Source,
    /// Its words, without quotes.
    pub words: Vec<String>,
    /// The text without its comment.
    pub shown: String,
    /// Variables of the environment in it that are not set.
    pub unset: Vec<String>,
}

/// A section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The line that begins it.
    pub line: Line,
    /// Its lines.
    pub lines: Vec<Line>,
    /// The number of the `defaults` in force.
    pub defaults: Option<usize>,
}

/// The words that begin a section.
const SECTIONS: [&str; 19] = [
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "peers",
    "resolvers",
    "userlist",
    "mailers",
    "cache",
    "program",
    "http-errors",
    "ring",
    "fcgi-app",
    "log-forward",
    "log-profile",
    "crt-store",
    "traces",
    "acme",
];

impl Line {
    /// A word, or the empty text.
    pub fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// The words from this one on.
    pub fn from(&self, index: usize) -> &[String] {
        self.words.get(index..).unwrap_or_default()
    }
}

impl Section {
    /// The word that begins it.
    pub fn kind(&self) -> &str {
        self.line.word(0)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.line.word(1)
    }
}

/// Reads the sections of a file. `setenv` and `presetenv` of the section `global` are in force from their line on.
///
/// # Errors
/// The first mistake, with its line and a caret.
pub fn parse(file: &str, text: &str, environment: Environment<'_>) -> Result<Vec<Section>, String> {
    let mut set: Vec<(String, String)> = Vec::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut id = 0;
    for (index, raw) in text.lines().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let look = |name: &str| {
            let own = set.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone());
            own.or_else(|| environment(name))
        };
        let words = words(raw, &look).map_err(|mistake| report(file, number, raw, &mistake))?;
        let Some(first) = words.words.first() else { continue };
        let source = Source { file: file.to_owned(), line: number };
        let shown = raw[..words.end].trim().to_owned();
        let begins = SECTIONS.contains(&first.as_str());
        let line = Line { id, source, words: words.words.clone(), shown, unset: words.unset };
        id += 1;
        match sections.last_mut() {
            _ if begins => {
                let defaults = defaults(&sections, &line);
                sections.push(Section { line, lines: Vec::new(), defaults });
            }
            Some(section) => {
                let known = set.iter().any(|(name, _)| name == line.word(1));
                match line.word(0) {
                    "setenv" => set.push((line.word(1).to_owned(), line.word(2).to_owned())),
                    "presetenv" if !known && environment(line.word(1)).is_none() => {
                        set.push((line.word(1).to_owned(), line.word(2).to_owned()));
                    }
                    _ => {}
                }
                section.lines.push(line);
            }
            None => {
                let at = raw.len() - raw.trim_start().len();
                let message = "this line is in no section";
                let help = "a configuration of HAProxy begins with a section such as `global`, `defaults` or `frontend`";
                return Err(
                    report(file, number, raw, &Mistake { at, message }) + &format!("  help: {help}\n")
                );
            }
        }
    }
    Ok(sections)
}

/// The `defaults` that a section takes its settings from: those that it names, or the last ones above it.
fn defaults(sections: &[Section], line: &Line) -> Option<usize> {
    let named = line.words.iter().position(|word| word == "from").map(|at| line.word(at + 1));
    let is =
        |section: &&Section| section.kind() == "defaults" && named.is_none_or(|name| section.name() == name);
    if line.word(0) == "defaults" && named.is_none() {
        return None;
    }
    sections.iter().rposition(|section| is(&section))
}

fn report(file: &str, number: u32, raw: &str, mistake: &Mistake) -> String {
    let column = raw[..mistake.at].chars().count();
    let margin = " ".repeat(number.to_string().len());
    let pad: String = raw.chars().take(column).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    format!(
        "{file}:{number}:{}: error: {}\n  {number} | {}\n  {margin} | {pad}^\n",
        column + 1,
        mistake.message,
        raw.trim_end()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_lines_and_defaults() {
        let text = "global\n  presetenv PORT 80\n  presetenv HOME x\n\ndefaults base\n  mode http # x\ndefaults other\nfrontend a from base\n  \
                    bind \"*:$PORT\"\nbackend b\n";
        let sections = parse("h.cfg", text, &|name| (name == "HOME").then(|| "/root".to_owned())).unwrap();
        let names: Vec<_> =
            sections.iter().map(|section| (section.kind(), section.name(), section.defaults)).collect();
        assert_eq!(
            names,
            [
                ("global", "", None),
                ("defaults", "base", None),
                ("defaults", "other", None),
                ("frontend", "a", Some(1)),
                ("backend", "b", Some(2)),
            ]
        );
        assert_eq!(
            (sections[3].lines[0].words.as_slice(), sections[3].lines[0].source.line),
            (["bind".to_owned(), "*:80".to_owned()].as_slice(), 9)
        );
        assert_eq!(sections[1].lines[0].shown, "mode http");
    }

    #[test]
    fn mistakes_have_a_place() {
        assert_eq!(
            parse("h.cfg", "global\n  log 'x\n", &|_| None).unwrap_err(),
            "h.cfg:2:7: error: the quote that begins here is not closed on its line\n  2 |   log 'x\n    |       ^\n"
        );
        assert!(parse("h.cfg", "bind :80\n", &|_| None).unwrap_err().contains("this line is in no section"));
    }
}
