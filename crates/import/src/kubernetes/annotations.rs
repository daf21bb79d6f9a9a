//! Annotations of ingress-nginx.

use super::context::Context;
use super::objects::Object;
use crate::fields::Field;
use crate::sections::Route;
use crate::units::{milliseconds, size, time};
use crate::yaml::{Node, boolean, list, map, text};

/// What all annotations of ingress-nginx begin with.
const PREFIX: &str = "nginx.ingress.kubernetes.io/";

/// What the annotations of an Ingress say.
pub(super) struct Settings {
    /// Fields and limits of all of its routes.
    pub(super) route: Route,
    pub(super) scheme: &'static str,
    pub(super) upstream: Vec<(String, Node)>,
    pub(super) rewrite: Option<(String, usize)>,
    pub(super) regex: bool,
    pub(super) ssl_redirect: bool,
    pub(super) force_ssl: bool,
    pub(super) redirect: Option<(u16, String)>,
    pub(super) app_root: Option<String>,
    pub(super) aliases: Vec<String>,
}

/// The annotations of one Ingress.
struct Annotations<'a, 'b, 'c> {
    object: &'a Object<'a>,
    cx: &'b mut Context<'c>,
}

impl<'a> Annotations<'a, '_, '_> {
    fn get(&self, name: &str) -> Option<&'a Field> {
        self.object.field.at(&["metadata", "annotations"])?.get(&format!("{PREFIX}{name}"))
    }

    /// The value of an annotation, which is said to be converted.
    fn take(&mut self, name: &str, said: &str) -> Option<&'a str> {
        let field = self.get(name)?;
        self.cx.marks.converted(field.number, said);
        field.text()
    }

    fn number(&mut self, name: &str, said: &str) -> Option<u64> {
        let field = self.get(name)?;
        match field.text().and_then(|text| text.parse().ok()) {
            Some(number) => {
                self.cx.marks.converted(field.number, said);
                Some(number)
            }
            None => {
                self.cx.marks.unsupported(field.number, "it is not a number");
                None
            }
        }
    }

    fn networks(&self, name: &str) -> Vec<String> {
        let text = self.get(name).and_then(Field::text).unwrap_or_default();
        text.split(',').map(str::trim).filter(|network| !network.is_empty()).map(str::to_owned).collect()
    }
}

/// Whether it is a canary of another Ingress.
pub(super) fn is_canary(object: &Object<'_>) -> bool {
    let annotations = object.field.at(&["metadata", "annotations"]);
    annotations.is_some_and(|annotations| annotations.is_true(&format!("{PREFIX}canary")))
}

pub(super) fn settings(object: &Object<'_>, cx: &mut Context<'_>) -> Settings {
    let mut settings = Settings {
        route: Route::default(),
        scheme: "http",
        upstream: Vec::new(),
        rewrite: None,
        regex: false,
        ssl_redirect: true,
        force_ssl: false,
        redirect: None,
        app_root: None,
        aliases: Vec::new(),
    };
    let mut annotations = Annotations { object, cx };
    limits(&mut annotations, &mut settings);
    access(&mut annotations, &mut settings);
    paths(&mut annotations, &mut settings);
    upstreams(&mut annotations, &mut settings);
    cors(&mut annotations, &mut settings);
    settings
}

/// Rates and connections: nginx counts them by address, for each Ingress apart.
fn limits(annotations: &mut Annotations<'_, '_, '_>, settings: &mut Settings) {
    let multiplier = annotations.number("limit-burst-multiplier", "in the burst of the limits").unwrap_or(5);
    let names = ["limit-whitelist", "limit-allowlist"];
    let exempt: Vec<_> = names.iter().flat_map(|name| annotations.networks(name)).collect();
    for (name, unit) in [("limit-rps", "s"), ("limit-rpm", "min"), ("limit-connections", "")] {
        let Some(field) = annotations.get(name) else { continue };
        let number: u64 = match field.text().and_then(|text| text.parse().ok()) {
            Some(0) => {
                annotations.cx.marks.ignored(field.number, "0 is no limit");
                continue;
            }
            Some(number) => number,
            None => {
                annotations.cx.marks.unsupported(field.number, "it is not a number");
                continue;
            }
        };
        let burst = number.saturating_mul(multiplier).saturating_add(1);
        let (node, said) = match unit {
            "" => {
                let node = map()
                    .with("key", text("ip"))
                    .with("algorithm", text("concurrency"))
                    .with("max", text(number));
                (node, "requests in flight of an address".to_owned())
            }
            unit => {
                let node = map().with("key", text("ip")).with("rate", text(format!("{number}/{unit}")));
                let said = format!("burst {burst} is {multiplier} times the number, and the request itself");
                (node.with("burst", text(burst)), said)
            }
        };
        let node = if exempt.is_empty() { node } else { node.with("exempt", list(exempt.iter().map(text))) };
        let short = name.trim_start_matches("limit-");
        let object = annotations.object;
        let wanted = format!("{}-{}-{short}", object.namespace, object.name);
        let wanted = wanted.strip_prefix("default-").unwrap_or(&wanted);
        match annotations.cx.sections.limit(wanted, node.source(&field.source)) {
            Ok(limit) => {
                annotations.cx.marks.converted(field.number, format!("limit {limit}: {said}"));
                settings.route.limits.push(text(limit).source(&field.source));
            }
            Err(message) => annotations.cx.marks.unsupported(field.number, message),
        }
    }
    for name in names {
        if let Some(field) = annotations.get(name) {
            annotations.cx.marks.converted(field.number, "exempt of the limits");
        }
    }
}

