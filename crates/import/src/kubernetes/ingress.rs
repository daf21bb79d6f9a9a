//! An Ingress, as ingress-nginx serves it.

use super::annotations::{Settings, is_canary, settings};
use super::backend::upstream;
use super::candidates::Candidate;
use super::context::{Context, certificate_of};
use super::objects::Object;
use crate::fields::Field;
use crate::marks::Marks;
use crate::names::escaped;
use crate::sections::Route;
use crate::yaml::{Node, map, text};

/// A path of a rule.
struct Path<'a> {
    text: &'a str,
    exact: bool,
    pattern: Node,
}

pub(super) fn convert(object: &Object<'_>, cx: &mut Context<'_>) {
    if is_canary(object) {
        let said = "left out: a canary is a server with a weight in the upstream of the main Ingress (servers: [{url: …, weight: 9}, {url: \
                    …, weight: 1}]), or a route with match.headers before it";
        cx.marks.unsupported(object.field.number, said);
        return;
    }
    let settings = settings(object, cx);
    let Some(spec) = object.field.get("spec") else {
        cx.marks.unsupported(object.field.number, "it has no `spec`");
        return;
    };
    let secure = tls(spec, cx);
    for rule in spec.get("rules").map(Field::items).unwrap_or_default() {
        let host = rule.get("host");
        if let Some(host) = host {
            cx.marks.converted(host.number, "match.host");
        }
        let host = host.and_then(Field::text);
        let redirects = settings.force_ssl
            || settings.ssl_redirect && host.is_some_and(|host| secure.iter().any(|name| name == host));
        for path in rule.at(&["http", "paths"]).map(Field::items).unwrap_or_default() {
            if let Some(service) = path.at(&["backend", "service"]).or(path.get("backend")) {
                one(object, host, Some(path), service, &settings, redirects, cx);
            }
        }
        if let (Some(host), Some(root)) = (host, &settings.app_root) {
            let mut route = Route { source: Some(rule.source.clone()), ..Route::default() };
            route.matches.push(("path".to_owned(), text("/")));
            route.action =
                Some(("redirect".to_owned(), map().with("status", text(302)).with("to", text(root))));
            push(object, Some(host), None, true, 1, route, rule.number, cx);
        }
    }
    let default = spec.get("defaultBackend").or(spec.get("backend"));
    if let Some(service) = default.map(|backend| backend.get("service").unwrap_or(backend)) {
        one(object, None, None, service, &settings, settings.force_ssl, cx);
    }
}

/// The hosts with certificates.
fn tls(spec: &Field, cx: &mut Context<'_>) -> Vec<String> {
    let mut hosts = Vec::new();
    for entry in spec.get("tls").map(Field::items).unwrap_or_default() {
        if let Some(names) = entry.get("hosts") {
            cx.marks.converted(names.number, "the gateway chooses the certificate by the names in it");
            hosts.extend(names.texts().into_iter().map(str::to_owned));
        }
        if let Some(secret) = entry.get("secretName") {
            certificate_of(secret, cx);
        }
    }
    hosts
}

/// Converts one path, or the backend of all requests.
fn one(
    object: &Object<'_>,
    host: Option<&str>,
    path: Option<&Field>,
    service: &Field,
    settings: &Settings,
    redirects: bool,
    cx: &mut Context<'_>,
) {
    let place = path.unwrap_or(service);
    let matched = path.map(|path| path_of(path, settings, cx));
    let mut route = settings.route.clone();
    route.source = Some(place.source.clone());
    let (exact, length) = matched.as_ref().map_or((false, 0), |path| (path.exact, path.text.len()));
    if let Some(path) = matched.as_ref().filter(|path| path.exact || path.text != "/") {
        route.matches.push(("path".to_owned(), path.pattern.clone()));
    }
    if let Err((number, why)) = action(object, matched.as_ref(), service, settings, &mut route, cx) {
        cx.marks.unsupported(number, format!("its requests are answered 503: {why}"));
        route = route.closed();
    }
    for host in [host].into_iter().chain(settings.aliases.iter().map(|alias| Some(alias.as_str()))) {
        if redirects {
            let mut to_https = Route {
                source: Some(place.source.clone()),
                matches: route.matches.clone(),
                ..Route::default()
            };
            let to = map().with("status", text(308)).with("to", text("https://{host}{path}"));
            to_https.action = Some(("redirect".to_owned(), to));
            push(object, host, Some("http"), exact, length, to_https, place.number, cx);
        }
        push(object, host, None, exact, length, route.clone(), place.number, cx);
    }
}

