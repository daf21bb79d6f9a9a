//! Services as upstreams.

use super::context::{Context, local};
use crate::fields::Field;
use crate::report::Outcome;
use crate::units::{milliseconds, time};
use crate::yaml::{Node, list, map, text};

/// The deepest nesting of weighted services.
const MAX_DEPTH: usize = 8;

/// What a service became.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) upstream: String,
    /// The Host header of its requests, if it is not that of the client.
    pub(super) host: Option<String>,
}

/// A service before it is an upstream.
#[derive(Clone, Default)]
struct Parts {
    servers: Vec<(String, u64)>,
    fields: Vec<(String, Node)>,
    host: Option<String>,
}

/// The upstream of a service; an error if it cannot be converted.
pub(super) fn service(name: &str, retries: Option<u64>, cx: &mut Context<'_>) -> Result<Service, String> {
    let mut parts = parts(name, 0, cx)?;
    if parts.servers.is_empty() {
        return Err(format!("service {name} has no servers"));
    }
    if let Some(retries) = retries {
        parts.fields.push(("retries".to_owned(), text(retries)));
    }
    let single = parts.servers.len() == 1;
    let server = |(url, weight): &(String, u64)| match (single, weight) {
        (true, _) | (false, 1) => text(url),
        (false, weight) => map().with("url", text(url)).with("weight", text(weight)),
    };
    let node = map().with("servers", list(parts.servers.iter().map(server)));
    let node = parts.fields.iter().fold(node, |node, (key, value)| node.with(key, value.clone()));
    let node = match cx.services.iter().find(|(known, _)| *known == name) {
        Some((_, field)) => node.source(&field.source),
        None => node,
    };
    let upstream = cx.sections.upstream(name, node)?;
    Ok(Service { upstream, host: parts.host })
}

fn parts(name: &str, depth: usize, cx: &mut Context<'_>) -> Result<Parts, String> {
    let found = cx.services.iter().find(|(known, _)| *known == name).map(|(_, field)| *field);
    let Some(field) = found else { return Err(format!("there is no service {name} in the input")) };
    cx.used_services.push(name.to_owned());
    if depth > MAX_DEPTH {
        return Err(format!("service {name} is nested too deeply, or contains itself"));
    }
    if let Some(balancer) = field.get("loadBalancer") {
        return balanced(name, balancer, cx);
    }
    if let Some(weighted) = field.get("weighted") {
        return weighted_parts(weighted, depth, cx);
    }
    for (kind, instead) in [("mirroring", "service"), ("failover", "service")] {
        let Some(inner) = field.get(kind) else { continue };
        let said = match kind {
            "mirroring" => "requests are not copied; those of the main service are forwarded",
            _ => "the fallback is not used: name its servers in the same upstream, with `health`",
        };
        for (_, other) in inner.entries().iter().filter(|(key, _)| key != instead) {
            cx.marks.all(other, Outcome::Unsupported, said);
        }
        let Some(main) = inner.get(instead) else {
            return Err(format!("service {name} has no main service"));
        };
        cx.marks.converted(main.number, "the upstream");
        return parts(local(main.text().unwrap_or_default()), depth + 1, cx);
    }
    Err(format!("service {name} has no loadBalancer"))
}

fn balanced(name: &str, balancer: &Field, cx: &mut Context<'_>) -> Result<Parts, String> {
    let mut found = Parts::default();
    let mut http2 = false;
    for server in balancer.get("servers").map(Field::items).unwrap_or_default() {
        let Some(url) = server.get("url") else {
            cx.marks.unsupported(server.number, "left out: it has no url");
            continue;
        };
        let written = url.text().unwrap_or_default();
        let (scheme, rest) = written.split_once("://").unwrap_or(("http", written));
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        http2 |= scheme == "h2c";
        let scheme = if scheme == "https" { "https" } else { "http" };
        match path.is_empty() {
            true => cx.marks.converted(url.number, format!("a server of upstream {name}")),
            false => cx
                .marks
                .approximated(url.number, "a server has no path: write rewrite: /PATH/{rest} on its routes"),
        }
        let weight = server.get("weight");
        let number = weight.and_then(Field::text).and_then(|weight| weight.parse().ok()).unwrap_or(1);
        if let Some(field) = weight {
            cx.marks.converted(field.number, "weight of the server");
        }
        if number > 0 {
            found.servers.push((format!("{scheme}://{host}"), number));
        }
    }
    if http2 {
        found.fields.push(("protocol".to_owned(), text("http2")));
    }
    if let Some(field) = balancer.get("passHostHeader") {
        cx.marks.converted(field.number, "the Host header of forwarded requests");
        if field.text() == Some("false") {
            let host = found.servers.first().and_then(|(url, _)| Some(url.split_once("://")?.1.to_owned()));
            found.host = host;
            if found.servers.len() > 1 {
                cx.marks.approximated(field.number, "Host is that of the first server for all servers");
            }
        }
    }
    health(balancer, &mut found, cx);
    if let Some(field) = balancer.get("sticky") {
        let said = "balance: {hash: ip}: the gateway sets no cookies; an address keeps its server";
        cx.marks.all(field, Outcome::Approximated, said);
        found.fields.push(("balance".to_owned(), map().with("hash", text("ip"))));
    }
    if let Some(field) = balancer.get("strategy") {
        match field.text() {
            Some("wrr") => cx.marks.converted(field.number, "round_robin, by weight"),
            Some("p2c") => {
                cx.marks
                    .converted(field.number, "balance: random: of two servers the one with fewer requests");
                found.fields.push(("balance".to_owned(), text("random")));
            }
            _ => {
                cx.marks.approximated(field.number, "balance: least_requests");
                found.fields.push(("balance".to_owned(), text("least_requests")));
            }
        }
    }
    if let Some(field) = balancer.get("serversTransport") {
        cx.marks
            .unsupported(field.number, "see tls and timeouts of upstreams: set them as this transport does");
    }
    if let Some(field) = balancer.get("responseForwarding") {
        cx.marks.all(field, Outcome::Ignored, "answers are forwarded as they arrive");
    }
    if let Some(field) = balancer.get("passiveHealthCheck") {
        cx.marks.all(
            field,
            Outcome::Approximated,
            "ejection, which is on: after 5 failures in a row, for 10 s and longer",
        );
    }
    Ok(found)
}