/// Lists of addresses, and credentials that only nginx can verify.
fn access(annotations: &mut Annotations<'_, '_, '_>, settings: &mut Settings) {
    for (names, field) in [
        (["whitelist-source-range", "allowlist-source-range"], "allow"),
        (["denylist-source-range", ""], "deny"),
    ] {
        for name in names {
            let Some(found) = annotations.get(name) else { continue };
            let wanted = format!("{}-{field}", annotations.object.name);
            let list_of = annotations.networks(name);
            match annotations.cx.sections.list(&wanted, &list_of) {
                Ok(name) => {
                    annotations.cx.marks.converted(found.number, format!("list {name}"));
                    settings.route.set(field, list([text(name)]).source(&found.source));
                }
                Err(message) => close(annotations, settings, found, &message),
            }
        }
    }
    let entries =
        annotations.object.field.at(&["metadata", "annotations"]).map(Field::entries).unwrap_or_default();
    for (name, field) in entries {
        let Some(name) = name.strip_prefix(PREFIX) else { continue };
        if name.starts_with("auth-") {
            let instead = match name {
                "auth-type" | "auth-secret" | "auth-secret-type" | "auth-realm" => {
                    "auth.api_key or auth.jwt, or passwords in the application"
                }
                name if name.starts_with("auth-tls") => "client_ca of a listener",
                _ => "auth.check, which asks a service about each request",
            };
            close(annotations, settings, field, &format!("use {instead}"));
        }
    }
}

/// A route whose requests cannot be authenticated refuses them.
fn close(annotations: &mut Annotations<'_, '_, '_>, settings: &mut Settings, field: &Field, instead: &str) {
    let everybody = ["0.0.0.0/0".to_owned(), "::/0".to_owned()];
    let name = annotations.cx.sections.list("not-yet-authenticated", &everybody).unwrap_or_default();
    settings.route.set("deny", list([text(name)]).comment("remove this when requests are authenticated"));
    let text =
        format!("until then its routes answer 403 to everybody (deny: not-yet-authenticated): {instead}");
    annotations.cx.marks.unsupported(field.number, text);
}

/// Paths, hosts and redirects.
fn paths(annotations: &mut Annotations<'_, '_, '_>, settings: &mut Settings) {
    if let Some(field) = annotations.get("rewrite-target") {
        settings.rewrite = field.text().map(|target| (target.to_owned(), field.number));
        annotations.cx.marks.converted(field.number, "rewrite of its routes");
    }
    settings.regex = annotations.take("use-regex", "paths are expressions, if it is true") == Some("true")
        || settings.rewrite.is_some();
    settings.ssl_redirect = annotations
        .take("ssl-redirect", "whether hosts with a certificate redirect to https")
        != Some("false");
    settings.force_ssl =
        annotations.take("force-ssl-redirect", "whether all hosts redirect to https") == Some("true");
    let code = annotations
        .number("permanent-redirect-code", "status of the redirect")
        .and_then(|code| u16::try_from(code).ok());
    if let Some(to) = annotations.take("permanent-redirect", "redirect") {
        settings.redirect = Some((code.unwrap_or(301), to.to_owned()));
    }
    if let Some(to) = annotations.take("temporal-redirect", "redirect") {
        settings.redirect = Some((302, to.to_owned()));
    }
    settings.app_root = annotations.take("app-root", "a redirect of /").map(str::to_owned);
    let aliases = annotations.take("server-alias", "hosts of its routes").unwrap_or_default();
    settings.aliases =
        aliases.split(',').map(str::trim).filter(|host| !host.is_empty()).map(str::to_owned).collect();
    if let Some(host) = annotations.take("upstream-vhost", "request_headers.set.Host") {
        settings.route.header("request_headers", "set", "Host", Some(text(host)));
    }
    if let Some(prefix) = annotations.take("x-forwarded-prefix", "request_headers.set.X-Forwarded-Prefix") {
        settings.route.header("request_headers", "set", "X-Forwarded-Prefix", Some(text(prefix)));
    }
}

