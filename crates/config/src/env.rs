//! `${NAME}` and `${NAME:-default}` inside values, from the environment. `$${` is a `${` that stays.

use super::report::{Mistake, Report, nearest};
use super::yaml_tree::{Node, Value};

/// Replaces every reference below `node`. Where that fails the value is reported and counts as wrong.
pub(super) fn substitute(node: &mut Node, lookup: &dyn Fn(&str) -> Option<String>, report: &mut Report) {
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
            entries.iter_mut().for_each(|(_, value)| substitute(value, lookup, report));
        }
        Value::Null | Value::Wrong | Value::Scalar(_) => {}
    }
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
    fn a_doubled_dollar_stays_one() {
        assert_eq!(expand("a $${b} ${HOST} $$", &lookup).unwrap(), "a ${b} api.test $$");
    }
}
