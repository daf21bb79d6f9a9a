//! The middleware `headers`.

use super::context::{Context, texts};
use crate::fields::Field;
use crate::names::literal;
use crate::report::Outcome;
use crate::sections::Route;
use crate::yaml::{Node, boolean, map, text};

/// Fields whose value is the value of a response header.
const RESPONSE: [(&str, &str); 7] = [
    ("customFrameOptionsValue", "X-Frame-Options"),
    ("customBrowserXSSValue", "X-XSS-Protection"),
    ("contentSecurityPolicy", "Content-Security-Policy"),
    ("contentSecurityPolicyReportOnly", "Content-Security-Policy-Report-Only"),
    ("referrerPolicy", "Referrer-Policy"),
    ("permissionsPolicy", "Permissions-Policy"),
    ("featurePolicy", "Feature-Policy"),
];

/// Fields that, if true, add a response header.
const FLAGS: [(&str, &str, &str); 3] = [
    ("frameDeny", "X-Frame-Options", "DENY"),
    ("contentTypeNosniff", "X-Content-Type-Options", "nosniff"),
    ("browserXssFilter", "X-XSS-Protection", "1; mode=block"),
];

pub(super) fn apply(settings: &Field, route: &mut Route, cx: &mut Context<'_>) {
    let mut cors = map();
    let mut seconds: Option<&Field> = None;
    for (key, field) in settings.entries() {
        let value = field.text().unwrap_or_default();
        if let Some((_, header)) = RESPONSE.iter().find(|(name, _)| name == key) {
            cx.marks.converted(field.number, "response_headers.set");
            route.header("response_headers", "set", header, Some(text(literal(value))));
            continue;
        }
        if let Some((_, header, content)) = FLAGS.iter().find(|(name, _, _)| name == key) {
            cx.marks.converted(field.number, "response_headers.set, if it is true");
            if value == "true" {
                route.header("response_headers", "set", header, Some(text(content)));
            }
            continue;
        }
        match key.as_str() {
            "customRequestHeaders" => changes(field, "request_headers", route, cx),
            "customResponseHeaders" => changes(field, "response_headers", route, cx),
            "stsSeconds" => seconds = Some(field),
            "stsIncludeSubdomains" | "stsPreload" | "forceSTSHeader" => {
                cx.marks.converted(field.number, "in Strict-Transport-Security, if it is true");
            }
            "accessControlAllowOriginList" => cors_field(&mut cors, "origins", origins(field), field, cx),
            "accessControlAllowMethods" => cors_field(&mut cors, "methods", texts(field), field, cx),
            "accessControlAllowHeaders" => cors_field(&mut cors, "headers", wild(field), field, cx),
            "accessControlExposeHeaders" => cors_field(&mut cors, "expose", texts(field), field, cx),
            "accessControlMaxAge" => {
                cors_field(&mut cors, "max_age", Some(text(format!("{value}s"))), field, cx)
            }
            "accessControlAllowCredentials" => {
                cors_field(&mut cors, "credentials", (value == "true").then(|| boolean(true)), field, cx)
            }
            "addVaryHeader" => cx.marks.converted(field.number, "cors sends Vary: Origin"),
            "allowedHosts" => cx.marks.all(field, Outcome::Unsupported, "write match.host on the routes"),
            "isDevelopment"
            | "hostsProxyHeaders"
            | "sslProxyHeaders"
            | "sslRedirect"
            | "sslHost"
            | "sslTemporaryRedirect" => {
                cx.marks.all(field, Outcome::Ignored, "it has no effect on what is forwarded");
            }
            _ => cx.marks.all(
                field,
                Outcome::Unsupported,
                "see request_headers, response_headers and cors of a route",
            ),
        }
    }
    if let Some(field) = seconds {
        let mut value = format!("max-age={}", field.text().unwrap_or_default());
        value += if settings.is_true("stsIncludeSubdomains") { "; includeSubDomains" } else { "" };
        value += if settings.is_true("stsPreload") { "; preload" } else { "" };
        match settings.is_true("forceSTSHeader") {
            true => cx.marks.converted(field.number, "response_headers.set.Strict-Transport-Security"),
            false => {
                let said = "response_headers.set.Strict-Transport-Security, without TLS too, where browsers ignore it";
                cx.marks.approximated(field.number, said);
            }
        }
        route.header("response_headers", "set", "Strict-Transport-Security", Some(text(value)));
    }
    if !cors.is_empty() && settings.get("accessControlAllowOriginList").is_some() {
        route.set("cors", cors);
    }
}

/// Headers that are set; an empty value removes one.
fn changes(field: &Field, section: &str, route: &mut Route, cx: &mut Context<'_>) {
    for (header, value) in field.entries() {
        match value.text().filter(|value| !value.is_empty()) {
            Some(value_text) => {
                cx.marks.converted(value.number, format!("{section}.set"));
                route.header(section, "set", header, Some(text(literal(value_text))));
            }
            None => {
                cx.marks.converted(value.number, format!("{section}.remove"));
                route.header(section, "remove", header, None);
            }
        }
    }
}

fn cors_field(
    cors: &mut Node,
    name: &str,
    value: impl Into<Option<Node>>,
    field: &Field,
    cx: &mut Context<'_>,
) {
    cx.marks.converted(field.number, format!("cors.{name}"));
    if let Some(value) = value.into() {
        cors.insert(name, value);
    }
}

fn origins(field: &Field) -> Node {
    if field.texts() == ["*"] { text("*") } else { texts(field) }
}

/// `*` is the default of the gateway: the headers that a page asks for.
fn wild(field: &Field) -> Option<Node> {
    (field.texts() != ["*"]).then(|| texts(field))
}
