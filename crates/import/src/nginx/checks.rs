//! Checks of nginx before it serves a request that have no equivalent in the gateway. A route with such a check denies everybody until
//! it is converted by hand, so that nothing becomes public that nginx protects.

use super::access::Lists;
use super::conditions::{Condition, condition, excepted, methods};
use super::context::{Context, Scope};
use super::location::Location;
use super::parse::Directive;
use super::protection::{instead, refuses};

/// Whether nginx runs the check before a `return` answers.
fn is_before_return(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "if" | "limit_except" | "ssl_crl" | "ssl_ocsp")
        || directive.name.contains("rewrite_by_lua")
}

/// The checks of a location that are not converted. `server` is its server, with or without TLS.
fn unconverted<'a>(
    location: &Location<'a>,
    server: &Scope<'a>,
    tls: bool,
    lists: &Lists<'_>,
) -> Vec<(&'a Directive, &'static str)> {
    let scope = &location.scope;
    let mut found: Vec<_> = scope
        .in_force(&|directive| instead(directive).is_some() || directive.arg(0) == "off")
        .into_iter()
        .filter_map(|directive| Some((directive, instead(directive)?)))
        .filter(|(directive, _)| tls || !directive.name.starts_with("ssl_"))
        .collect();
    let except = "write a route with match: {methods: …} for the methods that are allowed, before this one";
    let excepts = scope.own("limit_except").into_iter().filter(|directive| excepted(directive).is_none());
    found.extend(excepts.map(|directive| (directive, except)));
    let of_server = server.own("if").into_iter().filter(|found| condition(found, tls).is_none());
    let decided =
        |found: &Directive| matches!(condition(found, tls), Some((Condition::Always | Condition::Never, _)));
    let own = location.ifs().filter(|found| !decided(found));
    let ifs = of_server
        .chain(own)
        .filter(|found| refuses(found) && methods(found).is_none() && lists.by_geo(found).is_none());
    let instead = "write a route with match: {methods, headers, query, host} for the requests that are served, before this one";
    found.extend(ifs.map(|directive| (directive, instead)));
    found
}

/// Whether a route has to deny everybody because of a check that is not converted. `answered` is the route of a `return`.
pub(super) fn close<'a>(
    location: &Location<'a>,
    server: &Scope<'a>,
    tls: bool,
    answered: bool,
    lists: &Lists<'_>,
    cx: &mut Context,
) -> bool {
    let mut closed = false;
    for (directive, instead) in unconverted(location, server, tls, lists) {
        if !answered || is_before_return(directive) {
            cx.unsupported(directive, format!("its routes deny everybody until you replace it: {instead}"));
            closed = true;
        }
    }
    closed
}
