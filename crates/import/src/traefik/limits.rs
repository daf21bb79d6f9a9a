//! Middlewares that limit: `rateLimit` and `inFlightReq`.

use super::context::{Context, texts};
use crate::fields::Field;
use crate::report::Outcome;
use crate::sections::Route;
use crate::units::{milliseconds, rate};
use crate::yaml::{Node, map, text};

/// Adds the limit of a `rateLimit` to a route.
pub(super) fn rate_limit(field: &Field, name: &str, route: &mut Route, cx: &mut Context<'_>) {
    let number = |key: &str| field.text_of(key).and_then(|value| value.parse::<u64>().ok());
    let average = number("average").unwrap_or(0);
    let period =
        field.text_of("period").map_or(Some(1000), |value| milliseconds(value, 1000)).filter(|ms| *ms > 0);
    let key = key(field, "ip", cx);
    if average == 0 {
        cx.marks.all(field, Outcome::Ignored, "average 0 is no limit in Traefik");
        return;
    }
    let Some(period) = period else {
        cx.marks.unsupported(field.number, "left out: its period is not a time");
        return;
    };
    let burst = number("burst").unwrap_or(1).max(1);
    let rate = rate(average, period);
    let node = map()
        .with("key", text(key))
        .with("rate", text(&rate))
        .with("burst", text(burst))
        .source(&field.source);
    let shared = field.get("redis");
    if let Some(redis) = shared {
        cx.marks.all(
            redis,
            Outcome::Unsupported,
            "write the address of Redis to store.redis.url; the limit is shared then",
        );
    }
    cx.limits = true;
    match cx.sections.limit(name, node) {
        Ok(limit) => {
            for key in ["average", "period", "burst"] {
                if let Some(field) = field.get(key) {
                    cx.marks.converted(field.number, format!("limit {limit}: {rate}, burst {burst}"));
                }
            }
            route.limits.push(text(limit).source(&field.source));
        }
        Err(message) => cx.marks.unsupported(field.number, format!("left out: {message}")),
    }
}

/// Adds the limit of an `inFlightReq` to a route.
pub(super) fn in_flight(field: &Field, name: &str, route: &mut Route, cx: &mut Context<'_>) {
    let key = key(field, "host", cx);
    let amount = field.text_of("amount").unwrap_or("0");
    let node = map().with("key", text(key)).with("algorithm", text("concurrency")).with("max", text(amount));
    match cx.sections.limit(name, node.source(&field.source)) {
        Ok(limit) => {
            if let Some(field) = field.get("amount") {
                cx.marks.converted(field.number, format!("limit {limit}: requests in flight"));
            }
            route.limits.push(text(limit).source(&field.source));
        }
        Err(message) => cx.marks.unsupported(field.number, format!("left out: {message}")),
    }
}

/// The key of a limit: what `sourceCriterion` says, or the default of the middleware.
fn key(field: &Field, default: &str, cx: &mut Context<'_>) -> String {
    let Some(criterion) = field.get("sourceCriterion") else { return default.to_owned() };
    if let Some(header) = criterion.get("requestHeaderName") {
        cx.marks.converted(header.number, "key: header:NAME; requests without it are counted together");
        return format!("header:{}", header.text().unwrap_or_default());
    }
    if let Some(host) = criterion.get("requestHost") {
        cx.marks.converted(host.number, "key: host, if it is true");
        if host.text() == Some("true") {
            return "host".to_owned();
        }
    }
    match criterion.get("ipStrategy") {
        Some(strategy) => {
            ip_strategy(strategy, cx);
            "ip".to_owned()
        }
        None => default.to_owned(),
    }
}

/// How a client is found. The gateway finds clients in one way, that of the first middleware that says one.
pub(super) fn ip_strategy(strategy: &Field, cx: &mut Context<'_>) {
    let mut wanted = map();
    let mut said = Vec::new();
    for (key, field) in strategy.entries() {
        match (key.as_str(), field.text()) {
            ("depth", Some("0")) => cx.marks.ignored(field.number, "0 is the address of the connection"),
            // Without known proxies every client could choose its address, and with it pass a list.
            ("depth", Some(_)) if !cx.trusts_proxies => cx.marks.unsupported(
                field.number,
                "clients are the peers of connections until the networks of the proxies are in client_ip.trusted_proxies; the \
                 entry points in the input trust none",
            ),
            ("depth", Some(depth)) => {
                wanted.insert("depth", text(depth).source(&field.source));
                said.push((field, "client_ip.depth, for all limits and lists"));
            }
            ("excludedIPs", _) => {
                wanted.insert("trusted_proxies", texts(field));
                said.push((field, "client_ip.trusted_proxies: the client is the last address that is not among them; the peer must be, too"));
            }
            ("ipv6Subnet", Some(bits)) => {
                wanted.insert("ipv6_prefix", text(bits).source(&field.source));
                said.push((field, "client_ip.ipv6_prefix"));
            }
            _ => {}
        }
    }
    if wanted.is_empty() {
        return;
    }
    let same = |known: &Node| known.clone().plain() == wanted.clone().plain();
    let first = cx.client_ip.as_ref().is_none_or(same);
    for (field, text) in said {
        match first {
            true => cx.marks.approximated(field.number, text),
            false => cx.marks.approximated(
                field.number,
                "the gateway has one client_ip, that of another middleware, for all limits",
            ),
        }
    }
    cx.client_ip.get_or_insert(wanted);
}
