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
}

/// The condition of an `if` with nothing but a `return` in it, on a listener with or without TLS; `None` for all others.
pub(super) fn condition(directive: &Directive, tls: bool) -> Option<(Condition, &Directive)> {
    let ([variable, operator, value], returns) = parts(directive)?;
    let (variable, operator, value) = (&variable, &operator, &value);
    let scheme = if tls { "https" } else { "http" };
    let on = if tls { "on" } else { "" };
    let decided = |is: &str| match operator.as_str() {
        "=" => Some(is == value),
        "!=" => Some(is != value),
        _ => None,
    };
    let condition = match variable.as_str() {
        "$scheme" => decided(scheme)?,
        "$https" => decided(on)?,
        "$host" | "$http_host" if operator == "=" => {
            accepted::matches(&map().with("host", text(value))).ok()?;
            return Some((Condition::Host(value.clone()), returns));
        }
        _ => return None,
    };
    Some((if condition { Condition::Always } else { Condition::Never }, returns))
}

/// The methods that an `if` with nothing but a `return` in it is about, and the `return`.
pub(super) fn methods(directive: &Directive) -> Option<(Vec<String>, &Directive)> {
    let ([variable, operator, value], returns) = parts(directive)?;
    let all: Vec<_> = match operator.as_str() {
        "=" => vec![value],
        "~" => {
            let all = value.strip_prefix('^')?.strip_suffix('$')?;
            let all = all.strip_prefix('(').and_then(|all| all.strip_suffix(')')).unwrap_or(all);
            all.split('|').map(str::to_owned).collect()
        }
        _ => return None,
    };
    let known = |method: &String| !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let node = map().with("methods", list(all.iter().map(text)));
    let converted =
        variable == "$request_method" && all.iter().all(known) && accepted::matches(&node).is_ok();
    converted.then_some((all, returns))
}

/// The words of a condition, and the `return` that is all that depends on it.
fn parts(directive: &Directive) -> Option<([String; 3], &Directive)> {
    let [returns] = directive.children() else { return None };
    if directive.name != "if" || returns.name != "return" {
        return None;
    }
    let condition = directive.args.join(" ");
    let condition = condition.strip_prefix('(')?.strip_suffix(')')?;
    let words: Vec<_> = condition.split_whitespace().map(str::to_owned).collect();
    Some((words.try_into().ok()?, returns))
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
        assert_eq!((found("($host ~ ^www)", true), found("($cookie_a)", true)), (None, None));
    }

    #[test]
    fn conditions_about_methods() {
        let found = |text: &str| {
            let parsed = parse("n", &format!("if {text} {{ return 405; }}")).unwrap();
            methods(&parsed[0]).map(|(methods, _)| methods.join(" "))
        };
        assert_eq!(found("($request_method = TRACE)").as_deref(), Some("TRACE"));
        assert_eq!(found("($request_method ~ ^(PUT|DELETE)$)").as_deref(), Some("PUT DELETE"));
        for other in [
            "($request_method !~ ^(GET)$)",
            "($request_method = $x)",
            "($request_method ~ GET)",
            "($uri = GET)",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
