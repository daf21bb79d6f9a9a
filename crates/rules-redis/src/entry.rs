//! A rule as a value in Redis: `17-{...}` is a rule of version 17, `17p{...}` one whose key is a pattern.

use sluicegate_rules::{Rule, Stored};

use crate::error::ReadError;

/// What follows the version in an entry.
///
/// # Errors
/// If the rule has no JSON form, which does not happen.
pub(crate) fn tail(rule: &Rule, pattern: bool) -> Result<String, ReadError> {
    let mark = if pattern { 'p' } else { '-' };
    let body = serde_json::to_string(rule).map_err(|error| wrong(&rule.id, error.to_string()))?;
    Ok(format!("{mark}{body}"))
}

/// The rule of an entry, and whether it is a pattern.
///
/// # Errors
/// If it is no rule that this release can read.
pub(crate) fn stored(id: &str, entry: &[u8]) -> Result<(Stored, bool), ReadError> {
    let digits = entry.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (version, tail) = entry.split_at(digits);
    let version = std::str::from_utf8(version).ok().and_then(|version| version.parse().ok());
    let version = version.ok_or_else(|| wrong(id, "it has no version".into()))?;
    let (rule, pattern) = of_tail(id, tail)?;
    Ok((Stored { rule, version }, pattern))
}

/// The rule of an entry without its version, and whether it is a pattern.
///
/// # Errors
/// As [`stored`].
pub(crate) fn of_tail(id: &str, tail: &[u8]) -> Result<(Rule, bool), ReadError> {
    let (pattern, body) = match tail {
        [b'p', body @ ..] => (true, body),
        [b'-', body @ ..] => (false, body),
        _ => return Err(wrong(id, "it is not marked as a pattern or as none".into())),
    };
    let rule: Rule = serde_json::from_slice(body).map_err(|error| wrong(id, error.to_string()))?;
    // Someone has copied or renamed an entry by hand: which of the two names is meant?
    if !id.is_empty() && rule.id != id {
        return Err(wrong(id, format!("its body is of the rule {:?}", rule.id)));
    }
    Ok((rule, pattern))
}

fn wrong(id: &str, detail: String) -> ReadError {
    ReadError::Content { id: id.to_owned(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written_and_a_wrong_one_is_named() {
        let rule = Rule { id: "a".into(), key: "k\u{e9}".into(), burst: Some(u64::MAX), ..Rule::default() };
        let entry = format!("17{}", tail(&rule, true).unwrap());
        assert_eq!(stored("a", entry.as_bytes()).unwrap(), (Stored { rule, version: 17 }, true));
        for wrong in
            ["", "17", "17x{}", "-{}", "17-{", "17-[]", "17-{\"id\":\"b\"}", "17-{\"id\":\"a\",\"new\":1}"]
        {
            let error = stored("a", wrong.as_bytes()).unwrap_err();
            assert!(matches!(error, ReadError::Content { ref id, .. } if id == "a"), "{wrong}");
        }
    }
}
