//! The file of consumers -> entries.
//!
//! It is JSON Lines, an object on each line, or YAML, but not all of it: a list whose entries begin with `- ` on a line of
//! their own. Either way a million of them are read in one pass, and one that is wrong does not hide the others.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::scan::{NOT_TEXT, Scan, TAG, Value, Wrong};
use sluicegate_base::file_watch::{Digest, Mistakes};
use sluicegate_config::Priority;

/// A consumer as the file has it.
#[derive(Debug)]
pub(super) struct Entry<'t> {
    /// Its first line and its last, from 1.
    pub(super) lines: (u32, u32),
    pub(super) name: Cow<'t, str>,
    pub(super) plan: Option<Cow<'t, str>>,
    pub(super) priority: Option<Priority>,
    pub(super) keys: SmallVec<[Key<'t>; 1]>,
    pub(super) metadata: Vec<(Cow<'t, str>, Cow<'t, str>)>,
}

/// A key as the file has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'t> {
    pub(super) digest: Digest,
    /// The piece of the file's text, without quotes.
    pub(super) text: &'t str,
}

/// The longest name of a consumer and of a plan, and the longest metadata.
const MAX_NAME: usize = 128;
const MAX_PLAN: usize = 64;
const MAX_METADATA: usize = 4 << 10;
const FIELDS: [&str; 6] = ["name", "key", "keys", "plan", "priority", "metadata"];

/// Calls `each` with every entry that is right, and notes what is wrong with the others.
pub(super) fn read<'t>(
    text: &'t str,
    mistakes: &mut Mistakes,
    mut each: impl FnMut(Entry<'t>, &mut Mistakes),
) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut begun = None; // where the dashes of the entries stand
    let mut none = false; // written out
    let mut lines = false; // JSON Lines
    let mut draft: Option<Draft<'t>> = None;
    for (number, line) in (1_u32..).zip(text.lines()) {
        let body = line.trim_start_matches(' ');
        let indent = line.len() - body.len();
        let body = body.trim_end();
        if is_nothing(body) || (begun.is_none() && body == "[]") {
            none |= body == "[]";
            continue;
        }
        let item = body.strip_prefix('-').filter(|rest| rest.is_empty() || rest.starts_with(' '));
        if begun.is_none() && (lines || body.trim_start().starts_with('{')) {
            lines = true;
            let mut entry = Draft::new(number);
            entry.json(line, mistakes);
            if let Some(entry) = entry.finish(mistakes) {
                each(entry, mistakes);
            }
            continue;
        }
        match (item, &mut draft) {
            (Some(fields), _) if begun.is_none_or(|at| at == indent) => {
                begun = Some(indent);
                if let Some(entry) = draft.take().and_then(|draft| draft.finish(mistakes)) {
                    each(entry, mistakes);
                }
                let column = indent + 1 + fields.len() - fields.trim_start_matches(' ').len();
                let mut next = Draft::new(number);
                next.begin(column, fields.trim(), mistakes);
                draft = Some(next);
            }
            (_, Some(draft)) => draft.line(number, indent, body, item, mistakes),
            (_, None) => {
                let what = match body.starts_with('!') || body.starts_with("--- !") {
                    true => TAG,
                    false => {
                        "the file is a list of consumers: each begins with `- name: NAME`, or is a line `{\"name\": …}`"
                    }
                };
                return mistakes.add(number, what); // nothing that follows would make sense
            }
        }
    }
    if begun.is_none() && !lines && !none {
        // A file that was cut off or not written yet must not turn everybody away, or make every key a stranger's.
        mistakes.add(1, "the file names no consumer; if there are to be none, write `[]`");
    }
    if let Some(entry) = draft.and_then(|draft| draft.finish(mistakes)) {
        each(entry, mistakes);
    }
}

/// Whether a text says nothing at all: it is blank, but for comments.
pub(super) fn is_blank(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').lines().all(|line| is_nothing(line.trim()))
}

/// Whether a line says nothing.
fn is_nothing(line: &str) -> bool {
    line.is_empty() || line.starts_with('#') || line == "---"
}

