//! `${NAME}` and `${NAME:-default}` inside values, from the environment.

use super::node::{Node, Value};
use super::report::{Problem, Report, nearest};

/// Replaces every reference below `node`; an unset name without a default is an error at its value.
pub(super) fn substitute(node: &mut Node, lookup: &dyn Fn(&str) -> Option<String>, report: &mut Report) {
    match &mut node.value {
        Value::Scalar(text) if text.contains("${") => match expand(text, lookup) {
            Ok(expanded) => *text = expanded,
            Err(message) => report.error(
                Problem::new(node.at, message)
                    .help("set it in the environment of the gateway, or give a default: ${NAME:-default}"),
            ),
        },
        Value::List(items) => items.iter_mut().for_each(|item| substitute(item, lookup, report)),
        Value::Map(entries) => {
            entries.iter_mut().for_each(|(_, value)| substitute(value, lookup, report));
        }
        Value::Null | Value::Bool(_) | Value::Scalar(_) => {}
    }
}

fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        out.push_str(&rest[..start]);
        let body = &rest[start + 2..];
        let end = body.find('}').ok_or_else(|| "`${` without its closing `}`".to_owned())?;
        let (name, default) = match body[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&body[..end], None),
        };
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(format!("`{name}` is no name of an environment variable"));
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

fn unset(name: &str) -> String {
    let names: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    match nearest(name, names.iter().map(String::as_str).filter(|n| n.len() > 3)) {
        Some(near) => format!("the environment variable `{name}` is not set (`{near}` is)"),
        None => format!("the environment variable `{name}` is not set"),
    }
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
        assert!(expand("${SLUICEGATE_NO_SUCH_NAME}", &lookup).unwrap_err().contains("is not set"));
        assert!(expand("${HOST", &lookup).is_err());
    }
}
