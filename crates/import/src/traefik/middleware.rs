//! What the middlewares of a router do to its routes.

use super::context::{Context, local};
use super::{headers, limits};
use crate::fields::Field;
use crate::names::{escaped, literal};
use crate::report::Outcome;
use crate::sections::Route;
use crate::yaml::{list, map, text};

/// The deepest nesting of chains.
const MAX_DEPTH: usize = 8;

/// What middlewares say of the service and the listeners of a router.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) retries: Option<u64>,
    /// Requests without TLS are redirected to https: whether for good.
    pub(super) to_https: Option<bool>,
    /// What changes the path.
    path: Option<PathChange>,
}

enum PathChange {
    Strip(Vec<String>),
    Other,
}

/// The names of the middlewares of a router or a chain, those in chains too.
pub(super) fn names<'a>(
    field: &'a Field,
    known: &[(&'a str, &'a Field)],
    depth: usize,
    found: &mut Vec<&'a str>,
) {
    for name in field.get("middlewares").map(Field::texts).unwrap_or_default() {
        let name = local(name);
        found.push(name);
        let chain = known.iter().find(|(known, _)| *known == name).and_then(|(_, field)| field.get("chain"));
        if let Some(chain) = chain.filter(|_| depth < MAX_DEPTH) {
            names(chain, known, depth + 1, found);
        }
    }
}

/// Middlewares that refuse no request for what it is, by whom it is sent.
const OPEN: [&str; 17] = [
    "chain",
    "rateLimit",
    "inFlightReq",
    "headers",
    "compress",
    "buffering",
    "retry",
    "circuitBreaker",
    "errors",
    "contentType",
    "grpcWeb",
    "stripPrefix",
    "stripPrefixRegex",
    "addPrefix",
    "replacePath",
    "replacePathRegex",
    "redirectScheme",
];

/// Whether a router has a middleware that may refuse requests, or one that is not known.
pub(super) fn may_protect(router: &Field, cx: &Context<'_>) -> bool {
    let mut all = Vec::new();
    names(router, &cx.middlewares, 0, &mut all);
    all.iter().any(|name| {
        let known = cx.middlewares.iter().find(|(known, _)| known == name);
        known.is_none_or(|(_, field)| field.entries().iter().any(|(kind, _)| !OPEN.contains(&kind.as_str())))
    })
}

/// Applies a middleware to a route.
pub(super) fn apply(
    name: &str,
    router: &str,
    depth: usize,
    route: &mut Route,
    effects: &mut Effects,
    cx: &mut Context<'_>,
) -> Result<(), String> {
    let name = local(name);
    let Some((_, field)) = cx.middlewares.iter().find(|(known, _)| *known == name).copied() else {
        return Err(format!("middleware {name} is not in the input"));
    };
    for (kind, settings) in field.entries() {
        // Each router has its own instance of a middleware, with its own counters.
        let limit = match cx.users.get(name) {
            Some(count) if *count > 1 && settings.get("redis").is_none() => format!("{name}-{router}"),
            _ => name.to_owned(),
        };
        match kind.as_str() {
            "chain" if depth < MAX_DEPTH => {
                if let Some(list) = settings.get("middlewares") {
                    cx.marks.converted(list.number, "in the order of the chain");
                    for inner in list.texts() {
                        apply(inner, router, depth + 1, route, effects, cx)?;
                    }
                }
            }
            "rateLimit" => limits::rate_limit(settings, &limit, route, cx),
            "inFlightReq" => limits::in_flight(settings, &limit, route, cx),
            "ipAllowList" | "ipWhiteList" => addresses(settings, name, route, cx),
            "headers" => headers::apply(settings, route, cx),
            "stripPrefix" | "addPrefix" | "replacePath" | "replacePathRegex" => {
                path(kind, settings, route, effects, cx)?
            }
            "redirectScheme" => {
                cx.marks.all(settings, Outcome::Converted, "a redirect on the listeners without TLS");
                if settings.text_of("scheme") == Some("https") {
                    effects.to_https = Some(settings.is_true("permanent"));
                }
            }
            "retry" => {
                if let Some(attempts) = settings.get("attempts") {
                    let number: u64 = attempts.text().and_then(|text| text.parse().ok()).unwrap_or(1);
                    effects.retries = Some(number.saturating_sub(1));
                    cx.marks.approximated(
                        attempts.number,
                        "retries of the upstream, one less, and only where that is safe",
                    );
                }
                for (_, other) in settings.entries().iter().filter(|(key, _)| key != "attempts") {
                    cx.marks.all(
                        other,
                        Outcome::Ignored,
                        "a request is sent again at once, to another server",
                    );
                }
            }
            "buffering" => {
                for (key, field) in settings.entries() {
                    match key.as_str() {
                        "maxRequestBodyBytes" => {
                            cx.marks.converted(field.number, "max_body");
                            route.set("max_body", text(field.text().unwrap_or_default()));
                        }
                        _ => cx.marks.all(
                            field,
                            Outcome::Ignored,
                            "bodies are forwarded as they arrive, in a bounded amount of memory",
                        ),
                    }
                }
            }
            "basicAuth" | "digestAuth" | "forwardAuth" => {
                let instead = match kind.as_str() {
                    "forwardAuth" => "use auth.check, which asks a service about each request",
                    _ => "use auth.api_key or auth.jwt, or passwords in the application",
                };
                let said = format!(
                    "until then its routes answer 403 to everybody (deny: not-yet-authenticated): {instead}"
                );
                cx.marks.all(settings, Outcome::Unsupported, &said);
                let everybody = ["0.0.0.0/0".to_owned(), "::/0".to_owned()];
                let name = cx.sections.list("not-yet-authenticated", &everybody)?;
                route.set("deny", list([text(name)]).comment("remove this when requests are authenticated"));
            }
            _ => {
                let said = match kind.as_str() {
                    "compress" => "the gateway does not compress: let the servers behind it compress",
                    "circuitBreaker" => "see ejection and overload of upstreams",
                    "errors" => {
                        "answers of servers are forwarded as they are; `reject` of a route replaces refusals"
                    }
                    "redirectRegex" => "use redirect of a route",
                    "stripPrefixRegex" => "use rewrite: {match, to}",
                    "passTLSClientCert" => "use {tls:subject} and {tls:fingerprint} in request_headers",
                    "plugin" => "the gateway runs no plugins",
                    "contentType" | "grpcWeb" => "bodies and types are forwarded as they are",
                    _ => "the importer does not know this middleware",
                };
                cx.marks.all(settings, Outcome::Unsupported, said);
            }
        }
    }
    Ok(())
}

