//! `${NAME}` and `${NAME:-default}` inside values, from the environment. `$${` is a `${` that stays, and so do the groups of
//! an expression in what replaces its matches: `rewrite: {match: ^/v(.), to: /x/${1}0}`.

use crate::read::nearest::nearest;
use crate::read::report::{Mistake, Report};
use crate::read::yaml_tree::{Node, Value};

/// Replaces every reference below `node`. Where that fails the value is reported and counts as wrong.
pub(crate) fn substitute(node: &mut Node, lookup: &dyn Fn(&str) -> Option<String>, report: &mut Report) {
    match &mut node.value {
        Value::Scalar(text) if text.contains("${") => match expand(text, lookup) {
            Ok(expanded) => *text = expanded,
            Err(mistake) => {
                report.error(mistake.at(node.at));
                node.value = Value::Wrong;
            }
        },
        Value::List(items) => items.iter_mut().for_each(|item| substitute(item, lookup, report)),
        Value::Map(entries) => {
            let pattern = entries.iter().find_map(|(key, value)| is(key, "match").then_some(value));
            let pattern = pattern.and_then(|pattern| match &pattern.value {
                Value::Scalar(text) => Some(text.clone()),
                _ => None,
            });
            for (key, value) in entries {
                if let (Some(pattern), true, Value::Scalar(to)) = (&pattern, is(key, "to"), &mut value.value)
                {
                    *to = without_groups(to, pattern);
                }
                substitute(value, lookup, report);
            }
        }
        Value::Null | Value::Wrong | Value::Scalar(_) => {}
    }
}

/// Whether a key has this name.
fn is(key: &Node, name: &str) -> bool {
    matches!(&key.value, Value::Scalar(text) if text == name)
}

/// The text with `$${1}` for each `${1}`, and for each `${name}` of a group of the pattern. No variable of the environment
/// has a number for a name.
fn without_groups(to: &str, pattern: &str) -> String {
    let mut out = String::with_capacity(to.len());
    let mut rest = to;
    while let Some((before, inner)) = rest.split_once("${") {
        out.push_str(before);
        let name = inner.split_once('}').map_or("", |(name, _)| name);
        let number = !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
        let group = number || ["(?<", "(?P<"].iter().any(|open| pattern.contains(&format!("{open}{name}>")));
        out.push_str(if group && !before.ends_with('$') { "$${" } else { "${" });
        rest = inner;
    }
    out.push_str(rest);
    out
}

fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, Mistake> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        out.push_str(&rest[..start]);
        let body = &rest[start + 2..];
        if rest[..start].ends_with('$') {
            out.push('{');
            rest = body;
            continue;
        }
        let end = body.find('}').ok_or_else(|| {
            Mistake::new("`${` without its closing `}`")
                .help("write ${NAME} for an environment variable, or $${ for a `${` that stays")
        })?;
        let (name, default) = match body[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&body[..end], None),
        };
        if name.is_empty() {
            return Err(Mistake::new("`${}` names no environment variable").help("write ${NAME}"));
        }
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            let mistake = Mistake::new(format!("`{name}` is no name of an environment variable"));
            return Err(mistake.help(
                "names are letters, digits and underscores; ${NAME:-default} has a default, $${ is a `${` that stays",
            ));
        }
        let value = lookup(name).filter(|value| !(value.is_empty() && default.is_some()));
        match value.or_else(|| default.map(str::to_owned)) {
            Some(value) => out.push_str(&value),
            None => return Err(unset(name)),
        }
        rest = &body[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn unset(name: &str) -> Mistake {
    let names: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    let mistake = match nearest(name, names.iter().map(String::as_str).filter(|n| n.len() > 3)) {
        Some(near) => Mistake::new(format!("the environment variable `{name}` is not set (`{near}` is)")),
        None => Mistake::new(format!("the environment variable `{name}` is not set")),
    };
    mistake.help("set it in the environment of the gateway, or give a default: ${NAME:-default}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("api.test".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn names_and_defaults() {
        assert_eq!(expand("https://${HOST}/${PORT:-80}", &lookup).unwrap(), "https://api.test/80");
        assert_eq!(expand("${EMPTY:-x}${EMPTY}", &lookup).unwrap(), "x");
        assert!(expand("${SLUICEGATE_NO_SUCH_NAME}", &lookup).unwrap_err().message.contains("is not set"));
        assert!(expand("${HOST", &lookup).is_err() && expand("${}", &lookup).is_err());
    }

    #[test]
    fn groups_of_an_expression_are_no_variables() {
        for (to, expected) in [
            ("/${1}0/$${1}0/${HOST}", "/$${1}0/$${1}0/${HOST}"),
            ("/${id}x${idx}", "/$${id}x${idx}"),
            ("/${id", "/${id"),
            ("/$1", "/$1"),
        ] {
            assert_eq!(without_groups(to, "^/(?<id>[0-9]+)/(.*)$"), expected, "{to}");
        }
    }

    #[test]
    fn a_doubled_dollar_stays_one() {
        assert_eq!(expand("a $${b} ${HOST} $$", &lookup).unwrap(), "a ${b} api.test $$");
    }
}
