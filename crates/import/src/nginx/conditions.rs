//! The `if` blocks of servers that can be decided in advance, or by the host: those that redirect to https or to another name.

use super::accepted;
use super::parse::Directive;
use crate::yaml::{map, text};

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
    let [returns] = directive.children() else { return None };
    if directive.name != "if" || returns.name != "return" {
        return None;
    }
    let words: Vec<_> =
        directive.args.join(" ").trim_matches(['(', ')']).split_whitespace().map(str::to_owned).collect();
    let [variable, operator, value] = words.as_slice() else { return None };
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
}