/// The only addresses that a router admits.
fn addresses(settings: &Field, name: &str, route: &mut Route, cx: &mut Context<'_>) {
    let Some(range) = settings.get("sourceRange") else { return };
    let networks: Vec<_> = range.texts().into_iter().map(str::to_owned).collect();
    match cx.sections.list(name, &networks) {
        Ok(list_name) => {
            cx.marks.converted(range.number, format!("list {list_name}, `allow` of its routes"));
            route.set("allow", list([text(list_name)]).source(&range.source));
        }
        Err(message) => {
            cx.marks.unsupported(range.number, format!("its routes answer 403 to everybody: {message}"));
            route.respond(403);
        }
    }
    if let Some(strategy) = settings.get("ipStrategy") {
        limits::ip_strategy(strategy, cx);
    }
    if let Some(status) = settings.get("rejectStatusCode") {
        match status.text() {
            Some("403") => cx.marks.converted(status.number, "the status of the gateway"),
            _ => cx.marks.unsupported(status.number, "clients that a list refuses get 403"),
        }
    }
}

/// What changes the path of forwarded requests. A second change is an error, except a prefix that replaces another.
fn path(
    kind: &str,
    settings: &Field,
    route: &mut Route,
    effects: &mut Effects,
    cx: &mut Context<'_>,
) -> Result<(), String> {
    let said = |what: &str, cx: &mut Context<'_>| cx.marks.all(settings, Outcome::Converted, what);
    let before = effects.path.take();
    let (change, field, node) = match (kind, before) {
        ("stripPrefix", None) => {
            let prefixes: Vec<_> = settings.get("prefixes").map(Field::texts).unwrap_or_default();
            let prefixes: Vec<_> =
                prefixes.into_iter().map(|prefix| prefix.trim_end_matches('/').to_owned()).collect();
            said("strip_prefix or rewrite; the header X-Forwarded-Prefix is that of Traefik", cx);
            let (field, node) = match prefixes.as_slice() {
                [] => return Ok(()),
                [one] => {
                    route.header("request_headers", "set", "X-Forwarded-Prefix", Some(text(literal(one))));
                    ("strip_prefix", text(one))
                }
                several => {
                    if let Some(field) = settings.get("prefixes") {
                        cx.marks.approximated(
                            field.number,
                            "rewrite; the gateway does not send X-Forwarded-Prefix",
                        );
                    }
                    let any = several.iter().map(|prefix| escaped(prefix)).collect::<Vec<_>>().join("|");
                    ("rewrite", map().with("match", text(format!("^(?:{any})(?:/|$)"))).with("to", text("/")))
                }
            };
            (PathChange::Strip(prefixes), field, node)
        }
        ("addPrefix", before) => {
            let prefix =
                settings.text_of("prefix").unwrap_or_default().trim_end_matches('/').replace('$', "$$");
            said("rewrite", cx);
            let pattern = match before {
                None => "^".to_owned(),
                Some(PathChange::Strip(prefixes)) => {
                    let any = prefixes.iter().map(|prefix| escaped(prefix)).collect::<Vec<_>>().join("|");
                    route.fields.retain(|(known, _)| known != "strip_prefix");
                    format!("^(?:{any})")
                }
                Some(PathChange::Other) => {
                    return Err("it changes the path twice: write one rewrite".to_owned());
                }
            };
            (PathChange::Other, "rewrite", map().with("match", text(pattern)).with("to", text(prefix)))
        }
        ("replacePath", None) => {
            said("rewrite; the header X-Replaced-Path is that of Traefik", cx);
            route.header("request_headers", "set", "X-Replaced-Path", Some(text("{path}")));
            (PathChange::Other, "rewrite", text(literal(settings.text_of("path").unwrap_or_default())))
        }
        ("replacePathRegex", None) => {
            said("rewrite; the header X-Replaced-Path is that of Traefik", cx);
            if let Some(field) =
                settings.get("regex").filter(|field| !field.text().unwrap_or_default().starts_with('^'))
            {
                cx.marks.approximated(field.number, "rewrite replaces the first match, Traefik all of them");
            }
            route.header("request_headers", "set", "X-Replaced-Path", Some(text("{path}")));
            let (pattern, to) = (
                settings.text_of("regex").unwrap_or_default(),
                settings.text_of("replacement").unwrap_or_default(),
            );
            (PathChange::Other, "rewrite", map().with("match", text(pattern)).with("to", text(to)))
        }
        _ => return Err("it changes the path twice: write one rewrite".to_owned()),
    };
    route.set(field, node);
    effects.path = Some(change);
    Ok(())
}
