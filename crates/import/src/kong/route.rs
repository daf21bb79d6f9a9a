//! Routes, in the order in which Kong tries them.

use std::cmp::Reverse;

use super::entities::{Entities, Route, sourced};
use super::expression;
use super::known;
use super::limits::{Limits, Lost};
use super::path::{Path, host};
use super::plugins::{Access, applying, requires_key};
use super::scope;
use super::upstream::{Target, Upstreams};
use crate::accepted;
use crate::fields::Field;
use crate::marks::Marks;
use crate::names::{name, unused};
use crate::report::Outcome;
use crate::yaml::{Node, list, map, text};

/// The sections that routes add to.
pub(super) struct Sections<'a> {
    pub(super) limits: Limits<'a>,
    pub(super) upstreams: Upstreams<'a>,
    pub(super) access: Access,
}

/// How Kong compares routes: the kinds of tests, expressions and plain hosts, headers, the priority of expressions, the length of the
/// path. More comes first.
type Order = (Reverse<usize>, Reverse<usize>, Reverse<usize>, Reverse<i64>, Reverse<usize>);

/// One path of a route of Kong: a route of the gateway.
struct Candidate<'e, 'a> {
    route: &'e Route<'a>,
    path: Option<(Path, &'a Field)>,
    headers: Vec<(String, String)>,
    order: Order,
    /// The part that cannot be converted, and why: its requests are refused.
    lost: Option<Lost<'a>>,
}

/// The section `routes`.
pub(super) fn routes<'a>(
    entities: &Entities<'a>,
    sections: &mut Sections<'a>,
    by_tilde: bool,
    marks: &mut Marks,
) -> Node {
    let mut candidates = Vec::new();
    for route in &entities.routes {
        marks.converted(route.field.number, "routes");
        let http = |word: &str| ["http", "https", "grpc", "grpcs"].contains(&word);
        if let Some(field) = route.field.get("protocols")
            && !field.texts().into_iter().any(http)
        {
            marks.unsupported(field.number, "left out: the gateway forwards HTTP only");
            continue;
        }
        candidates.extend(candidates_of(route, by_tilde, marks));
    }
    candidates.sort_by_key(|candidate| candidate.order); // stable: earlier routes come first
    let mut names: Vec<String> = Vec::new();
    let mut out = Vec::new();
    for (number, candidate) in candidates.iter().enumerate() {
        let several =
            candidates.iter().filter(|other| std::ptr::eq(other.route, candidate.route)).count() > 1;
        let word = candidate.path.as_ref().filter(|_| several).map_or("", |(path, _)| path.word());
        let name = unused(&name(&format!("{} {word}", candidate.route.name)), &|name| {
            names.iter().any(|known| known == name)
        });
        let node = node(candidate, &name, entities, sections, marks).unwrap_or_else(|(field, why)| {
            marks.unsupported(field.number, format!("its requests are answered 503: {why}"));
            refused(candidate, &name, None)
        });
        names.push(name.clone());
        out.push(node.block());
        if let Some((path, written)) = beyond(candidate, &candidates[number + 1..], entities) {
            let text = "requests for longer names, such as /apix for /api, are answered 503, because a route after it is less restricted: write a route for them";
            marks.approximated(written.number, text);
            let name = unused(&format!("{name}-longer"), &|name| names.iter().any(|known| known == name));
            out.push(refused(candidate, &name, Some(path)).block());
            names.push(name);
        }
    }
    marks.report.note("the path /api of Kong matches /apix, too; here it is /api and what is below it");
    list(out).block()
}

/// The most combinations of values of headers that a route may have.
const COMBINATIONS: usize = 64;