/// An entry of which not all lines are read.
struct Draft<'t> {
    lines: (u32, u32),
    /// Where its fields begin, once one has.
    indent: Option<usize>,
    /// The field whose value stands on lines of its own, and where those begin.
    open: Option<(&'static str, Option<usize>)>,
    given: SmallVec<[&'static str; 6]>,
    name: Cow<'t, str>,
    plan: Option<Cow<'t, str>>,
    priority: Option<Priority>,
    keys: SmallVec<[Key<'t>; 1]>,
    metadata: Vec<(Cow<'t, str>, Cow<'t, str>)>,
    wrong: bool,
}

impl<'t> Draft<'t> {
    fn new(line: u32) -> Self {
        Self {
            lines: (line, line),
            indent: None,
            open: None,
            given: SmallVec::new(),
            name: Cow::Borrowed(""),
            plan: None,
            priority: None,
            keys: SmallVec::new(),
            metadata: Vec::new(),
            wrong: false,
        }
    }

    fn mistake(&mut self, message: impl Into<String>, mistakes: &mut Mistakes) {
        self.wrong = true;
        mistakes.add(self.lines.1, message);
    }

    /// The line of the dash: nothing more, all in braces, or the first field.
    fn begin(&mut self, column: usize, fields: &'t str, mistakes: &mut Mistakes) {
        if fields.is_empty() || fields.starts_with('#') {
            return;
        }
        if !fields.starts_with('{') {
            self.indent = Some(column);
            return self.field(fields, mistakes);
        }
        match Scan::new(fields).value() {
            Ok(value) => self.fields(value, mistakes),
            Err(wrong) => self.mistake(wrong, mistakes),
        }
    }

    /// A line of JSON Lines, which is the whole entry. As programs often write null for what is missing, a field that is
    /// null is one that is not there.
    fn json(&mut self, line: &'t str, mistakes: &mut Mistakes) {
        match serde_json::from_str(line) {
            Ok(Value::Map(mut fields)) => {
                let is_missing = |name: &str| name != "name" && FIELDS.contains(&name);
                fields.retain(|(name, value)| *value != Value::Nothing || !is_missing(name));
                self.fields(Value::Map(fields), mistakes);
            }
            Ok(value) => self.fields(value, mistakes),
            // The text of the error may quote the line, in which a key may be.
            Err(error) if error.is_data() => self.mistake(NOT_TEXT, mistakes),
            Err(error) => {
                let before = line.bytes().take(error.column());
                let column = before.filter(|byte| byte & 0xc0 != 0x80).count(); // characters, not bytes
                let message = format!("the line is not one JSON object: it is malformed at column {column}");
                self.mistake(message, mistakes);
            }
        }
    }

    /// All fields of an entry.
    fn fields(&mut self, value: Value<'t>, mistakes: &mut Mistakes) {
        let Value::Map(fields) = value else {
            return self.mistake("expected the fields of a consumer", mistakes);
        };
        for (name, value) in fields {
            self.set(&name, value, mistakes);
            if let Some((field, _)) = self.open.take() {
                self.mistake(format!("`{field}` is empty"), mistakes);
            }
        }
    }

    /// A line below the one of the dash.
    fn line(
        &mut self,
        number: u32,
        indent: usize,
        body: &'t str,
        item: Option<&'t str>,
        mistakes: &mut Mistakes,
    ) {
        self.lines.1 = number;
        if body.starts_with('\t') {
            return self.mistake("a tab is not indentation in YAML; use spaces", mistakes);
        }
        let fields = *self.indent.get_or_insert(indent);
        if let Some((field, at)) = &mut self.open {
            let at = *at.get_or_insert(indent);
            let field = *field;
            match item {
                Some(item) if field == "keys" && indent == at && indent >= fields => {
                    return match Scan::new(item).value() {
                        Ok(value) => self.key(value, mistakes),
                        Err(wrong) => self.mistake(wrong, mistakes),
                    };
                }
                None if field == "metadata" && indent == at && indent > fields => {
                    return match pair(body) {
                        Ok((name, value)) => self.add_metadata(name, value, mistakes),
                        Err(wrong) => self.mistake(wrong, mistakes),
                    };
                }
                _ => {}
            }
        }
        match item.is_none() && indent == fields {
            true => self.field(body, mistakes),
            false => self.mistake("the line is indented neither as an entry nor as a field of one", mistakes),
        }
    }

    fn field(&mut self, text: &'t str, mistakes: &mut Mistakes) {
        self.close(mistakes);
        match pair(text) {
            Ok((name, value)) => self.set(&name, value, mistakes),
            Err(wrong) => self.mistake(wrong, mistakes),
        }
    }

    /// Ends the field whose value stands on lines of its own.
    fn close(&mut self, mistakes: &mut Mistakes) {
        if let Some((field, None)) = self.open.take() {
            let line = self.lines.1;
            self.wrong = true;
            mistakes.add(line, format!("`{field}` is empty"));
        }
    }

    fn set(&mut self, name: &str, value: Value<'t>, mistakes: &mut Mistakes) {
        let Some(field) = FIELDS.into_iter().find(|field| *field == name) else {
            let known = FIELDS.join(", ");
            return self.mistake(format!("unknown field `{}`; known: {known}", shown(name)), mistakes);
        };
        if self.given.contains(&field) {
            return self.mistake(format!("`{field}` is given twice"), mistakes);
        }
        self.given.push(field);
        match (field, value) {
            ("name", Value::Text(text)) => match check_name(&text) {
                Ok(()) => self.name = text,
                Err(wrong) => self.mistake(wrong, mistakes),
            },
            ("plan", Value::Text(text)) => match check_plan(&text) {
                Ok(()) => self.plan = Some(text),
                Err(wrong) => self.mistake(wrong, mistakes),
            },
            ("priority", Value::Text(text)) => {
                self.priority = Priority::named(text.as_bytes());
                if self.priority.is_none() {
                    self.mistake("`priority` is critical, default or sheddable", mistakes);
                }
            }
            ("plan" | "priority", Value::Nothing) => {}
            ("key", value) => self.key(value, mistakes),
            ("keys", Value::List(items)) if !items.is_empty() => {
                items.into_iter().for_each(|item| self.key(item, mistakes));
            }
            ("metadata", Value::Map(entries)) => {
                entries.into_iter().for_each(|(name, value)| self.add_metadata(name, value, mistakes));
            }
            ("keys" | "metadata", Value::Nothing) => self.open = Some((field, None)),
            ("keys", _) => {
                self.mistake("`keys` is a list of keys; a single one is `key: sha256:…`", mistakes)
            }
            ("metadata", _) => self.mistake("`metadata` is a mapping: {team: blue}", mistakes),
            _ => self.mistake(format!("`{field}` is a text"), mistakes),
        }
    }

    fn key(&mut self, value: Value<'t>, mistakes: &mut Mistakes) {
        let Value::Text(text) = value else {
            return self.mistake("a key is a text: sha256:…", mistakes);
        };
        let Cow::Borrowed(text) = text else {
            return self.mistake("a key is written without escapes", mistakes);
        };
        match digest(text).map(|digest| Key { digest, text }) {
            Some(key) => self.keys.push(key),
            // What stands there may be a key itself, so it is not told.
            None => self.mistake(
                "a key is `sha256:` and the 64 hexadecimal digits of its SHA-256, never the key itself; \
                 `sluicegate consumers add` makes one",
                mistakes,
            ),
        }
    }

    fn add_metadata(&mut self, name: Cow<'t, str>, value: Value<'t>, mistakes: &mut Mistakes) {
        let value = match value {
            Value::Text(text) => text,
            Value::Nothing => Cow::Borrowed(""),
            _ => return self.mistake(format!("`{}` in metadata is a text", shown(&name)), mistakes),
        };
        if self.metadata.iter().any(|(known, _)| *known == name) {
            return self.mistake(format!("`{}` is given twice in metadata", shown(&name)), mistakes);
        }
        if name.chars().chain(value.chars()).any(char::is_control) {
            return self.mistake("metadata has a control character", mistakes);
        }
        let length = |(name, value): &(Cow<'_, str>, Cow<'_, str>)| name.len() + value.len() + 2;
        let new = (name, value);
        if self.metadata.iter().map(length).sum::<usize>() + length(&new) > MAX_METADATA {
            return self.mistake("metadata is at most 4 KiB", mistakes);
        }
        self.metadata.push(new);
    }

    fn finish(mut self, mistakes: &mut Mistakes) -> Option<Entry<'t>> {
        self.close(mistakes);
        let first = self.lines.0;
        if !self.wrong && !self.given.contains(&"name") {
            self.wrong = true;
            mistakes.add(first, "an entry needs a `name`");
        }
        if !self.wrong && self.keys.is_empty() {
            self.wrong = true;
            mistakes.add(first, format!("`{}` has no key: `key: sha256:…`", self.name));
        }
        let Self { lines, name, plan, priority, keys, metadata, wrong, .. } = self;
        (!wrong).then_some(Entry { lines, name, plan, priority, keys, metadata })
    }
}

fn pair(text: &str) -> Result<(Cow<'_, str>, Value<'_>), Wrong> {
    let mut scan = Scan::new(text);
    Ok((scan.key()?, scan.value()?))
}

/// Names go into headers, logs and lists as they are.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-_.@+:/".contains(&b);
    if !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(good) {
        return Ok(());
    }
    let shown = shown(name);
    Err(format!("`{shown}` cannot be a name: use up to {MAX_NAME} letters, digits and - _ . @ + : /"))
}

/// Plans are named as limits are.
pub(super) fn check_plan(plan: &str) -> Result<(), String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if !plan.is_empty() && plan.len() <= MAX_PLAN && plan.bytes().all(good) {
        return Ok(());
    }
    let shown = shown(plan);
    Err(format!("`{shown}` cannot be a plan: use up to {MAX_PLAN} letters, digits and - _ ."))
}

/// A word of the file as a message shows it: short, and on one line.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    let short: String = short.chars().flat_map(char::escape_default).collect();
    if text.chars().count() > 40 { format!("{short}…") } else { short }
}

fn digest(text: &str) -> Option<Digest> {
    let digits = text.strip_prefix("sha256:")?.as_bytes();
    let mut digest = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(digest)
}
