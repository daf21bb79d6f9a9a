//! A YAML source as fields, each with its place, and the report of what became of them.

use sluicegate_config::{Place, Problem, Report as Mistakes, YamlNode, YamlValue, parse_yaml};

use crate::marks::Marks;
use crate::report::{Outcome, Report, Source};

/// The longest value that is shown in full.
const SHOWN: usize = 70;

/// A value of a source and where it is written.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// Its number among all fields of the import.
    pub(crate) number: usize,
    /// Its keys, joined by dots, with the index of each item of a list.
    pub(crate) path: String,
    pub(crate) source: Source,
    pub(crate) value: Value,
    /// Whether its value is a secret, which the report must not show.
    secret: bool,
}

/// What a field is.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Empty,
    Text(String),
    List(Vec<Field>),
    Map(Vec<(String, Field)>),
}

/// Reads sources, and numbers their fields.
#[derive(Default)]
pub(crate) struct Fields(usize);

impl Fields {
    /// The documents of a file.
    ///
    /// # Errors
    /// The first mistake of syntax, with its line and a caret.
    pub(crate) fn read(&mut self, file: &str, text: &str) -> Result<Vec<Field>, String> {
        let mut found = Vec::new();
        for (first, part) in parts(text) {
            let mistake = |mut problem: Problem| {
                problem.at.line += first;
                let mut report = Mistakes::default();
                report.error(problem);
                report.render(file, text)
            };
            let node = parse_yaml(&part).map_err(mistake)?;
            if !matches!(node.value, YamlValue::Null) {
                found.push(self.field(&node, file, first, String::new()).map_err(mistake)?);
            }
        }
        Ok(found)
    }

    fn field(&mut self, node: &YamlNode, file: &str, first: u64, path: String) -> Result<Field, Problem> {
        let number = self.0;
        self.0 += 1;
        let line = u32::try_from(node.at.line + first).unwrap_or(u32::MAX);
        let value = match &node.value {
            YamlValue::Null | YamlValue::Wrong => Value::Empty,
            YamlValue::Scalar(text) => Value::Text(text.clone()),
            YamlValue::List(items) => {
                let items = items.iter().enumerate();
                let items =
                    items.map(|(index, item)| self.field(item, file, first, format!("{path}[{index}]")));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            YamlValue::Map(entries) => Value::Map(self.entries(entries, file, first, &path)?),
        };
        Ok(Field { number, path, source: Source { file: file.to_owned(), line }, value, secret: false })
    }

    fn entries(
        &mut self,
        entries: &[(YamlNode, YamlNode)],
        file: &str,
        first: u64,
        path: &str,
    ) -> Result<Vec<(String, Field)>, Problem> {
        let mut found: Vec<(String, Field)> = Vec::new();
        for (key, value) in entries {
            let YamlValue::Scalar(name) = &key.value else {
                return Err(Problem::new(key.at, "a key of a mapping must be a text"));
            };
            if found.iter().any(|(known, _)| known == name) {
                return Err(Problem::new(key.at, format!("`{name}` is given twice")));
            }
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let mut field = self.field(value, file, first, below)?;
            // The key is where a reader looks; a value may begin on the next line, or be an alias.
            field.source.line = u32::try_from(key.at.line + first).unwrap_or(u32::MAX);
            found.push((name.clone(), field));
        }
        Ok(found)
    }
}

/// The documents of a text, each with the number of lines before it. No line within a document can begin with `---`.
fn parts(text: &str) -> Vec<(u64, String)> {
    let mut parts = vec![(0, String::new())];
    for (index, line) in text.lines().enumerate() {
        let marker = |mark: &str| {
            line.strip_prefix(mark).filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
        };
        if let Some(rest) = marker("---") {
            parts.push((index as u64, format!("{rest}\n")));
        } else if marker("...").is_some() {
            parts.push((index as u64 + 1, String::new()));
        } else if let Some((_, part)) = parts.last_mut() {
            let directive = line.starts_with('%') && part.trim().is_empty();
            *part += if directive { "" } else { line };
            part.push('\n');
        }
    }
    parts
}

impl Field {
    /// The entry of a mapping, unless it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let entry = self.entries().iter().find(|(key, _)| key == name);
        entry.map(|(_, field)| field).filter(|field| !matches!(field.value, Value::Empty))
    }

    /// The entry at the end of these names.
    pub(crate) fn at(&self, names: &[&str]) -> Option<&Self> {
        names.iter().try_fold(self, |field, name| field.get(name))
    }

    pub(crate) fn entries(&self) -> &[(String, Self)] {
        if let Value::Map(entries) = &self.value { entries } else { &[] }
    }

    pub(crate) fn items(&self) -> &[Self] {
        if let Value::List(items) = &self.value { items } else { &[] }
    }

    /// The text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// The text of an entry.
    pub(crate) fn text_of(&self, name: &str) -> Option<&str> {
        self.get(name)?.text()
    }

    /// The texts of a list, or the only one.
    pub(crate) fn texts(&self) -> Vec<&str> {
        match &self.value {
            Value::Text(text) => vec![text],
            Value::List(items) => items.iter().filter_map(Self::text).collect(),
            Value::Empty | Value::Map(_) => Vec::new(),
        }
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.text_of(name) == Some("true")
    }

    /// Whether it is a no, in any of the ways of YAML 1.1.
    pub(crate) fn says_no(&self) -> bool {
        self.text()
            .is_some_and(|text| ["false", "no", "off", "n"].contains(&text.to_ascii_lowercase().as_str()))
    }

