//! What the YAML library says of a text that is no YAML -> what to do about it.

use super::report::{Place, Problem};

/// Words of the library, and the advice for those who meet them. The first that fits counts.
const ADVICE: [(&str, &str); 12] = [
    ("unclosed bracket", "close it, or put a value with brackets in quotes"),
    ("misplaced bracket", "no bracket is open here; put a value with brackets in quotes"),
    ("illegal placement of ':'", "is a bracket or a quote above this line still open?"),
    ("multiline quoted scalar", "is a quote above this line still open?"),
    ("unclosed quote", "is a quote above this line still open?"),
    ("tabs disallowed", "indent with spaces"),
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
pub(super) fn explain(text: &str, at: Place, message: &str) -> Problem {
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
