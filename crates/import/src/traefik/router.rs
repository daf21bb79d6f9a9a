//! Routers as routes.

use std::cmp::Reverse;

use super::context::{Context, local};
use super::entry_points::{EntryPoint, EntryPoints, is_secure};
use super::middleware::{self, Effects};
use super::{rule, service};
use crate::fields::Field;
use crate::names::name as valid;
use crate::sections::Route;
use crate::yaml::{Node, map, text};

/// Adds the routes of all routers: those with a higher priority first, which is the length of the rule unless it is given.
pub(super) fn convert(routers: &[(&str, &Field)], entry_points: &EntryPoints, cx: &mut Context<'_>) {
    redirects(entry_points, cx);
    let mut sorted = routers.to_vec();
    let priority = |router: &Field| {
        let given = router
            .text_of("priority")
            .and_then(|text| text.parse::<i64>().ok())
            .filter(|number| *number != 0);
        given.unwrap_or_else(|| {
            router.text_of("rule").map_or(0, |rule| i64::try_from(rule.len()).unwrap_or(i64::MAX))
        })
    };
    sorted.sort_by_key(|(_, router)| Reverse(priority(router)));
    for (name, router) in sorted {
        if let Some(field) = router.get("priority") {
            cx.marks.converted(field.number, "the order of the routes");
        }
        if let Err(why) = one(name, router, entry_points, cx) {
            let what = match close(name, router, entry_points, cx) {
                true => "its requests are answered 503",
                false => "left out, and its requests go to the routes after it",
            };
            cx.marks.unsupported(router.number, format!("{what}: {why}"));
        }
    }
}

/// Entry points that redirect all of their requests.
fn redirects(entry_points: &EntryPoints, cx: &mut Context<'_>) {
    for entry in &entry_points.all {
        let Some(permanent) = entry.redirect else { continue };
        let mut route = Route::default();
        route.matches.push(("listener".to_owned(), text(valid(&entry.name))));
        route.action = Some(to_https(permanent));
        if let Err(message) = cx.sections.route(&format!("{}-to-https", entry.name), route) {
            cx.marks.report.note(format!("entry point {} does not redirect: {message}", entry.name));
        }
    }
}

fn to_https(permanent: bool) -> (String, Node) {
    let status = if permanent { 308 } else { 307 };
    ("redirect".to_owned(), map().with("status", text(status)).with("to", text("https://{host}{path}")))
}

fn one(name: &str, router: &Field, entry_points: &EntryPoints, cx: &mut Context<'_>) -> Result<(), String> {
    let Some(rule_field) = router.get("rule") else { return Err("it has no rule".to_owned()) };
    let matches = rule::matches(rule_field.text().unwrap_or_default())?;
    cx.marks.converted(rule_field.number, "match");
    if matches.iter().any(|matched| matched.prefix) {
        let note = "PathPrefix of Traefik is the beginning of a path: /api also matches /apis. Here /api/* matches /api and all below it";
        cx.marks.report.note(note);
    }
    let listeners = listeners(router, entry_points);
    if listeners.is_empty() {
        return Err("none of its entry points has such requests: those with `tls` need TLS, the others none"
            .to_owned());
    }
    let mut route = Route { source: Some(router.source.clone()), ..Route::default() };
    let mut effects = Effects::default();
    let mut used: Vec<String> = listeners.iter().flat_map(|entry| entry.middlewares.clone()).collect();
    used.dedup();
    if let Some(list) = router.get("middlewares") {
        cx.marks.converted(list.number, "see each of them");
        used.extend(list.texts().into_iter().map(str::to_owned));
    }
    for middleware in &used {
        middleware::apply(middleware, name, 0, &mut route, &mut effects, cx)?;
    }
    target(router, &mut route, effects.retries, cx)?;
    for (key, said) in [
        ("entryPoints", "match.listener, unless it is all of them"),
        ("ruleSyntax", "the syntax of the rule"),
    ] {
        if let Some(field) = router.get(key) {
            cx.marks.converted(field.number, said);
        }
    }
    let all = listeners.len() == entry_points.all.iter().filter(|entry| entry.redirect.is_none()).count();
    let split = !all || effects.to_https.is_some() && listeners.iter().any(|entry| !entry.tls);
    for matched in matches {
        let listeners: Vec<_> =
            if split { listeners.iter().map(|entry| Some(*entry)).collect() } else { vec![None] };
        for listener in listeners {
            let mut route = route.clone();
            if let Some(entry) = listener {
                route.matches.push(("listener".to_owned(), text(valid(&entry.name))));
                if let (Some(permanent), false) = (effects.to_https, entry.tls) {
                    route = Route {
                        matches: route.matches,
                        action: Some(to_https(permanent)),
                        source: route.source,
                        ..Route::default()
                    };
                }
            }
            route.matches.extend(matched.fields.clone());
            for (field, message) in cx.sections.route(name, route)? {
                cx.marks.unsupported(router.number, format!("its routes have no `{field}`: {message}"));
            }
        }
    }
    Ok(())
}