fn candidates_of<'e, 'a>(route: &'e Route<'a>, by_tilde: bool, marks: &mut Marks) -> Vec<Candidate<'e, 'a>> {
    let field = route.field;
    if let Some(expression) = field.get("expression") {
        let most = Reverse(usize::MAX);
        let why = "expressions of Kong: write `match` with host, path, methods, headers and query".to_owned();
        return vec![Candidate {
            route,
            path: None,
            headers: Vec::new(),
            order: (most, most, most, Reverse(i64::MAX), most),
            lost: Some((expression, why)),
        }];
    }
    let hosts = field.get("hosts").map_or_else(Vec::new, Field::texts);
    let headers = field.get("headers").map_or(&[] as &[_], |headers| headers.entries());
    let kinds = ["methods", "hosts", "paths", "snis", "headers"]
        .iter()
        .filter(|word| field.get(word).is_some())
        .count();
    let plain_hosts = usize::from(!hosts.is_empty() && !hosts.iter().any(|host| host.contains('*')));
    let priority = field.text_of("regex_priority").and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    if let Some(field) = field.get("regex_priority") {
        marks.converted(field.number, "the order of routes");
    }
    if let Some(field) = field.get("name") {
        marks.converted(field.number, "the name of the route");
    }
    // Each combination of values of headers is a route of its own.
    let mut combinations: Vec<Vec<(String, String)>> = vec![Vec::new()];
    let mut lost = None;
    for (name, values) in headers {
        marks.converted(values.number, "match.headers");
        combinations = combinations
            .iter()
            .flat_map(|one| {
                values
                    .texts()
                    .into_iter()
                    .map(|value| one.iter().cloned().chain([(name.clone(), value.to_owned())]).collect())
            })
            .take(COMBINATIONS + 1)
            .collect();
        if combinations.is_empty() || combinations.len() > COMBINATIONS {
            let why = format!("its headers have none, or more than {COMBINATIONS}, combinations of values");
            lost = Some((values, why));
            combinations = vec![Vec::new()];
        }
    }
    if lost.is_some() {
        combinations = vec![Vec::new()];
    }
    let paths: Vec<Option<(Path, &'a Field)>> =
        match field.get("paths").filter(|paths| !paths.texts().is_empty()) {
            Some(paths) => {
                marks.converted(paths.number, "match.path");
                paths.texts().iter().map(|text| Some((Path::of(text, by_tilde), paths))).collect()
            }
            None => vec![None],
        };
    let mut out = Vec::new();
    for path in &paths {
        let regex = path.as_ref().is_some_and(|(path, _)| path.is_regex());
        let length = path.as_ref().map_or(0, |(path, _)| path.length());
        for combination in &combinations {
            let order = (
                Reverse(kinds),
                Reverse(usize::from(regex) + 2 * plain_hosts),
                Reverse(headers.len()),
                Reverse(if regex { priority } else { 0 }),
                Reverse(length),
            );
            let headers = combination.clone();
            out.push(Candidate { route, path: path.clone(), headers, order, lost: lost.clone() });
        }
    }
    out
}

fn node<'a>(
    candidate: &Candidate<'_, 'a>,
    name: &str,
    entities: &Entities<'a>,
    sections: &mut Sections<'a>,
    marks: &mut Marks,
) -> Result<Node, Lost<'a>> {
    let field = candidate.route.field;
    if let Some(lost) = &candidate.lost {
        return Err(lost.clone());
    }
    let place = place(candidate, marks)?;
    if let Some(snis) = field.get("snis") {
        return Err((snis, "routes are not chosen by SNI: use `hosts`".to_owned()));
    }
    let is_expression = |(_, value): &(String, String)| value.starts_with("~*");
    if let Some(headers) = field.get("headers").filter(|_| candidate.headers.iter().any(is_expression)) {
        return Err((headers, "routes compare headers with exact values only".to_owned()));
    }
    let mut node = map().with("name", text(name));
    if !place.is_empty() {
        node.insert("match", place);
    }
    for (key, value) in action(candidate, entities, sections, marks)? {
        node.insert(key, value);
    }
    Ok(sourced(field, node))
}

/// A route that answers the requests of one that cannot be converted, so that they do not reach a more general route, which may be open.
/// Where its `match` has no equivalent, it answers all requests that cannot be told from them.
fn refused(candidate: &Candidate<'_, '_>, name: &str, path: Option<Node>) -> Node {
    let field = candidate.route.field;
    let mut whole = match field.get("expression").and_then(Field::text) {
        Some(expression) => expression::widest(expression),
        None => map(),
    };
    let written = || candidate.path.as_ref().and_then(|(path, _)| path.widest());
    if let Some(path) = path.or_else(written) {
        whole.insert("path", path);
    }
    let hosts = field.get("hosts").map_or_else(Vec::new, Field::texts);
    if let Ok(hosts) = hosts.into_iter().map(host).collect::<Result<Vec<_>, _>>()
        && !hosts.is_empty()
    {
        whole.insert("host", list(hosts));
    }
    if let Some(methods) = field.get("methods") {
        whole.insert("methods", list(methods.texts().iter().map(text)));
    }
    let plain = candidate.headers.iter().filter(|(_, value)| !value.starts_with("~*"));
    let headers = plain.fold(map(), |all, (name, value)| all.with(name, text(value)));
    if !headers.is_empty() {
        whole.insert("headers", headers);
    }
    let node = map().with("name", text(name));
    let (matches, _) = accepted::widest(whole);
    let node = if matches.is_empty() { node } else { node.with("match", matches) };
    sourced(field, node.with("respond", map().with("status", text(503))))
}

