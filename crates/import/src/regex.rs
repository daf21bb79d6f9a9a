//! Regular expressions of PCRE, as those of gateway.yaml.

use crate::accepted;
use crate::yaml::{Node, map, text};

/// The expression that matches a whole path where that of nginx finds a part of it.
///
/// # Errors
/// Why there is none.
pub(crate) fn whole(pattern: &str, ignore_case: bool) -> Result<String, String> {
    let beyond = ["(?=", "(?!", "(?<=", "(?<!", "(?>", "(?R", "(?&", "*+", "++", "?+", "\\G", "\\K"];
    if let Some(found) = beyond.iter().find(|found| pattern.contains(**found)) {
        return Err(format!(
            "`{found}` is not an expression that takes linear time: write it without, or list the paths"
        ));
    }
    let begin = pattern.starts_with('^');
    let escaped =
        pattern.strip_suffix('$').is_some_and(|rest| rest.ends_with('\\') && !rest.ends_with("\\\\"));
    let end = pattern.ends_with('$') && !escaped;
    let body = pattern.strip_prefix('^').unwrap_or(pattern);
    let body = if end { &body[..body.len().saturating_sub(1)] } else { body };
    let mut out = if ignore_case { "(?i)".to_owned() } else { String::new() };
    if has_alternatives(pattern) {
        out += &format!(".*(?:{pattern}).*"); // anchors in it hold for one alternative each
    } else {
        out += if begin { "" } else { ".*" };
        out += body;
        out += if end || body.ends_with(".*") { "" } else { ".*" };
    }
    accepted::matches(&map().with("path", regex(&out))).map(|()| out)
}

/// `{regex: …}`
pub(crate) fn regex(pattern: &str) -> Node {
    map().with("regex", text(pattern))
}

/// Whether there is a `|` outside of all parentheses and classes.
fn has_alternatives(pattern: &str) -> bool {
    let (mut depth, mut class, mut escaped) = (0_usize, false, false);
    for c in pattern.chars() {
        match c {
            _ if escaped => {
                escaped = false;
                continue;
            }
            '\\' => escaped = true,
            '[' => class = true,
            ']' => class = false,
            '(' if !class => depth += 1,
            ')' if !class => depth = depth.saturating_sub(1),
            '|' if !class && depth == 0 => return true,
            _ => {}
        }
    }
    false
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
            ("^/a|/b$", false, ".*(?:^/a|/b$).*"),
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
}
