//! An HTTPRoute of the Gateway API.

use super::backend::{Target, upstream};
use super::candidates::Candidate;
use super::context::Context;
use super::filters;
use super::objects::Object;
use crate::fields::Field;
use crate::marks::Marks;
use crate::report::Outcome;
use crate::sections::Route;
use crate::units::{milliseconds, time};
use crate::yaml::{Node, map, text};

/// A match of a rule.
#[derive(Default)]
struct Matched {
    route: Route,
    exact: bool,
    length: usize,
    conditions: [usize; 3],
    /// The prefix, for filters that replace it.
    prefix: Option<String>,
}

pub(super) fn convert(object: &Object<'_>, gateways: &[&Object<'_>], cx: &mut Context<'_>) {
    let Some(spec) = object.field.get("spec") else {
        cx.marks.unsupported(object.field.number, "it has no `spec`");
        return;
    };
    let hosts = hosts(spec, gateways, &mut cx.marks);
    for rule in spec.get("rules").map(Field::items).unwrap_or_default() {
        let matches = rule.get("matches").map(Field::items).unwrap_or_default();
        let mut found = Vec::new();
        for one in matches {
            match matched(one, &mut cx.marks) {
                Ok(matched) => found.push(matched),
                Err((field, why)) => cx.marks.unsupported(
                    field,
                    format!("this match is left out, and its requests go to the rules after it: {why}"),
                ),
            }
        }
        if matches.is_empty() {
            found.push(Matched { length: 1, ..Matched::default() });
        }
        for matched in found {
            let route = rule_of(rule, object, &matched, cx);
            for host in &hosts {
                cx.candidates.0.push(Candidate {
                    host: host.clone(),
                    listener: None,
                    exact: matched.exact,
                    length: matched.length,
                    conditions: matched.conditions,
                    name: object.name.to_owned(),
                    route: route.clone(),
                    number: rule.number,
                });
            }
        }
    }
}

