//! What can be read of the expression of a route, to refuse its requests.

use crate::names::escaped;
use crate::regex::regex;
use crate::yaml::{Node, list, map, text};

/// A `match` of all requests that an expression matches, and perhaps of more.
pub(super) fn widest(expression: &str) -> Node {
    let mut node = map();
    let negates = expression.replace("!=", "").contains('!');
    if negates || expression.contains("||") || expression.contains("r#") {
        return node;
    }
    for part in expression.split("&&") {
        let part = part.trim().trim_start_matches('(').trim_end_matches(')').trim();
        let mut words = part.splitn(3, char::is_whitespace);
        let (Some(field), Some(operator), Some(value)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let value = value.trim().strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        let Some(value) = value.filter(|value| !value.contains(['"', '\\'])) else { continue };
        match (field, operator) {
            ("http.path", "==") => node.insert("path", regex(&escaped(value))),
            ("http.path", "^=") => node.insert("path", regex(&format!("{}.*", escaped(value)))),
            ("http.host", "==") => node.insert("host", text(value.to_ascii_lowercase())),
            ("http.method", "==") => node.insert("methods", list([text(value)])),
            _ => {}
        }
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let found = |expression: &str| widest(expression).file_value();
        assert_eq!(
            found(r#"(http.path ^= "/a.b") && http.host == "A.example" && net.port == 1"#),
            r"{path: {regex: '/a\.b.*'}, host: a.example}"
        );
        assert_eq!(found(r#"http.path ^= "/a" || http.method == "GET""#), "{}");
        assert_eq!(found("!\t(net.port == 1 && http.path == \"/a\")"), "{}");
        assert_eq!(found(r##"http.path == r#"/a && http.host == "b"#"##), "{}");
        assert_eq!(found(r#"http.host != "b" && http.method == "GET""#), "{methods: [GET]}");
    }
}
