//! The `if` blocks of servers that can be decided in advance, or by the host: those that redirect to https or to another name.

use super::parse::Directive;
use crate::accepted;
use crate::yaml::{list, map, text};

/// When the block applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Always,
    Never,
    /// For this host only.
    Host(String),
    /// For all hosts but these.
    NotHosts(Vec<String>),
}

/// The condition of an `if` with nothing but a `return` in it, on a listener with or without TLS; `None` for all others.
pub(super) fn condition(directive: &Directive, tls: bool) -> Option<(Condition, &Directive)> {
    let ([variable, operator, value], returns) = parts(directive)?;
    let scheme = if tls { "https" } else { "http" };
    let on = if tls { "on" } else { "" };
    let decided = |is: &str| match operator.as_str() {
        "=" => Some(is == value),
        "!=" => Some(is != value),
        _ => None,
    };
    let condition = match (variable.as_str(), operator.as_str()) {
        ("$scheme", _) => decided(scheme)?,
        ("$https", _) => decided(on)?,
        ("$host" | "$http_host", "=") if value.is_empty() => false, // such requests are answered 400
        ("$host" | "$http_host", "=") => {
            accepted::matches(&map().with("host", text(&value))).ok()?;
            return Some((Condition::Host(value), returns));
        }
        ("$host" | "$http_host", "!=" | "!~" | "!~*") => {
            let hosts = if operator == "!=" { vec![value] } else { alternatives(&value)? };
            accepted::matches(&map().with("host", list(hosts.iter().map(text)))).ok()?;
            return Some((Condition::NotHosts(hosts), returns));
        }
        _ => return None,
    };
    Some((if condition { Condition::Always } else { Condition::Never }, returns))
}

/// The methods that an `if` with nothing but a `return` in it is about.
pub(super) struct Methods<'a> {
    pub(super) all: Vec<String>,
    /// Whether the `return` answers all other methods.
    pub(super) others: bool,
    pub(super) returns: &'a Directive,
}

pub(super) fn methods(directive: &Directive) -> Option<Methods<'_>> {
    let ([variable, operator, value], returns) = parts(directive)?;
    let anchored = value.starts_with('^') && value.ends_with('$');
    let all = match operator.as_str() {
        "=" | "!=" => vec![value],
        // nginx answers 400 if a method is not in upper case.
        "~*" if anchored => alternatives(&value.to_ascii_uppercase())?,
        "!~*" => alternatives(&value.to_ascii_uppercase())?,
        "~" if anchored => alternatives(&value)?,
        // Without anchors, methods that nobody uses would be served, too.
        "!~" => alternatives(&value)?,
        _ => return None,
    };
    let converted = variable == "$request_method" && are_methods(&all);
    converted.then(|| Methods { all, others: operator.starts_with('!'), returns })
}

fn are_methods(all: &[String]) -> bool {
    let known = |method: &String| !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    all.iter().all(known) && accepted::matches(&map().with("methods", list(all.iter().map(text)))).is_ok()
}

/// The methods that a `limit_except` with nothing but rules of access in it is not about.
pub(super) fn excepted(directive: &Directive) -> Option<Vec<String>> {
    let is_access = |child: &Directive| {
        child.block.is_none()
            && (matches!(child.name.as_str(), "allow" | "deny") || child.name.starts_with("auth_"))
    };
    let mut all = directive.args.clone();
    if all.iter().any(|method| method == "GET") && !all.iter().any(|method| method == "HEAD") {
        all.push("HEAD".to_owned());
    }
    (directive.children().iter().all(is_access) && are_methods(&all)).then_some(all)
}