/// What a prefix of Kong matches and a path of the gateway does not, `/adminx` for `/admin`, if a route after it that matches it has not
/// all plugins that restrict this one.
fn beyond<'a>(
    candidate: &Candidate<'_, 'a>,
    later: &[Candidate<'_, 'a>],
    entities: &Entities<'a>,
) -> Option<(Node, &'a Field)> {
    let (path @ Path::Prefix(prefix), written) = candidate.path.as_ref()? else { return None };
    if prefix.ends_with('/') || candidate.lost.is_some() {
        return None;
    }
    let own = scope::restricting(entities, candidate.route);
    let less = |other: &&Candidate<'_, 'a>| {
        let matches = match &other.path {
            Some((Path::Prefix(other), _)) => {
                let longer = other.strip_prefix(prefix.as_str());
                other != prefix && prefix.starts_with(other.as_str())
                    || longer.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
            }
            Some((Path::Regex(_), _)) | None => true,
        };
        matches && other.lost.is_none() && {
            let others = scope::restricting(entities, other.route);
            own.iter().any(|plugin| !others.contains(plugin))
                || requires_key(entities, candidate.route) && !requires_key(entities, other.route)
        }
    };
    later.iter().find(less)?;
    path.longer().map(|node| (node, *written))
}

/// The `match` of a route.
fn place<'a>(candidate: &Candidate<'_, 'a>, marks: &mut Marks) -> Result<Node, Lost<'a>> {
    let Candidate { route, path, headers, .. } = candidate;
    let field = route.field;
    let mut place = map();
    if let Some(hosts) = field.get("hosts") {
        let found: Result<Vec<_>, _> = hosts.texts().into_iter().map(host).collect();
        place.insert("host", list(found.map_err(|why| (hosts, why))?));
        marks.converted(hosts.number, "match.host");
    }
    if let Some((path, written)) = path
        && let Some(node) = path.node().map_err(|why| (*written, why))?
    {
        place.insert("path", node);
    }
    if let Some(methods) = field.get("methods") {
        place.insert("methods", list(methods.texts().iter().map(text)));
        marks.converted(methods.number, "match.methods");
    }
    if !headers.is_empty() {
        place.insert("headers", headers.iter().fold(map(), |all, (name, value)| all.with(name, text(value))));
    }
    if !place.is_empty() {
        accepted::matches(&place).map_err(|why| (field, why))?;
    }
    Ok(place)
}

