//! Redacts secrets and control characters in reports, because reports go to logs.

use crate::read::nearest::nearest;

/// Keys whose values are secrets, also of headers.
const SECRET_KEYS: [&str; 4] = ["token", "password", "secret", "authorization"];

/// A line of `text` as reports show it: up to the first secret in it.
pub(crate) fn shown(text: &str, line: u64) -> Option<String> {
    let at = usize::try_from(line.checked_sub(1)?).ok()?;
    let source = text.trim_start_matches('\u{feff}').lines().nth(at)?;
    let visible = if is_below_secret(text, at, source) { "…".to_owned() } else { redact(source) };
    Some(visible.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect())
}

/// `text` on one line, without the user and password of a URL.
pub(crate) fn printable(text: &str) -> String {
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

fn redact(line: &str) -> String {
    let secret = secret_values(line).find(|at| !is_reference(&line[*at..]));
    let url = credentials(line).map(|(start, _)| start).or_else(|| without_scheme(line));
    match (secret, url) {
        (Some(secret), url) if url.is_none_or(|url| secret < url) => format!("{} …", &line[..secret]),
        (_, Some(url)) => format!("{}…", &line[..url]),
        _ => line.to_owned(),
    }
}

/// The offsets at which values of secret keys begin. Misspelled keys count too: the value of `tokn` is also a secret.
fn secret_values(line: &str) -> impl Iterator<Item = usize> {
    let is_secret = |word: &str| {
        let word = word.to_ascii_lowercase();
        word.contains("pass")
            || SECRET_KEYS.iter().any(|key| word.contains(key))
            || nearest(&word, SECRET_KEYS).is_some()
    };
    line.match_indices(':').map(|(at, _)| at).filter_map(move |at| {
        let key = line[..at].trim_end().trim_end_matches(['"', '\'']);
        let word = key.rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').next().unwrap_or(key);
        is_secret(word).then_some(at + 1)
    })
}

/// Whether the value of a secret is only a reference: a file, an environment variable, or nothing.
fn is_reference(value: &str) -> bool {
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
    let continues = |value: &str| value.is_empty() || value.starts_with(['|', '>']);
    let owned = owner.is_some_and(|line| secret_values(line).any(|at| continues(line[at..].trim())));
    owned && !source.trim_start().starts_with("file")
}

/// The first user and password: of a URL, or `user:password` before an `@`.
fn credentials(text: &str) -> Option<(usize, usize)> {
    let in_url = text.match_indices("//").find_map(|(at, _)| in_url(text, at + 2));
    let bare = text.match_indices('@').find_map(|(end, _)| {
        let start = text[..end].rfind([' ', '"', '\'', '`', '[', '{']).map_or(0, |at| at + 1);
        (text[start..end].contains(':') && !text[start..end].contains("//")).then_some((start, end))
    });
    in_url.into_iter().chain(bare).min()
}

/// What may be a secret in the URL whose `//` ends at `start`. A password may hold anything, so everything up to the
/// last `@` is taken for one. In a URL that is broken it may stand where the port should be, or in the query; those
/// of the web have neither a password nor a broken port worth hiding.
fn in_url(text: &str, start: usize) -> Option<(usize, usize)> {
    let limit = text[start..].find('`').map_or(text.len(), |at| start + at);
    if let Some(end) = text[start..limit].rfind('@') {
        return Some((start, start + end));
    }
    let scheme = text[..start - 2].strip_suffix(':')?;
    if scheme.ends_with("http") || scheme.ends_with("https") {
        return None;
    }
    let url = &text[start..start + url_length(&text[start..limit])];
    let (authority, query) = url.split_at(url.find(['/', '?']).unwrap_or(url.len()));
    if !is_place(authority) {
        return Some((start, limit));
    }
    let at = query.find('?')? + 1;
    let is_database = query[at..].strip_prefix("db=").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    (!is_database).then_some((start + authority.len() + at, limit))
}

/// The value of `url` where it has no scheme, and so more to it than a host and a port.
fn without_scheme(line: &str) -> Option<usize> {
    let behind = line.find("url:")? + "url:".len();
    let value = line[behind..].trim_start();
    let start = line.len() - value.len();
    let value = &value[..url_length(value)];
    (!value.contains("//") && (value.contains('@') || !is_place(value))).then_some(start)
}

/// How much of a line is the URL that begins there: brackets and braces may be its own, or YAML's around it.
fn url_length(text: &str) -> usize {
    let open =
        |before: &str, open: &str, close: char| before.matches(open).count() > before.matches(close).count();
    let goes_on = |after: &str| after.starts_with(|c: char| c.is_alphanumeric());
    let is_end = |at: usize, c: char| match c {
        ']' if open(&text[..at], "[", ']') => false,
        '}' if open(&text[..at], "${", '}') => false,
        ']' | '}' | '"' | '\'' | ',' => !goes_on(&text[at + 1..]),
        _ => c.is_whitespace(),
    };
    text.char_indices().find(|(at, c)| is_end(*at, *c)).map_or(text.len(), |(at, _)| at)
}

/// Whether a text is exactly a host, with or without a port.
fn is_place(text: &str) -> bool {
    let is_port =
        |port: &str| port.parse::<u16>().is_ok() || (port.starts_with("${") && !port.contains(":-"));
    let after_host = match text.strip_prefix('[') {
        Some(inside) => inside.split_once(']').map_or(":", |(_, rest)| rest),
        None => &text[text.find(':').unwrap_or(text.len())..],
    };
    match after_host.strip_prefix(':') {
        Some(port) => text != after_host && is_port(port),
        None => after_host.is_empty(),
    }
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
            ("  pass: abc", "  pass: …"),
            ("  jwt_secret: abc", "  jwt_secret: …"),
            ("  token: ${A:-abc}", "  token: …"),
            ("  token: ${A}", "  token: ${A}"),
            ("  token: {file: a.txt}", "  token: {file: a.txt}"),
            ("  token: {value: abc}", "  token: …"),
            ("  url: redis://u:p@h", "  url: redis://…"),
            ("  - http://a", "  - http://a"),
            ("  - http://u:{\"p@h", "  - http://…"),
            ("  rate: 5/s", "  rate: 5/s"),
            ("  {url: redis://:abc@h, password: abc}", "  {url: redis://…"),
            ("  {password: {file: a.txt}, token: abc}", "  {password: {file: a.txt}, token: …"),
            ("  url: redis://:a@b@h", "  url: redis://…"),
            ("  url: redis://:a b:c@h", "  url: redis://…"),
            ("  url: redis://:abc", "  url: redis://…"),
            ("  url: redis://u:abc", "  url: redis://…"),
            ("  url: redis://u:abc:6379", "  url: redis://…"),
            ("  url: redis://u:12,abc", "  url: redis://…"),
            ("  - [redis://a:7000, redis://b:7001]", "  - [redis://a:7000, redis://b:7001]"),
            ("  url: u:abc", "  url: …"),
            ("  url: abc@h", "  url: …"),
            ("  url: h:6379", "  url: h:6379"),
            ("  url: unix:///s?pass=abc", "  url: unix:///s?…"),
            ("  url: unix:///s?db=1", "  url: unix:///s?db=1"),
            ("  url: rediss://[::1]:6379/0", "  url: rediss://[::1]:6379/0"),
            ("  url: redis://${HOST}:${PORT}", "  url: redis://${HOST}:${PORT}"),
            ("  - http://h:abc", "  - http://h:abc"),
        ] {
            assert_eq!(redact(line), seen);
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
        assert_eq!(printable("`redis://:p@ss word@h/0`"), "`redis://…@h/0`");
        assert_eq!(printable("`redis://u:p`, not `redis://h`"), "`redis://…`, not `redis://h`");
        assert_eq!(printable("`me@example.com`"), "`me@example.com`");
    }
}
