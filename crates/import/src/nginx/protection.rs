//! Which directives keep somebody from something.

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
pub(super) fn instead(directive: &Directive) -> Option<&'static str> {
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

/// Whether an `if` refuses some clients.
pub(super) fn refuses(directive: &Directive) -> bool {
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

/// Whether the directive, or one inside of it, keeps anybody from anything.
pub(super) fn protects(directive: &Directive) -> bool {
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