fn health(balancer: &Field, found: &mut Parts, cx: &mut Context<'_>) {
    let Some(check) = balancer.get("healthCheck") else { return };
    let mut health = map().with("path", text(check.text_of("path").unwrap_or("/")));
    // Traefik's default is 30 s and 5 s.
    for (name, field, default) in [("interval", "every", 30_000), ("timeout", "timeout", 5_000)] {
        let ms = check.text_of(name).and_then(|value| milliseconds(value, 1000)).unwrap_or(default);
        health.insert(field, text(time(ms)));
    }
    if let Some(host) = check.text_of("hostname") {
        health.insert("host", text(host));
    }
    if let Some(status) = check.text_of("status") {
        health.insert("status", text(status));
    } else {
        health.insert("status", text("200-399"));
    }
    for (key, field) in check.entries() {
        match key.as_str() {
            "path" | "interval" | "timeout" | "hostname" | "status" => {
                cx.marks.converted(field.number, "health of the upstream")
            }
            "method" if field.text() == Some("GET") => {
                cx.marks.converted(field.number, "health of the upstream")
            }
            _ => cx.marks.all(
                field,
                Outcome::Unsupported,
                "a health check is a GET of a path at the address of the server",
            ),
        }
    }
    found.fields.push(("health".to_owned(), health));
}

/// The servers of several services, with weights in the same proportion.
fn weighted_parts(weighted: &Field, depth: usize, cx: &mut Context<'_>) -> Result<Parts, String> {
    let mut all = Vec::new();
    for item in weighted.get("services").map(Field::items).unwrap_or_default() {
        let Some(name) = item.get("name") else { continue };
        let weight: u64 = item.text_of("weight").and_then(|weight| weight.parse().ok()).unwrap_or(1);
        if let Some(field) = item.get("weight") {
            cx.marks.converted(field.number, "in the weights of the servers");
        }
        cx.marks.converted(name.number, "its servers");
        if weight > 0 {
            all.push((weight, parts(local(name.text().unwrap_or_default()), depth + 1, cx)?));
        }
    }
    if let Some(field) = weighted.get("sticky") {
        cx.marks.all(
            field,
            Outcome::Unsupported,
            "the gateway sets no cookies: see balance: {hash: KEY} of upstreams",
        );
    }
    if let Some(field) = weighted.get("healthCheck") {
        cx.marks.all(field, Outcome::Ignored, "the servers have their own health checks");
    }
    let mut found = Parts::default();
    let sums: Vec<u64> =
        all.iter().map(|(_, parts)| parts.servers.iter().map(|(_, weight)| *weight).sum()).collect();
    let common = sums
        .iter()
        .filter(|sum| **sum > 0)
        .fold(1_u64, |product, sum| (product / gcd(product, *sum)).saturating_mul(*sum));
    for ((weight, parts), sum) in all.into_iter().zip(sums) {
        for (url, own) in parts.servers {
            found.servers.push((url, weight.saturating_mul(own).saturating_mul(common / sum.max(1))));
        }
        for (key, node) in parts.fields {
            if !found.fields.iter().any(|(known, _)| *known == key) {
                found.fields.push((key, node));
            }
        }
        found.host = found.host.or(parts.host);
    }
    let divisor = found.servers.iter().fold(0, |divisor, (_, weight)| gcd(divisor, *weight)).max(1);
    let highest = found.servers.iter().map(|(_, weight)| weight / divisor).max().unwrap_or(1);
    // A weight is at most 1000: larger ones keep their proportion as well as they can.
    let shrink = highest.div_ceil(1000).max(1);
    for (_, weight) in &mut found.servers {
        *weight = (*weight / divisor / shrink).max(1);
    }
    Ok(found)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