/// What becomes of the requests of a path; or the field that cannot be converted, and why.
fn action(
    object: &Object<'_>,
    path: Option<&Path<'_>>,
    service: &Field,
    settings: &Settings,
    route: &mut Route,
    cx: &mut Context<'_>,
) -> Result<(), (usize, String)> {
    if let (Some(path), Some((target, number))) = (path, &settings.rewrite) {
        route.set("rewrite", rewrite(path.text, target).map_err(|why| (*number, why))?);
    }
    // Of extensions/v1beta1: serviceName and servicePort.
    let name = service.get("name").or(service.get("serviceName"));
    let port = service
        .get("port")
        .and_then(|port| port.get("number").or(port.get("name")))
        .or(service.get("servicePort"));
    let refused = |why: &str| (service.number, why.to_owned());
    let name = name.ok_or_else(|| refused("the gateway forwards to services, not to other resources"))?;
    let target = cx.backends.target(name, object.namespace, port, &mut cx.marks);
    let target = target.ok_or_else(|| refused("its port is not known"))?;
    if let Some((status, to)) = &settings.redirect {
        let redirect = map().with("status", text(status)).with("to", text(to));
        route.action = Some(("redirect".to_owned(), redirect));
        return Ok(());
    }
    let found = upstream(&[target], settings.scheme, &settings.upstream, &mut cx.sections);
    route.forward(&found.map_err(|message| (service.number, message))?);
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "each is a field of the candidate")]
fn push(
    object: &Object<'_>,
    host: Option<&str>,
    listener: Option<&'static str>,
    exact: bool,
    length: usize,
    route: Route,
    number: usize,
    cx: &mut Context<'_>,
) {
    let name = match listener {
        Some(_) => format!("{}-to-https", object.name),
        None => object.name.to_owned(),
    };
    let host = host.map(str::to_owned);
    cx.candidates.0.push(Candidate {
        host,
        listener,
        exact,
        length,
        conditions: [0, 0, 0],
        name,
        route,
        number,
    });
}

fn path_of<'a>(field: &'a Field, settings: &Settings, cx: &mut Context<'_>) -> Path<'a> {
    let path = field.text_of("path").unwrap_or("/");
    let kind = field.text_of("pathType").unwrap_or("ImplementationSpecific");
    if let Some(kind) = field.get("pathType") {
        cx.marks.converted(kind.number, "match.path");
    }
    let number = field.get("path").map(|path| path.number);
    let mut say = |said: &str, same: bool| match (number, same) {
        (Some(number), true) => cx.marks.converted(number, said),
        (Some(number), false) => cx.marks.approximated(number, said),
        (None, _) => {}
    };
    let literal = |path: &str| path.replace('{', "%7B").replace('}', "%7D");
    let (exact, pattern) = if settings.regex && path != "/" {
        say("an expression for the beginning of the path, without regard to case, as in nginx", true);
        (false, map().with("regex", text(format!("(?i){path}.*"))))
    } else if kind == "Exact" {
        say("match.path", true);
        (true, text(literal(path)))
    } else if path == "/" {
        say("all paths", true);
        (false, text("/*"))
    } else {
        let said = "match.path: the path and all below it; nginx matches it as the beginning of a path, and so longer names, too";
        say(if kind == "Prefix" { "match.path" } else { said }, kind == "Prefix");
        (false, text(format!("{}/*", literal(path.trim_end_matches('/')))))
    };
    Path { text: path, exact, pattern }
}

/// What nginx makes of a path: the whole path is replaced where it begins with the expression.
fn rewrite(path: &str, target: &str) -> Result<Node, String> {
    if !target.starts_with('/') {
        return Err(format!("the target {target} is not a path"));
    }
    let path = if path.starts_with('/') { path.to_owned() } else { escaped(path) };
    Ok(map().with("match", text(format!("(?i)^{path}.*$"))).with("to", text(target)))
}

/// Differences of all ingresses.
pub(super) fn notes(marks: &mut Marks) {
    for note in [
        "refused requests are answered 429 with Retry-After; ingress-nginx answers 503 unless limit-req-status-code and \
         limit-conn-status-code say otherwise",
        "every replica of ingress-nginx counts for itself, so the rates of a cluster are its rates times their number. This gateway \
         has the rate once; several gateways share it with `store`",
        "the address of a client is that of its connection: behind a load balancer write client_ip: {trusted_proxies: […]}",
        "ingress-nginx counts every IPv6 address apart. Here all addresses of one /64 are one client; client_ip: {ipv6_prefix: 128} \
         counts as nginx does",
        "names of servers are those of Services: a gateway outside of the cluster needs other addresses in `upstreams`",
    ] {
        marks.report.note(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewrite_replaces_the_whole_path() {
        let node = rewrite("/api(/|$)(.*)", "/$2").unwrap();
        let expected = map().with("match", text("(?i)^/api(/|$)(.*).*$")).with("to", text("/$2"));
        assert_eq!(node, expected);
        assert_eq!(rewrite("/api", "https://a"), Err("the target https://a is not a path".to_owned()));
    }
}