/// The texts of an expression such as `^(a|b\.c)$`.
fn alternatives(pattern: &str) -> Option<Vec<String>> {
    let body = pattern.strip_prefix('^').unwrap_or(pattern);
    let body = body.strip_suffix('$').unwrap_or(body);
    let group = body.strip_prefix("(?:").or_else(|| body.strip_prefix('('));
    let body = group.map_or(Some(body), |inner| inner.strip_suffix(')'))?;
    let all: Vec<_> = body.split('|').map(|one| one.replace("\\.", ".").replace("\\-", "-")).collect();
    let is_text = |one: &String| {
        !one.is_empty() && one.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    all.iter().all(is_text).then_some(all)
}

/// The words of a condition, and the `return` that is all that depends on it.
fn parts(directive: &Directive) -> Option<([String; 3], &Directive)> {
    let [returns] = directive.children() else { return None };
    if directive.name != "if" || returns.name != "return" {
        return None;
    }
    let condition = directive.args.join(" ");
    let condition = condition.strip_prefix('(')?.strip_suffix(')')?;
    let mut words: Vec<_> = condition.split_whitespace().map(str::to_owned).collect();
    if matches!(words.as_slice(), [_, operator] if matches!(operator.as_str(), "=" | "!=")) {
        words.push(String::new());
    }
    Some((words.try_into().ok()?, returns))
}

/// The variable, the operator and the value of an `if`, and its `return`. The operator is empty if there is but a variable.
pub(super) fn comparison(directive: &Directive) -> Option<(String, String, String, &Directive)> {
    if let Some(([variable, operator, value], returns)) = parts(directive) {
        return Some((variable, operator, value, returns));
    }
    let [returns] = directive.children() else { return None };
    let condition = directive.args.join(" ");
    let variable = condition.strip_prefix('(')?.strip_suffix(')')?.trim().to_owned();
    let alone = directive.name == "if" && returns.name == "return" && variable.starts_with('$');
    (alone && !variable.contains(' ')).then(|| (variable, String::new(), String::new(), returns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nginx::parse::parse;

    #[test]
    fn conditions_that_are_known() {
        let found = |text: &str, tls| {
            let parsed =
                parse("n", &format!("if {text} {{ return 301 https://$host$request_uri; }}")).unwrap();
            condition(&parsed[0], tls).map(|(condition, _)| condition)
        };
        assert_eq!(found("($scheme = http)", false), Some(Condition::Always));
        assert_eq!(found("($scheme != \"https\")", true), Some(Condition::Never));
        assert_eq!(found("($https != on)", false), Some(Condition::Always));
        assert_eq!(
            found("( $host = www.example.com )", true),
            Some(Condition::Host("www.example.com".into()))
        );
        let hosts =
            |hosts: &[&str]| Some(Condition::NotHosts(hosts.iter().map(ToString::to_string).collect()));
        assert_eq!(found("($host != a.test)", true), hosts(&["a.test"]));
        assert_eq!(found(r"($host !~* ^(a\.test|www.a.test)$ )", true), hosts(&["a.test", "www.a.test"]));
        assert_eq!(found("($host = \"\")", true), Some(Condition::Never));
        assert_eq!((found("($host ~ ^www)", true), found("($cookie_a)", true)), (None, None));
        assert_eq!(found("($host !~ ^a.*$)", true), None);
    }

    #[test]
    fn conditions_about_methods() {
        let found = |text: &str| {
            let parsed = parse("n", &format!("if {text} {{ return 405; }}")).unwrap();
            methods(&parsed[0]).map(|found| (found.all.join(" "), found.others))
        };
        let expected = |methods: &str, others| Some((methods.to_owned(), others));
        assert_eq!(found("($request_method = TRACE)"), expected("TRACE", false));
        assert_eq!(found("($request_method ~ ^(PUT|DELETE)$)"), expected("PUT DELETE", false));
        assert_eq!(found("($request_method !~ ^(GET|HEAD)$ )"), expected("GET HEAD", true));
        assert_eq!(found("($request_method != POST)"), expected("POST", true));
        assert_eq!(found("($request_method !~* ^(get|post)$ )"), expected("GET POST", true));
        assert_eq!(found("($request_method ~* ^trace$ )"), expected("TRACE", false));
        for other in ["($request_method = $x)", "($request_method ~ GET)", "($uri = GET)"] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
