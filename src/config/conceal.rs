//! What a report shows of a file. Reports go to logs: they tell no secrets, and nothing in them breaks a line.

use super::report::nearest;

/// Keys whose values are secrets.
const SECRET_KEYS: [&str; 3] = ["token", "password", "secret"];

/// A line of `text` as reports show it: up to the first secret in it.
pub(super) fn shown(text: &str, line: u64) -> Option<String> {
    let at = usize::try_from(line.checked_sub(1)?).ok()?;
    let source = text.trim_start_matches('\u{feff}').lines().nth(at)?;
    let visible = if is_below_secret(text, at, source) { "…".to_owned() } else { conceal(source) };
    Some(visible.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect())
}

/// `text` on one line, without the user and password of a URL.
pub(super) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((start, end)) = credentials(rest) {
        out.push_str(&rest[..start]);
        out.push('…');
        rest = &rest[end..];
    }
    out.push_str(rest);
    out.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

fn conceal(line: &str) -> String {
    let secret =
        secret_value(line).filter(|at| !tells_nothing(&line[*at..])).map(|at| format!("{} …", &line[..at]));
    let url = || credentials(line).map(|(start, _)| format!("{}…", &line[..start]));
    secret.or_else(url).unwrap_or_else(|| line.to_owned())
}

/// Where the value of the first secret key begins. A key that is nearly one counts too: what stands behind `tokn`
/// is a secret all the same.
fn secret_value(line: &str) -> Option<usize> {
    let is_secret = |word: &str| {
        let word = word.to_ascii_lowercase();
        SECRET_KEYS.iter().any(|key| word.contains(key)) || nearest(&word, SECRET_KEYS).is_some()
    };
    line.match_indices(':').map(|(at, _)| at).find_map(|at| {
        let key = line[..at].trim_end().trim_end_matches(['"', '\'']);
        let word = key.rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').next().unwrap_or(key);
        is_secret(word).then_some(at + 1)
    })
}

/// Whether what stands for a secret only says where it is.
fn tells_nothing(value: &str) -> bool {
    let value = value.trim().trim_start_matches(['"', '\'']);
    let in_file = value.strip_prefix('{').is_some_and(|inner| {
        let inner = inner.trim_start().trim_start_matches(['"', '\'']);
        inner.starts_with("file") || inner.starts_with('}')
    });
    value.is_empty() || in_file || (value.starts_with("${") && !value.contains(":-"))
}

/// Whether the line continues the value of a secret key above it.
fn is_below_secret(text: &str, at: usize, source: &str) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let above: Vec<&str> = text.lines().take(at).filter(|line| !line.trim().is_empty()).collect();
    let owner = above.iter().rev().find(|line| indent(line) < indent(source));
    let value = owner.and_then(|line| Some(line[secret_value(line)?..].trim()));
    value.is_some_and(|value| value.is_empty() || value.starts_with(['|', '>']))
        && !source.trim_start().starts_with("file")
}

/// The first user and password before an `@`: all behind the `//` of a URL, or `user:password` without one.
fn credentials(text: &str) -> Option<(usize, usize)> {
    text.match_indices('@').find_map(|(end, _)| {
        let before = &text[..end];
        let word = before.rfind(' ').map_or(0, |at| at + 1);
        if let Some(slashes) = before[word..].find("//") {
            return Some((word + slashes + 2, end));
        }
        let start = before.rfind([' ', '"', '\'', '`', '[', '{']).map_or(0, |at| at + 1);
        before[start..].contains(':').then_some((start, end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        for (line, seen) in [
            ("  token: abc", "  token: …"),
            (r#"{"token": "abc"}"#, r#"{"token": …"#),
            ("  token : abc", "  token : …"),
            ("  tokn: abc", "  tokn: …"),
            ("  jwt_secret: abc", "  jwt_secret: …"),
            ("  token: ${A:-abc}", "  token: …"),
            ("  token: ${A}", "  token: ${A}"),
            ("  token: {file: a.txt}", "  token: {file: a.txt}"),
            ("  token: {value: abc}", "  token: …"),
            ("  url: redis://u:p@h", "  url: redis://…"),
            ("  - http://a", "  - http://a"),
            ("  - http://u:{\"p@h", "  - http://…"),
            ("  rate: 5/s", "  rate: 5/s"),
        ] {
            assert_eq!(conceal(line), seen);
        }
    }

    #[test]
    fn a_secret_on_the_lines_below_its_key_is_not_shown() {
        let text = "admin:\n  token: |\n    abc\n  address: x\n";
        assert_eq!(shown(text, 3).as_deref(), Some("…"));
        assert_eq!(shown(text, 4).as_deref(), Some("  address: x"));
        assert_eq!(shown(text, 9), None);
    }

    #[test]
    fn messages_stay_on_their_line_and_keep_passwords_to_themselves() {
        assert_eq!(printable("found `a\n\u{1b}[1m`"), r"found `a\n\u{1b}[1m`");
        assert_eq!(printable("`http://u:p@h/x` and `u:p@h`"), "`http://…@h/x` and `…@h`");
        assert_eq!(printable("`me@example.com`"), "`me@example.com`");
    }
}
