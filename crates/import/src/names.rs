//! Names of limits, upstreams, routes and listeners.

/// A name that the gateway accepts: other characters become hyphens.
pub(crate) fn name(text: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') { c } else { '-' };
    let mapped: String = text.chars().map(kept).collect();
    let mut joined = mapped.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    joined.truncate(48);
    if joined.is_empty() { "unnamed".to_owned() } else { joined }
}

/// A name that is not taken yet.
pub(crate) fn unused(wanted: &str, taken: &dyn Fn(&str) -> bool) -> String {
    if !taken(wanted) {
        return wanted.to_owned();
    }
    (2..).map(|n| format!("{wanted}-{n}")).find(|name| !taken(name)).unwrap_or_default()
}

/// The text as a regular expression that matches it.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if "\\.+*?()|[]{}^$#&~".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// A text in which nothing is a variable of a template.
pub(crate) fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_other_characters() {
        assert_eq!(name("st_src http_req_rate(10s)"), "st_src-http_req_rate-10s");
        assert_eq!((name("//"), name("a".repeat(60).as_str()).len()), ("unnamed".into(), 48));
        assert_eq!(unused("a", &|name| name == "a" || name == "a-2"), "a-3");
        assert_eq!((escaped("/a.b"), literal("a{b}")), ("/a\\.b".into(), "a{{b}}".into()));
    }
}
