//! The dynamic configuration of Traefik in YAML, with the entry points of the static one.
//!
//! `entry_points` has the listeners, `rule` the matches, `service` the upstreams, `limits`, `headers` and `middleware` what middlewares
//! do, `router` the routes, `known` explains the rest.

mod context;
mod entry_points;
mod headers;
mod known;
mod limits;
mod middleware;
mod router;
mod rule;
mod service;

use std::collections::HashMap;

use self::context::Context;
use self::entry_points::EntryPoints;
use crate::fields::{Field, Fields, Value, report};
use crate::marks::Marks;
use crate::report::{Imported, Outcome};
use crate::sections::Sections;
use crate::yaml::{Node, map, text};

/// Converts files of Traefik, with their names.
///
/// # Errors
/// The first mistake of a file, with its line and a caret; or that there is no router.
pub fn import(path: &str, files: &[(String, String)]) -> Result<Imported, String> {
    let mut fields = Fields::default();
    let mut documents = Vec::new();
    for (file, text) in files {
        documents.extend(fields.read(file, text)?);
    }
    documents.iter_mut().for_each(|document| conceal(document, false));
    let routers = section(&documents, "routers");
    if routers.is_empty() {
        return Err(format!(
            "{path}: there are no `http.routers` in it\n  help: name the files of the file provider in YAML; labels and TOML have to be \
             written as YAML first\n"
        ));
    }
    let mut cx = Context {
        marks: Marks::default(),
        sections: Sections::default(),
        services: section(&documents, "services"),
        middlewares: section(&documents, "middlewares"),
        users: HashMap::new(),
        client_ip: None,
        used_services: Vec::new(),
        trusts_proxies: false,
        limits: false,
    };
    for (_, router) in &routers {
        let mut names = Vec::new();
        middleware::names(router, &cx.middlewares, 0, &mut names);
        names.sort_unstable();
        names.dedup();
        names.into_iter().for_each(|name| *cx.users.entry(name).or_default() += 1);
    }
    let entry_points = EntryPoints::of(&documents, &routers, &mut cx.marks);
    cx.trusts_proxies = entry_points.trusted().is_some();
    router::convert(&routers, &entry_points, &mut cx);
    let certificates = certificates(&documents, &mut cx.marks);
    cx.sections.listen = entry_points.listen(&certificates);
    let client_ip = client_ip(cx.client_ip.take(), entry_points.trusted());
    if !client_ip.is_empty()
        && let Err(message) = cx.sections.top("client_ip", client_ip)
    {
        cx.marks.report.note(format!("there is no client_ip: {message}"));
    }
    notes(&mut cx);
    let yaml = cx.sections.finish("traefik", path);
    let middlewares = cx.users.keys().map(|name| format!("http.middlewares.{name}."));
    let services = cx.used_services.iter().map(|name| format!("http.services.{name}."));
    let used: Vec<_> = middlewares.chain(services).collect();
    let report = report(cx.marks, &documents, &|field| known::rest(field, &used));
    Ok(Imported { yaml, report })
}

/// The entries of a section of `http`, in all files.
fn section<'a>(documents: &'a [Field], name: &str) -> Vec<(&'a str, &'a Field)> {
    let sections = documents.iter().filter_map(|document| document.at(&["http", name]));
    sections
        .flat_map(|section| section.entries().iter().map(|(name, field)| (name.as_str(), field)))
        .collect()
}

/// Keeps passwords out of the report.
fn conceal(field: &mut Field, secret: bool) {
    if secret {
        field.conceal();
    } else if let Value::Map(entries) = &mut field.value {
        entries.iter_mut().for_each(|(key, value)| {
            conceal(value, matches!(key.as_str(), "users" | "password" | "secret" | "token"))
        });
    }
}

/// The certificates of `tls`, the default one first.
fn certificates(documents: &[Field], marks: &mut Marks) -> Vec<Node> {
    let mut found = Vec::new();
    for document in documents {
        let default = document.at(&["tls", "stores", "default", "defaultCertificate"]);
        let others = document.at(&["tls", "certificates"]).map(Field::items).unwrap_or_default();
        for pair in default.into_iter().chain(others) {
            if let (Some(cert), Some(key)) = (pair.text_of("certFile"), pair.text_of("keyFile")) {
                marks.all(pair, Outcome::Converted, "certificates of the listeners with TLS");
                found.push(map().with("cert", text(cert)).with("key", text(key)).source(&pair.source));
            }
        }
    }
    found
}

fn client_ip(of_middlewares: Option<Node>, trusted: Option<Node>) -> Node {
    let node = of_middlewares.unwrap_or_else(map);
    let entries = node.into_entries();
    let has_proxies = entries.iter().any(|(key, _)| key == "trusted_proxies");
    let node = entries.into_iter().fold(map(), |node, (key, value)| node.with(key, value));
    match trusted {
        Some(trusted) if !has_proxies => node.with("trusted_proxies", trusted),
        _ => node,
    }
}

fn notes(cx: &mut Context<'_>) {
    if cx.limits {
        for note in [
            "Traefik forgets a rate limit after a pause of 2 s at rates of 1/s and more, and its bucket is full again. Here a bucket \
             refills at its rate only, so that pauses do not raise the rate",
            "a request above a rate that would be admitted within half of the time between two requests is held by Traefik until \
             then; here it is refused with Retry-After",
            "Traefik counts every IPv6 address apart unless ipv6Subnet is set. Here all addresses of one /64 are one client; \
             client_ip: {ipv6_prefix: 128} counts as Traefik does",
        ] {
            cx.marks.report.note(note);
        }
    }
}
