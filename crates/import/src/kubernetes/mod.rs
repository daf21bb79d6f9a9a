//! Ingresses of ingress-nginx and HTTPRoutes of the Gateway API.
//!
//! `objects` finds the objects of the documents, `backend` makes upstreams of services, `annotations` and `ingress` convert
//! ingresses, `http_route` and `filters` HTTPRoutes, `candidates` puts their routes in order, `context` has what an import knows, `known` explains the rest.

mod annotations;
mod backend;
mod candidates;
mod context;
mod filters;
mod http_route;
mod ingress;
mod known;
mod objects;

use self::backend::Backends;
use self::candidates::Candidates;
use self::context::{Context, certificate_of};
use self::objects::{Object, objects};
use crate::fields::{Field, Fields, Value, report};
use crate::marks::Marks;
use crate::names::name as valid;
use crate::report::{Imported, Source};
use crate::sections::Sections;
use crate::yaml::{Node, list, map, text};

/// Converts manifests, with the names of their files.
///
/// # Errors
/// The first mistake of a file, with its line and a caret; or that there is no Ingress and no HTTPRoute.
pub fn import(path: &str, files: &[(String, String)]) -> Result<Imported, String> {
    let mut fields = Fields::default();
    let mut documents = Vec::new();
    for (file, text) in files {
        documents.extend(fields.read(file, text)?);
    }
    documents.iter_mut().for_each(conceal);
    let found = objects(&documents);
    let of = |kind: &str| found.iter().filter(|object| object.kind == kind).collect::<Vec<_>>();
    let (ingresses, routes, gateways) = (of("Ingress"), of("HTTPRoute"), of("Gateway"));
    if ingresses.is_empty() && routes.is_empty() {
        return Err(format!(
            "{path}: there is no Ingress and no HTTPRoute in it\n  help: write them to a file with kubectl get ingress,httproute,gateway,service -A -o yaml\n"
        ));
    }
    let mut cx = Context {
        marks: Marks::default(),
        sections: Sections::default(),
        backends: Backends::of(&of("Service")),
        candidates: Candidates::default(),
        certificates: Vec::new(),
    };
    for object in &found {
        known::object(object, &mut cx.marks);
    }
    ingresses.iter().for_each(|object| ingress::convert(object, &mut cx));
    routes.iter().for_each(|object| http_route::convert(object, &gateways, &mut cx));
    let listeners = listen(&gateways, &mut cx);
    if !ingresses.is_empty() {
        let size = text("1MiB").comment("the default of ingress-nginx");
        cx.sections.top("max_body", size)?;
        ingress::notes(&mut cx.marks);
    }
    cx.candidates.add(&listeners, &mut cx.sections, &mut cx.marks);
    let yaml = cx.sections.finish("kubernetes", path);
    let report = report(cx.marks, &documents, &known::rest);
    Ok(Imported { yaml, report })
}

/// Keeps the values of secrets out of the report.
fn conceal(document: &mut Field) {
    if document.text_of("kind") == Some("Secret") {
        document.conceal();
    } else if let Value::Map(entries) = &mut document.value
        && let Some((_, items)) = entries.iter_mut().find(|(key, _)| key == "items")
        && let Value::List(items) = &mut items.value
    {
        items.iter_mut().for_each(conceal);
    }
}

/// Adds the listeners, those of the gateways, or those of ingress-nginx, and returns their names.
fn listen(gateways: &[&Object<'_>], cx: &mut Context<'_>) -> Vec<String> {
    let mut addresses: Vec<(u16, bool, Option<Source>)> = Vec::new();
    for gateway in gateways {
        let listeners = gateway.field.at(&["spec", "listeners"]).map(Field::items).unwrap_or_default();
        for listener in listeners {
            let protocol = listener.text_of("protocol").unwrap_or("HTTP");
            let Some(port) = listener.text_of("port").and_then(|port| port.parse().ok()) else { continue };
            if !matches!(protocol, "HTTP" | "HTTPS") {
                cx.marks.unsupported(
                    listener.number,
                    format!("the gateway serves HTTP and HTTPS, not {protocol}"),
                );
                continue;
            }
            let tls = protocol == "HTTPS";
            for name in ["name", "port", "protocol"] {
                if let Some(field) = listener.get(name) {
                    cx.marks.converted(field.number, format!("listen: 0.0.0.0:{port}"));
                }
            }
            for certificate in listener.at(&["tls", "certificateRefs"]).map(Field::items).unwrap_or_default()
            {
                if let Some(name) = certificate.get("name") {
                    certificate_of(name, cx);
                }
            }
            if let Some(mode) = listener.at(&["tls", "mode"]) {
                match mode.text() {
                    Some("Terminate") => cx.marks.converted(mode.number, "the listener ends TLS"),
                    _ => {
                        cx.marks.unsupported(mode.number, "the gateway ends TLS itself; it passes no TLS on")
                    }
                }
            }
            if !addresses.iter().any(|(known, _, _)| *known == port) {
                addresses.push((port, tls, Some(listener.source.clone())));
            }
        }
    }
    if addresses.is_empty() {
        addresses.push((80, false, None));
        if !cx.certificates.is_empty() {
            addresses.push((443, true, None));
        }
    }
    let mut names = Vec::new();
    let (mut plain, mut secure) = (0, 0);
    for (port, tls, source) in addresses {
        let count = if tls { &mut secure } else { &mut plain };
        *count += 1;
        let kind = if tls { "https" } else { "http" };
        let name = if *count == 1 { kind.to_owned() } else { format!("{kind}-{port}") };
        let node = map().with("name", text(&name)).with("address", text(format!("0.0.0.0:{port}")));
        let node =
            if tls { node.with("tls", map().with("certificates", certificates(cx)).block()) } else { node };
        cx.sections.listen.push(match source {
            Some(source) => node.source(&source),
            None => node,
        });
        names.push(name);
    }
    names
}

fn certificates(cx: &Context<'_>) -> Node {
    let mut names = cx.certificates.clone();
    if names.is_empty() {
        names.push(("default".to_owned(), Source { file: "no secret is named".to_owned(), line: 0 }));
    }
    let pair = |(name, source): (String, Source)| {
        let name = valid(&name);
        let node =
            map().with("cert", text(format!("tls/{name}.pem"))).with("key", text(format!("tls/{name}.key")));
        if source.line == 0 { node } else { node.source(&source) }
    };
    list(names.into_iter().map(pair))
}