/// Answers the requests of a router that cannot be converted, so that they do not reach another router that does not protect them.
/// If its rule cannot be converted, a wider one is used, and only for a router with middlewares that may protect.
fn close(name: &str, router: &Field, entry_points: &EntryPoints, cx: &mut Context<'_>) -> bool {
    let rule = router.text_of("rule").unwrap_or_default();
    let matches = match (rule::matches(rule), middleware::may_protect(router, cx)) {
        (Ok(matches), _) => matches,
        (Err(_), true) => rule::wider(rule).unwrap_or_default(),
        (Err(_), false) => Vec::new(),
    };
    let mut closed = false;
    for matched in matches {
        for entry in listeners(router, entry_points) {
            let mut route = Route { source: Some(router.source.clone()), ..Route::default() };
            route.matches.push(("listener".to_owned(), text(valid(&entry.name))));
            route.matches.extend(matched.fields.clone());
            closed |= cx.sections.route(name, route.closed()).is_ok();
        }
    }
    closed
}

/// Where the requests of a router go.
fn target(
    router: &Field,
    route: &mut Route,
    retries: Option<u64>,
    cx: &mut Context<'_>,
) -> Result<(), String> {
    let Some(field) = router.get("service") else { return Err("it has no service".to_owned()) };
    let wanted = field.text().unwrap_or_default();
    if route.action.is_some() {
        return Ok(());
    }
    if let Some(internal) = wanted.strip_suffix("@internal") {
        if internal == "noop" {
            cx.marks.converted(field.number, "respond: 418, as Traefik does");
            route.respond(418);
            return Ok(());
        }
        return Err(format!(
            "{wanted} is of Traefik itself; the gateway has its page and metrics at `admin`"
        ));
    }
    let found = service::service(local(wanted), retries, cx)?;
    cx.marks.converted(field.number, format!("upstream {}", found.upstream));
    if let Some(host) = &found.host {
        route.header("request_headers", "set", "Host", Some(text(host)));
    }
    route.forward(&found.upstream);
    Ok(())
}

/// The entry points of a router that have its requests: over TLS only if it has `tls`, without TLS only if not.
fn listeners<'a>(router: &Field, entry_points: &'a EntryPoints) -> Vec<&'a EntryPoint> {
    let named = router.get("entryPoints").map(Field::texts);
    let secure = is_secure(router);
    let fits = |entry: &&EntryPoint| {
        let wanted = named.as_ref().is_none_or(|names| names.contains(&entry.name.as_str()));
        // An entry point with `http.tls` gives it to its routers.
        wanted && entry.redirect.is_none() && (entry.tls == secure || entry.tls && named.is_some())
    };
    entry_points.all.iter().filter(fits).collect()
}