    /// Whether it has an item of the report: a list of texts has one for all of them, a mapping those of its entries.
    pub(crate) fn is_leaf(&self) -> bool {
        match &self.value {
            Value::Empty | Value::Text(_) => true,
            Value::List(items) => {
                items.iter().all(|item| matches!(item.value, Value::Empty | Value::Text(_)))
            }
            Value::Map(entries) => entries.is_empty(),
        }
    }

    /// All fields within it that have items of the report.
    pub(crate) fn leaves(&self) -> Vec<&Self> {
        if self.is_leaf() {
            return vec![self];
        }
        let below = self.items().iter().chain(self.entries().iter().map(|(_, field)| field));
        below.flat_map(Self::leaves).collect()
    }

    /// Keeps the values in it out of the report.
    pub(crate) fn conceal(&mut self) {
        self.secret = true;
        match &mut self.value {
            Value::Empty | Value::Text(_) => {}
            Value::List(items) => items.iter_mut().for_each(Self::conceal),
            Value::Map(entries) => entries.iter_mut().for_each(|(_, field)| field.conceal()),
        }
    }

    /// The field as the report shows it, in one line.
    pub(crate) fn shown(&self) -> String {
        let value = match &self.value {
            _ if self.secret => "…".to_owned(),
            Value::Empty => String::new(),
            Value::Text(text) => text.clone(),
            Value::List(_) => format!("[{}]", self.texts().join(", ")),
            Value::Map(entries) if entries.is_empty() => "{}".to_owned(),
            Value::Map(_) => "{…}".to_owned(),
        };
        let mut value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        if value.chars().count() > SHOWN {
            value = value.chars().take(SHOWN - 1).chain(['…']).collect();
        }
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        let path = if self.path.is_empty() { "document" } else { &self.path };
        format!("{path}: {value}").trim_end().to_owned()
    }
}

impl Marks {
    /// Says the same of all fields within one.
    pub(crate) fn all(&mut self, field: &Field, outcome: Outcome, text: &str) {
        for leaf in field.leaves() {
            self.mark(leaf.number, outcome, text);
        }
    }
}

/// The report with an item for each leaf of the documents, and for every other field of which something was said. `rest` says what
/// became of a leaf that nothing was said of.
pub(crate) fn report(
    mut marks: Marks,
    documents: &[Field],
    rest: &dyn Fn(&Field) -> (Outcome, String),
) -> Report {
    documents.iter().for_each(|document| walk(&mut marks, document, None, rest));
    marks.report
}

fn walk(
    marks: &mut Marks,
    field: &Field,
    lost: Option<&(Outcome, String)>,
    rest: &dyn Fn(&Field) -> (Outcome, String),
) {
    if field.is_leaf() || marks.has(field.number) {
        let otherwise = || lost.cloned().unwrap_or_else(|| rest(field));
        marks.report(field.number, &field.source, &field.shown(), &otherwise);
    }
    if field.is_leaf() {
        return;
    }
    let lost_below = match marks.first(field.number) {
        Some((Outcome::Unsupported, _)) => {
            let name = if field.path.is_empty() { "this document" } else { &field.path };
            Some((Outcome::Unsupported, format!("it is inside {name}, which is unsupported")))
        }
        Some((Outcome::Ignored, text)) => Some((Outcome::Ignored, text.clone())),
        _ => None,
    };
    let lost = lost_below.as_ref().or(lost);
    let below = field.items().iter().chain(field.entries().iter().map(|(_, field)| field));
    below.for_each(|field| walk(marks, field, lost, rest));
}

/// A mistake of a source that makes it useless, at the place of a field.
pub(crate) fn mistake(field: &Field, text: &str, message: &str, help: &str) -> String {
    let mut report = Mistakes::default();
    report.error(Problem::new(Place::new(u64::from(field.source.line), 1, 1), message).help(help));
    report.render(&field.source.file, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_keep_their_lines() {
        let text = "%YAML 1.2\n---\na: 1\n---\n# nothing\n--- # two\nb:\n  - c: [x, y]\n...\n";
        let found = Fields::default().read("f.yaml", text).unwrap();
        let shown: Vec<_> =
            found.iter().flat_map(Field::leaves).map(|f| (f.shown(), f.source.line)).collect();
        assert_eq!(shown, [("a: 1".to_owned(), 3), ("b[0].c: [x, y]".to_owned(), 8)]);
    }

    #[test]
    fn mistakes_have_their_line() {
        let error = Fields::default().read("f.yaml", "a: 1\n---\nb: 1\nb: 2\n").unwrap_err();
        assert!(error.starts_with("f.yaml:4:1: error: `b` is given twice\n"), "{error}");
    }

    #[test]
    fn fields_below_an_unsupported_one_are_in_the_report() {
        let found = Fields::default().read("f.yaml", "a: {b: 1, c: {d: 2}}\ne: secret\n").unwrap();
        let mut marks = Marks::default();
        marks.unsupported(found[0].get("a").unwrap().number, "no");
        let report = report(marks, &found, &|_| (Outcome::Ignored, "rest".to_owned()));
        let items: Vec<_> =
            report.items.iter().map(|item| (item.directive.as_str(), item.text.as_str())).collect();
        let inside = "it is inside a, which is unsupported";
        assert_eq!(
            items,
            [("a: {…}", "no"), ("a.b: 1", inside), ("a.c.d: 2", inside), ("e: secret", "rest")]
        );
    }
}
