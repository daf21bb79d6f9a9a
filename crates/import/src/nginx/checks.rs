//! Checks of nginx before it serves a request that have no equivalent in the gateway. A route with such a check denies everybody until
//! it is converted by hand, so that nothing becomes public that nginx protects.

use super::access::Lists;
use super::conditions::{Condition, condition, excepted, methods};
use super::context::{Context, Scope};
use super::location::Location;
use super::parse::Directive;

/// Directives of `auth_…` that check nothing themselves.
const HELPERS: [&str; 8] = [
    "auth_basic_user_file",
    "auth_request_set",
    "auth_delay",
    "auth_jwt_key_file",
    "auth_jwt_key_request",
    "auth_jwt_key_cache",
    "auth_jwt_leeway",
    "auth_jwt_type",
];

/// Variables that say nothing about who the client is: a redirect that depends on them protects nothing.
const IMPERSONAL: [&str; 11] = [
    "$scheme",
    "$https",
    "$host",
    "$http_host",
    "$request_method",
    "$http_x_forwarded_proto",
    "$http_user_agent",
    "$request_uri",
    "$uri",
    "$args",
    "$server_port",
];

/// What to do instead of a check that the gateway does not have under this name; `None` for all other directives.
fn instead(directive: &Directive) -> Option<&'static str> {
    let name = directive.name.as_str();
    if matches!(directive.arg(0), "off") || HELPERS.contains(&name) {
        return None;
    }
    Some(match name {
        "auth_basic" => "use auth.api_key or auth.jwt, or let the application check passwords",
        "auth_request" => "use auth.check, which asks a service about each request",
        "auth_jwt" | "auth_jwt_require" => "use auth.jwt",
        _ if name.starts_with("auth_") => "use `auth` of the route: api_key, jwt, introspection or check",
        _ if is_script(name) => {
            "the gateway runs no scripts: use auth.check, which asks a service about each request"
        }
        "modsecurity" | "SecRulesEnabled" => "keep the application firewall before or behind the gateway",
        "ssl_crl" | "ssl_ocsp" => {
            "the gateway does not ask about revoked certificates: issue short-lived ones, or change client_ca"
        }
        _ => return None,
    })
}

/// Scripts that may refuse a request.
fn is_script(name: &str) -> bool {
    ["access_by_lua", "rewrite_by_lua", "server_rewrite_by_lua"].iter().any(|script| name.starts_with(script))
        || name == "js_access"
}

/// Whether nginx runs the check before a `return` answers.
fn is_before_return(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "if" | "limit_except" | "ssl_crl" | "ssl_ocsp")
        || directive.name.contains("rewrite_by_lua")
}

/// Whether an `if` refuses some clients.
fn refuses(directive: &Directive) -> bool {
    let condition = directive.args.join(" ");
    let condition = condition.trim_start_matches(['(', ' ']);
    if condition.starts_with(['-', '!']) {
        return false; // about files
    }
    let variable = condition.split([' ', ')', '=', '!', '~']).next().unwrap_or_default();
    let personal = !IMPERSONAL.contains(&variable);
    directive.children().iter().any(|child| match child.name.as_str() {
        "return" => match child.arg(0).parse::<u16>() {
            Ok(status @ 0..=399) => personal && status >= 300,
            Ok(_) => true,
            Err(_) => personal,
        },
        "rewrite" => personal,
        _ => false,
    })
}

/// Whether the block, or one inside of it, keeps anybody from anything.
pub(super) fn is_protected(scope: &Scope<'_>) -> bool {
    // Of the blocks around it, what is inherited: not other blocks.
    scope.outer().any(|directive| directive.block.is_none() && protects(directive))
        || scope.innermost().any(protects)
}

fn protects(directive: &Directive) -> bool {
    let own = match directive.name.as_str() {
        "deny" | "internal" | "limit_except" | "limit_req" | "limit_conn" => true,
        "if" => refuses(directive),
        "return" => directive.arg(0).parse::<u16>().is_ok_and(|status| status >= 400),
        "ssl_verify_client" => directive.arg(0) != "off",
        _ => instead(directive).is_some(),
    };
    own || directive.children().iter().any(protects)
}

/// Whether somebody may be admitted whom nginx keeps away, if this directive is not converted.
pub(super) fn is_protection(directive: &Directive) -> bool {
    let others = [
        "allow",
        "limit_req_zone",
        "limit_conn_zone",
        "satisfy",
        "secure_link",
        "secure_link_md5",
        "secure_link_secret",
        "server_name",
        "valid_referers",
    ];
    match directive.name.as_str() {
        "return" | "http" | "server" => false,
        name => others.contains(&name) || protects(directive),
    }
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