/// The fields of a route behind its `match`.
fn action<'a>(
    candidate: &Candidate<'_, 'a>,
    entities: &Entities<'a>,
    sections: &mut Sections<'a>,
    marks: &mut Marks,
) -> Result<Vec<(String, Node)>, Lost<'a>> {
    let route = candidate.route;
    let mut fields: Vec<(String, Node)> = Vec::new();
    protocols(route.field, marks);
    let ends = scope::plugin(entities, "request-termination", route, None);
    if let Some(plugin) = ends {
        let config = plugin.field.get("config");
        let value = |word: &str| config.and_then(|config| config.text_of(word));
        let mut respond = map().with("status", text(value("status_code").unwrap_or("503")));
        if let Some(body) = value("body") {
            respond.insert("body", text(body));
            respond.insert(
                "content_type",
                text(value("content_type").unwrap_or("application/json; charset=utf-8")),
            );
        } else if let Some(message) = value("message") {
            respond.insert("body", text(format!("{{\"message\":\"{}\"}}", message.replace('"', "\\\""))));
            respond.insert("content_type", text("application/json; charset=utf-8"));
        }
        accepted::field(None, "respond", &respond).map_err(|why| (plugin.field, why))?;
        let (outcome, how) = match config.and_then(|config| config.get("trigger")) {
            None => (Outcome::Converted, "respond"),
            Some(_) => (
                Outcome::Approximated,
                "respond, to all requests; Kong answers only those that have the header or query parameter of `trigger`, and forwards the others",
            ),
        };
        marks.all(plugin.field, outcome, how);
        fields.push(("respond".to_owned(), respond.source(&plugin.field.source)));
    } else if let Some(number) = route.service {
        let service = &entities.services[number];
        marks.converted(service.field.number, "an upstream");
        let target = Target::of(service).map_err(|why| (service.field, why))?;
        let name =
            sections.upstreams.used(service, number, &target, marks).map_err(|why| (service.field, why))?;
        fields.push(("upstream".to_owned(), sourced(service.field, text(name))));
        let strips = route.field.text_of("strip_path") != Some("false");
        if let Some(field) = route.field.get("strip_path") {
            marks.converted(field.number, "strip_prefix or rewrite");
        }
        let base = target.path.trim_end_matches('/');
        let change = match &candidate.path {
            Some((path, _)) => path.change(base, strips),
            None => Path::Prefix("/".to_owned()).change(base, false),
        };
        if let Some((field, value)) = change {
            let place = candidate.path.as_ref().and_then(|(path, _)| path.node().ok().flatten());
            accepted::field(place, field, &value).map_err(|why| (route.field, why))?;
            fields.push((field.to_owned(), value));
        }
        let keeps_host = route.field.is_true("preserve_host");
        if let Some(field) = route.field.get("preserve_host") {
            marks.converted(field.number, "Host is forwarded, or set by request_headers");
        }
        match sections.upstreams.host_of(&target).filter(|_| !keeps_host) {
            Some(host) => {
                marks.report.note("without preserve_host Kong sends the host of the service as Host, and so do these routes (request_headers.set.Host). Remove that line where the server should see the client's Host");
                let changes = map().with("set", map().with("Host", text(host)));
                accepted::field(None, "request_headers", &changes).map_err(|why| (service.field, why))?;
                fields.push(("request_headers".to_owned(), changes));
            }
            None if !keeps_host => marks.report.note("Kong sends the address of the target as Host, unless the upstream has host_header; here the servers of such upstreams get the client's Host"),
            None => {}
        }
    } else {
        fields.push(("respond".to_owned(), map().with("status", text(503)).comment("no service")));
    }
    sections.access.fields(entities, route, &mut fields, marks);
    if ends.is_some() {
        fields.retain(|(name, _)| !matches!(name.as_str(), "request_headers" | "rewrite" | "strip_prefix"));
    }
    let (by_key, required) = sections.access.by_key(entities, route);
    let applied = sections.limits.apply(entities, route, by_key, required, marks);
    if let Some((field, why)) = applied.lost {
        sections.access.deny(field, &why, &mut fields, marks);
    }
    if !applied.names.is_empty() {
        fields.push(("limits".to_owned(), list(applied.names)));
        if applied.hides_headers {
            fields.push(("headers".to_owned(), list([])));
        }
        if let Some(reject) = applied.reject {
            fields.push(("reject".to_owned(), reject));
        }
    }
    for plugin in applying(entities, route) {
        known::say(plugin.field, plugin.name, marks);
    }
    Ok(fields)
}

/// `protocols`, and what is redirected.
fn protocols(route: &Field, marks: &mut Marks) {
    if let Some(field) = route.get("protocols") {
        let texts = field.texts();
        let known = texts.iter().all(|word| ["http", "https", "grpc", "grpcs"].contains(word));
        match (known, texts.as_slice()) {
            (true, ["https"]) => marks.approximated(field.number, "the route answers on every listener; to accept TLS only, give it `listener: NAME` of one with tls, and a redirect for the other"),
            (true, _) => marks.converted(field.number, "HTTP/1.1 and HTTP/2 on every listener"),
            (false, _) => marks.unsupported(field.number, "the gateway forwards HTTP only"),
        }
    }
    if let Some(field) = route.get("https_redirect_status_code") {
        marks.unsupported(
            field.number,
            "write a route with `redirect: \"https://{host}{path}\"` for the listener without TLS",
        );
    }
    if let Some(field) = route.get("path_handling") {
        match field.text() {
            Some("v1") => marks.approximated(
                field.number,
                "the paths of service and request are joined by one slash, as with v0",
            ),
            _ => marks.converted(field.number, "the path of the service comes first"),
        }
    }
}
