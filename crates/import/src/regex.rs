//! Regular expressions of PCRE, as those of gateway.yaml.

use crate::accepted;
use crate::yaml::{Node, map, text};

/// What PCRE has and expressions in linear time have not.
const BEYOND: [&str; 12] =
    ["(?=", "(?!", "(?<=", "(?<!", "(?>", "(?R", "(?&", "*+", "++", "?+", "\\G", "\\K"];

/// The expression that matches a whole path where that of nginx finds a part of it.
///
/// # Errors
/// Why there is none.
pub(crate) fn whole(pattern: &str, ignore_case: bool) -> Result<String, String> {
    let out = whole_text(pattern, ignore_case)?;
    accepted::matches(&map().with("path", regex(&out))).map(|()| out)
}

/// The same of a text that is no path, which may begin with any character.
///
/// # Errors
/// Why there is none.
pub(crate) fn whole_text(pattern: &str, ignore_case: bool) -> Result<String, String> {
    if let Some(found) = BEYOND.iter().find(|found| pattern.contains(**found)) {
        return Err(format!(
            "`{found}` is not an expression that takes linear time: write it without, or list the paths"
        ));
    }
    if pattern.contains(|c: char| c == ' ' || !c.is_ascii()) {
        return Err("paths are matched as they are in URLs: write %20 and the like".to_owned());
    }
    let ways: Vec<_> = alternatives(pattern).into_iter().map(whole_way).collect();
    let ways = if let [way] = ways.as_slice() { way.clone() } else { format!("(?:{})", ways.join("|")) };
    Ok(if ignore_case { format!("(?i){ways}") } else { ways })
}

/// The same of an expression without alternatives.
fn whole_way(pattern: &str) -> String {
    let (body, begin) = pattern.strip_prefix('^').map_or((pattern, ".*"), |body| (body, ""));
    let (body, end) = match body.strip_suffix('$').filter(|rest| !ends_with_escape(rest)) {
        Some(body) => (body, ""),
        None if body.strip_suffix(".*").is_some_and(|rest| !ends_with_escape(rest)) => (body, ""),
        None => (body, ".*"),
    };
    format!("{begin}{body}{end}")
}

/// Whether the next character is escaped.
fn ends_with_escape(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// An expression for all paths that one of nginx may match which cannot be converted: without its conditions.
pub(crate) fn wider(pattern: &str, ignore_case: bool) -> String {
    whole(&without_conditions(pattern), ignore_case).unwrap_or_else(|_| ".*".to_owned())
}

/// The expression without look-around and the like: it matches the same, and more.
fn without_conditions(pattern: &str) -> String {
    let mut out = String::new();
    let mut rest = pattern;
    let mut class = false;
    while let Some(c) = rest.chars().next() {
        let look = ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|look| rest.starts_with(look));
        let step = match c {
            '\\' => {
                let step = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
                out += &rest[..step];
                step
            }
            '(' if !class && look => group_length(rest),
            '(' if !class && rest.starts_with("(?>") => {
                out += "(?:";
                3
            }
            '*' | '+' | '?' if !class && rest[1..].starts_with('+') => {
                out.push(c);
                2
            }
            _ => {
                class = (class || c == '[') && c != ']';
                out.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[step..];
    }
    out
}

/// The length of the group at the beginning of an expression; all of it if the group has no end.
fn group_length(pattern: &str) -> usize {
    let end = structure(pattern).find(|(_, c, depth)| (*c, *depth) == (')', 1));
    end.map_or(pattern.len(), |(at, ..)| at + 1)
}

/// The characters of an expression that are neither escaped nor in a class, each with its place and how many groups are open before it.
fn structure(pattern: &str) -> impl Iterator<Item = (usize, char, usize)> {
    let (mut depth, mut class, mut escaped) = (0_usize, false, false);
    pattern.char_indices().filter_map(move |(at, c)| {
        let (is_escaped, was_class, before) = (std::mem::take(&mut escaped), class, depth);
        match c {
            _ if is_escaped => return None,
            '\\' => escaped = true,
            '[' => class = true,
            ']' => class = false,
            '(' if !class => depth += 1,
            ')' if !class => depth = depth.saturating_sub(1),
            _ => {}
        }
        (!was_class && !class).then_some((at, c, before))
    })
}

/// `{regex: …}`
pub(crate) fn regex(pattern: &str) -> Node {
    map().with("regex", text(pattern))
}

/// The parts between each `|` that is outside of all parentheses and classes.
fn alternatives(pattern: &str) -> Vec<&str> {
    let mut from = 0;
    let mut out = Vec::new();
    for (at, ..) in structure(pattern).filter(|(_, c, depth)| (*c, *depth) == ('|', 0)) {
        out.push(&pattern[from..at]);
        from = at + 1;
    }
    out.push(&pattern[from..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_path_becomes_the_whole() {
        for (pattern, ignore_case, expected) in [
            (r"\.php$", false, r".*\.php"),
            (r"^/v[0-9]+/items$", false, "/v[0-9]+/items"),
            ("^/api/", false, "/api/.*"),
            ("^/api/.*", false, "/api/.*"),
            (r"\.(png|jpe?g)$", true, r"(?i).*\.(png|jpe?g)"),
            ("^/a|/b$", false, "(?:/a.*|.*/b)"),
            (r"^/adm\.*", false, r"/adm\.*.*"),
            (r"/price\$", false, r".*/price\$.*"),
            ("^/u/(?<id>[0-9]+)$", false, "/u/(?<id>[0-9]+)"),
            (r"^/a\/b", false, r"/a\/b.*"),
        ] {
            assert_eq!(whole(pattern, ignore_case).as_deref(), Ok(expected), "{pattern}");
        }
        for (pattern, why) in
            [("^/(?!api)", "linear time"), ("^/(a", "regular expression"), (r"^/(a)\1", "regular expression")]
        {
            let error = whole(pattern, false).unwrap_err();
            assert!(error.contains(why), "{pattern}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_converted_has_a_wider_expression() {
        for (pattern, expected) in [
            (r"/\.(?!well-known)", r".*/\..*"),
            ("^/(?=x)y$", "/y"),
            ("^/a(?!(b|c[)]))d", "/ad.*"),
            ("^/(?>a|b)c++d", "/(?:a|b)c+d.*"),
            (r"^/(a)\1", ".*"),
            ("[(?!]x", ".*"),
            ("^/(?!a", "/.*"),
        ] {
            assert_eq!(wider(pattern, false), expected, "{pattern}");
        }
    }
}