/// Timeouts, sizes and protocols.
fn upstreams(annotations: &mut Annotations<'_, '_, '_>, settings: &mut Settings) {
    let mut timeouts = map().with("connect", text("5s"));
    let (mut response, mut idle) = ("60s".to_owned(), "60s".to_owned());
    if let Some(ms) = annotations
        .take("proxy-connect-timeout", "timeouts.connect")
        .and_then(|value| milliseconds(value, 1000))
    {
        timeouts.insert("connect", text(time(ms)));
    }
    if let Some(ms) = annotations
        .take("proxy-read-timeout", "timeouts.response and idle")
        .and_then(|value| milliseconds(value, 1000))
    {
        (response, idle) = (time(ms), time(ms));
    }
    if let Some(field) = annotations.get("proxy-send-timeout") {
        let said = "a server that reads slowly has no timeout of its own; `timeout` of a route bounds the whole request";
        annotations.cx.marks.unsupported(field.number, said);
    }
    settings
        .upstream
        .push(("timeouts".to_owned(), timeouts.with("response", text(response)).with("idle", text(idle))));
    if let Some(field) = annotations.get("proxy-body-size") {
        match field.text().and_then(size) {
            Some(size) if size.trim_end_matches(|c: char| c.is_ascii_alphabetic()) == "0" => {
                annotations
                    .cx
                    .marks
                    .approximated(field.number, "max_body 1GiB: 0 is no bound in nginx, and routes have one");
                settings.route.set("max_body", text("1GiB").source(&field.source));
            }
            Some(size) => {
                annotations.cx.marks.converted(field.number, "max_body");
                settings.route.set("max_body", text(size).source(&field.source));
            }
            None => annotations.cx.marks.unsupported(field.number, "it is not a size"),
        }
    }
    if let Some(field) = annotations.get("proxy-next-upstream-tries") {
        let tries = field.text().and_then(|text| text.parse::<u64>().ok()).unwrap_or(3);
        annotations
            .cx
            .marks
            .approximated(field.number, "retries, one less: requests are sent again only where that is safe");
        settings.upstream.push(("retries".to_owned(), text(tries.saturating_sub(1))));
    }
    for name in ["proxy-next-upstream", "proxy-next-upstream-timeout"] {
        if let Some(field) = annotations.get(name) {
            annotations.cx.marks.approximated(
                field.number,
                "requests are sent again after failed connections, where that is safe",
            );
        }
    }
    if let Some(field) = annotations.get("backend-protocol") {
        let (scheme, http2) = match field.text().unwrap_or_default().to_ascii_uppercase().as_str() {
            "HTTPS" => ("https", false),
            "GRPC" => ("http", true),
            "GRPCS" => ("https", true),
            "HTTP" | "AUTO_HTTP" => ("http", false),
            _ => return annotations.cx.marks.unsupported(field.number, "servers are reached by HTTP"),
        };
        annotations.cx.marks.converted(field.number, "protocol of the upstream");
        settings.scheme = scheme;
        if http2 {
            settings.upstream.push(("protocol".to_owned(), text("http2")));
        }
    }
    if let Some(field) = annotations.get("upstream-hash-by") {
        let key = match field.text().unwrap_or_default() {
            "$remote_addr" | "$binary_remote_addr" => Some("ip".to_owned()),
            "$request_uri" | "$uri" => Some("path".to_owned()),
            "$host" => Some("host".to_owned()),
            other => ["http", "cookie", "arg"].iter().zip(["header", "cookie", "query"]).find_map(
                |(variable, key)| {
                    let name = other.strip_prefix(&format!("${variable}_"))?;
                    Some(format!(
                        "{key}:{}",
                        if *variable == "http" { name.replace('_', "-") } else { name.to_owned() }
                    ))
                },
            ),
        };
        match key {
            Some(key) => {
                annotations.cx.marks.approximated(
                    field.number,
                    "balance: {hash: KEY}; the addresses of a Service are those that its name resolves to",
                );
                settings.upstream.push(("balance".to_owned(), map().with("hash", text(key))));
            }
            None => annotations.cx.marks.unsupported(field.number, "see balance: {hash: KEY} of upstreams"),
        }
    }
    if let Some(field) = annotations.get("load-balance") {
        annotations
            .cx
            .marks
            .approximated(field.number, "round_robin: the Service spreads requests over its endpoints");
    }
}

fn cors(annotations: &mut Annotations<'_, '_, '_>, settings: &mut Settings) {
    if annotations.take("enable-cors", "cors, if it is true") != Some("true") {
        return;
    }
    let split = |value: &str| list(value.split(',').map(|part| text(part.trim())));
    let origins = annotations.take("cors-allow-origin", "cors.origins").unwrap_or("*");
    let mut cors = map().with("origins", if origins == "*" { text("*") } else { split(origins) });
    let credentials = annotations.take("cors-allow-credentials", "cors.credentials") != Some("false");
    if credentials && origins == "*" {
        annotations.cx.marks.report.note(
            "ingress-nginx allows credentials for all origins unless it is told otherwise; the gateway does not: name the origins in cors",
        );
    } else if credentials {
        cors.insert("credentials", boolean(true));
    }
    for (name, field) in [
        ("cors-allow-methods", "methods"),
        ("cors-allow-headers", "headers"),
        ("cors-expose-headers", "expose"),
    ] {
        if let Some(value) = annotations.take(name, &format!("cors.{field}")) {
            cors.insert(field, split(value));
        }
    }
    if let Some(seconds) = annotations.number("cors-max-age", "cors.max_age") {
        cors.insert("max_age", text(format!("{}s", seconds.min(86_400))));
    }
    settings.route.set("cors", cors);
}