/// The hosts of a route; those of the listeners if it names none.
fn hosts(spec: &Field, gateways: &[&Object<'_>], marks: &mut Marks) -> Vec<Option<String>> {
    if let Some(names) = spec.get("hostnames") {
        marks.converted(
            names.number,
            "match.host; `*.` matches names of several labels, too, as in the Gateway API",
        );
        return names.texts().into_iter().map(|host| Some(host.to_owned())).collect();
    }
    let parents = spec.get("parentRefs").map(Field::items).unwrap_or_default();
    let mut hosts = Vec::new();
    for parent in parents {
        let gateway = gateways.iter().find(|gateway| Some(gateway.name) == parent.text_of("name"));
        let listeners =
            gateway.and_then(|gateway| gateway.field.at(&["spec", "listeners"])).map(Field::items);
        for listener in listeners.unwrap_or_default() {
            let wanted =
                parent.text_of("sectionName").is_none_or(|name| listener.text_of("name") == Some(name));
            if let (true, Some(host)) = (wanted, listener.get("hostname")) {
                marks.converted(host.number, "match.host of routes without hostnames");
                hosts.push(host.text().map(str::to_owned));
            } else if wanted {
                hosts.push(None);
            }
        }
    }
    hosts.sort();
    hosts.dedup();
    if hosts.is_empty() || hosts.contains(&None) { vec![None] } else { hosts }
}

fn matched(field: &Field, marks: &mut Marks) -> Result<Matched, (usize, String)> {
    let mut found = Matched { length: 1, ..Matched::default() };
    for (key, value) in field.entries() {
        match key.as_str() {
            "path" => path(value, &mut found, marks)?,
            "method" => {
                marks.converted(value.number, "match.methods");
                found.route.matches.push(("methods".to_owned(), text(value.text().unwrap_or_default())));
                found.conditions[0] = 1;
            }
            "headers" | "queryParams" => {
                let mut node = map();
                for item in value.items() {
                    let (name, wanted) =
                        (item.text_of("name").unwrap_or_default(), item.text_of("value").unwrap_or_default());
                    let is_regex = item.text_of("type") == Some("RegularExpression");
                    if is_regex && key == "headers" {
                        return Err((
                            item.number,
                            "match.headers has exact values, no expressions".to_owned(),
                        ));
                    }
                    marks.all(
                        item,
                        Outcome::Converted,
                        if key == "headers" { "match.headers" } else { "match.query" },
                    );
                    node.insert(
                        name,
                        if is_regex { map().with("regex", text(wanted)) } else { text(wanted) },
                    );
                }
                let (target, index) = if key == "headers" { ("headers", 1) } else { ("query", 2) };
                found.conditions[index] = value.items().len();
                found.route.matches.push((target.to_owned(), node));
            }
            _ => return Err((value.number, format!("the importer does not know the condition `{key}`"))),
        }
    }
    Ok(found)
}

fn path(field: &Field, found: &mut Matched, marks: &mut Marks) -> Result<(), (usize, String)> {
    let value = field.text_of("value").unwrap_or("/");
    let kind = field.text_of("type").unwrap_or("PathPrefix");
    let literal = value.replace('{', "%7B").replace('}', "%7D");
    marks.all(field, Outcome::Converted, "match.path");
    found.length = value.len();
    let node = match kind {
        "Exact" => {
            found.exact = true;
            text(literal)
        }
        "PathPrefix" => {
            let prefix = literal.trim_end_matches('/').to_owned();
            found.length = prefix.len().max(1);
            found.prefix = Some(prefix.clone());
            if prefix.is_empty() {
                return Ok(());
            }
            text(format!("{prefix}/*"))
        }
        "RegularExpression" => {
            if let Some(field) = field.get("value") {
                let said = "the expression must match the whole path here; implementations of the Gateway API differ";
                marks.approximated(field.number, said);
            }
            map().with("regex", text(value))
        }
        _ => return Err((field.number, format!("the importer does not know the type of path `{kind}`"))),
    };
    found.route.matches.push(("path".to_owned(), node));
    Ok(())
}

/// The route of a rule.
fn rule_of(rule: &Field, object: &Object<'_>, matched: &Matched, cx: &mut Context<'_>) -> Route {
    let mut route = matched.route.clone();
    route.source = Some(rule.source.clone());
    let mut upstream_fields = Vec::new();
    if let Some(field) = rule.at(&["timeouts", "request"]) {
        duration(field, "timeout", &mut cx.marks, |value| route.set("timeout", value));
    }
    if let Some(field) = rule.at(&["timeouts", "backendRequest"]) {
        duration(field, "timeouts.response of the upstream", &mut cx.marks, |value| {
            upstream_fields.push(("timeouts".to_owned(), map().with("response", value)));
        });
    }
    if let Some(field) = rule.at(&["retry", "attempts"]) {
        cx.marks.approximated(
            field.number,
            "retries of the upstream: after failed connections, not after statuses",
        );
        upstream_fields.push(("retries".to_owned(), text(field.text().unwrap_or_default())));
    }
    for filter in rule.get("filters").map(Field::items).unwrap_or_default() {
        if !filters::apply(filter, matched.prefix.as_deref(), &mut route, &mut cx.marks) {
            let text = "its requests are answered 503 until what the filter does is configured";
            cx.marks.unsupported(filter.number, text);
            return route.closed();
        }
    }
    if route.action.is_some() {
        for backend in rule.get("backendRefs").map(Field::items).unwrap_or_default() {
            for leaf in
                backend.leaves().into_iter().filter(|leaf| !cx.marks.has(leaf.number)).collect::<Vec<_>>()
            {
                cx.marks.ignored(leaf.number, "the requests of this rule are not forwarded");
            }
        }
        return route;
    }
    let targets = targets(rule, object, cx);
    if targets.is_empty() {
        cx.marks.approximated(rule.number, "no backend has requests: 500, as the Gateway API demands");
        route.respond(500);
        return route;
    }
    match upstream(&targets, "http", &upstream_fields, &mut cx.sections) {
        Ok(name) => route.forward(&name),
        Err(message) => {
            cx.marks.unsupported(rule.number, format!("its requests are answered 503: {message}"));
            return route.closed();
        }
    }
    route
}

/// The backends of a rule with their weights.
fn targets(rule: &Field, object: &Object<'_>, cx: &mut Context<'_>) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for backend in rule.get("backendRefs").map(Field::items).unwrap_or_default() {
        let kind = backend.text_of("kind").unwrap_or("Service");
        let Some(name) = backend.get("name").filter(|_| kind == "Service") else {
            cx.marks.unsupported(
                backend.number,
                format!("left out: the gateway forwards to services, not to {kind}"),
            );
            continue;
        };
        let namespace = backend.get("namespace");
        if let Some(field) = namespace {
            cx.marks.converted(field.number, "in the host of the server");
        }
        if let Some(filters) = backend.get("filters") {
            cx.marks.unsupported(filters.number, "a server has no filters of its own: use two routes");
        }
        let weight = backend.get("weight");
        let number = weight.and_then(Field::text).and_then(|weight| weight.parse::<u64>().ok()).unwrap_or(1);
        if number == 0 {
            cx.marks.all(backend, Outcome::Ignored, "a backend of weight 0 gets no requests");
            continue;
        }
        if let Some(field) = weight {
            match number <= 1000 {
                true => cx.marks.converted(field.number, "weight of the server"),
                false => cx.marks.approximated(field.number, "weight 1000, the highest"),
            }
        }
        let namespace = namespace.and_then(Field::text).unwrap_or(object.namespace);
        let target = cx.backends.target(name, namespace, backend.get("port"), &mut cx.marks);
        targets.extend(target.map(|mut target| {
            target.weight = number.min(1000);
            target
        }));
    }
    targets
}

fn duration(field: &Field, said: &str, marks: &mut Marks, set: impl FnOnce(Node)) {
    match field.text().and_then(|text| milliseconds(text, 1000)) {
        Some(0) => marks.approximated(field.number, "0s is no timeout; the gateway has its default"),
        Some(ms) => {
            marks.converted(field.number, said);
            set(text(time(ms)).source(&field.source));
        }
        None => marks.unsupported(field.number, "it is not a duration"),
    }
}
