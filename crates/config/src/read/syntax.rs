//! What the YAML library says of a text that is no YAML -> what to do about it.

use crate::read::report::{Place, Problem};

/// Words of the library, and the advice for those who meet them. The first that fits counts.
const ADVICE: [(&str, &str); 11] = [
    ("unclosed bracket", "close it, or put a value with brackets in quotes"),
    ("misplaced bracket", "no bracket is open here; put a value with brackets in quotes"),
    ("illegal placement of ':'", "is a bracket or a quote above this line still open?"),
    ("multiline quoted scalar", "is a quote above this line still open?"),
    ("unclosed quote", "is a quote above this line still open?"),
    ("trailing content after", "put a value that holds one kind of quotes in the other kind"),
    ("unknown escape character", "a backslash needs single quotes: '\\d'"),
    (
        "block sequence entries are not allowed",
        "a list begins on a line of its own, or stands in brackets: [a, b]",
    ),
    ("while scanning an anchor or alias", "put a value that begins with * or & in quotes"),
    ("simple key expected ':'", "a line is `key: value`, with a space behind the colon"),
    ("did not find expected", "is this line indented like those it belongs to, and every bracket closed?"),
];

/// The report of a mistake that the library calls `message`.
pub(crate) fn explain(text: &str, at: Place, message: &str) -> Problem {
    let line = text.lines().nth(at.line as usize - 1).unwrap_or_default().trim_start_matches('\u{feff}');
    let rest: String = line.chars().skip(at.column as usize - 1).collect();
    if message.contains("multiple YAML documents") {
        return Problem::new(second_document(text, at), "the file holds two documents")
            .help("keep one of them");
    }
    if let Some(tag) = message.strip_prefix("unsupported tag `").and_then(|tag| tag.strip_suffix('`')) {
        return Problem::new(tag_before(text, at, tag), format!("the tag `{tag}` means nothing here"))
            .help("leave it out, or put a value that begins with ! in quotes");
    }
    if ["budget breached", "recursion limit", "alias replay", "alias expansion"]
        .iter()
        .any(|w| message.contains(w))
    {
        return Problem::new(at, "the file is too large, or nested too deep");
    }
    if message.contains("recursive references") {
        return Problem::new(at, "not valid YAML: what is repeated here contains this very place");
    }
    if let Some(tab) = tab(text, at, message) {
        return Problem::new(tab, "not valid YAML: a tab where only spaces may indent")
            .help("indent with spaces");
    }
    if let Some((at, value)) = reference(line, at).filter(|_| message.contains("while parsing a flow")) {
        // A value with more in it than a name may hold a secret.
        let quoted = if is_name(value) { value } else { "127.0.0.1:${PORT}" };
        return Problem::new(at, "not valid YAML: between brackets or braces, `${` begins a mapping")
            .help(format!("put the whole value in quotes: \"{quoted}\""));
    }
    let problem = Problem::new(at, format!("not valid YAML: {message}"));
    if message.contains("mapping values are not allowed") {
        let colons = line.matches(": ").count();
        return problem.help(if colons > 1 {
            "put a value with a colon and a space in quotes; a key such as header:NAME has no space"
        } else {
            "is this line indented like those it belongs to?"
        });
    }
    if message.contains("did not find expected ',' or '}'") && rest.starts_with('{') {
        return problem.help("put a value with braces in quotes: \"/users/{id}\"");
    }
    if message.contains("unknown anchor") {
        return problem.help(if rest.chars().nth(1).is_some_and(|c| c.is_ascii_alphanumeric()) {
            "`*name` repeats what `&name` marks above it; put a value that begins with * in quotes"
        } else {
            "put a value that begins with * in quotes: \"*.example.com\""
        });
    }
    if message.contains("unexpected character") {
        return match rest.chars().next().filter(|c| !c.is_control()) {
            Some(c) => problem.help(format!("put a value that begins with {c} in quotes")),
            None => Problem::new(at, "not valid YAML: a control character")
                .help("remove it, or write it as an escape in double quotes"),
        };
    }
    match ADVICE.iter().find(|(words, _)| message.contains(words)) {
        Some((_, advice)) => problem.help(*advice),
        None => problem,
    }
}

/// The tab that indents a line. The library may tell of it at the end of a value above that line.
fn tab(text: &str, at: Place, message: &str) -> Option<Place> {
    if !message.contains("tab") {
        return None;
    }
    let indenting = |line: &str| {
        let place = line.find(|c: char| c != ' ')?;
        line[place..].starts_with('\t').then_some(place as u64 + 1)
    };
    let mut lines = (1..).zip(text.lines()).skip(at.line as usize - 1);
    lines.find_map(|(number, line)| Some(Place::new(number, indenting(line)?, 1)))
}

/// The value with a reference to the environment whose brace is at `at`, and its own place.
fn reference(line: &str, at: Place) -> Option<(Place, &str)> {
    let (brace, _) = line.char_indices().nth(at.column as usize - 1)?;
    if !line[..brace].ends_with('$') || !line[brace..].starts_with('{') {
        return None;
    }
    let start = line[..brace].rfind([' ', '\t', ',', '[', '{']).map_or(0, |before| before + 1);
    let close = brace + line[brace..].find('}')? + 1;
    let end = line[close..].find([' ', '\t', ',', ']', '}']).map_or(line.len(), |end| close + end);
    let value = &line[start..end];
    let column = line[..start].chars().count() as u64 + 1;
    Some((Place::new(at.line, column, value.chars().count() as u64), value))
}

/// Whether a value is `${NAME}` and nothing else.
fn is_name(value: &str) -> bool {
    let name = value.strip_prefix("${").and_then(|name| name.strip_suffix('}'));
    name.is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
}

/// Where a tag stands before the value that it belongs to.
fn tag_before(text: &str, at: Place, tag: &str) -> Place {
    let above = text.split_inclusive('\n').take(at.line as usize - 1).map(str::len).sum::<usize>();
    let line = &text[above..];
    let column = line.char_indices().nth(at.column as usize - 1).map_or(line.len(), |(offset, _)| offset);
    let Some(begin) = text[..above + column].rfind(tag) else { return at };
    let (before, length) = (&text[..begin], tag.chars().count() as u64);
    let in_line = before.rsplit('\n').next().unwrap_or_default().trim_start_matches('\u{feff}');
    Place::new(before.matches('\n').count() as u64 + 1, in_line.chars().count() as u64 + 1, length)
}

/// The `---` above the first value of the second document.
fn second_document(text: &str, at: Place) -> Place {
    let above = text.lines().enumerate().take(at.line as usize).filter(|(_, line)| line.starts_with("---"));
    above.last().map_or(at, |(index, _)| Place::new(index as u64 + 1, 1, 3))
}
