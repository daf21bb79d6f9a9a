//! Values with `*`.

/// Whether a text is what `pattern` says, where each `*` stands for any text, also an empty one.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(matches("/api/*", "/api/x/y") && matches("*", "") && matches("a*b*c", "a-b-b-c"));
        assert!(matches("a**b", "ab") && matches("a*a", "aa") && matches("*é*", "caféé"));
        assert!(!matches("/api/*", "/ap") && !matches("a*b", "a-b-c") && !matches("aa", "a"));
        assert!(!matches("a*a", "a") && !matches("ab*bc", "abc"));
    }
}
