//! Services, and upstreams with their targets.

use super::entities::{Entities, Service, sourced};
use crate::accepted;
use crate::fields::Field;
use crate::marks::Marks;
use crate::names::{name, unused};
use crate::report::Outcome;
use crate::yaml::{Node, boolean, list, map, text};

/// All upstreams of a file.
pub(super) struct Upstreams<'a> {
    balancers: Vec<&'a Field>,
    used: Vec<&'a str>,
    found: Vec<(usize, String, Node)>,
}

/// Where a service is.
pub(super) struct Target {
    scheme: String,
    host: String,
    port: Option<u16>,
    /// Its path, without a slash at the end.
    pub(super) path: String,
}

impl Target {
    /// The target of `url`, or of `protocol`, `host`, `port` and `path`.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn of(service: &Service<'_>) -> Result<Self, String> {
        let field = service.field;
        let target = match field.text_of("url") {
            Some(url) => {
                let (scheme, rest) = url.split_once("://").ok_or_else(|| format!("`{url}` is not a URL"))?;
                let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
                let (host, port) = match authority.rsplit_once(':') {
                    Some((host, port)) => {
                        (host, Some(port.parse().map_err(|_| format!("`{port}` is not a port"))?))
                    }
                    None => (authority, None),
                };
                Self { scheme: scheme.to_owned(), host: host.to_owned(), port, path: path.to_owned() }
            }
            None => Self {
                scheme: field.text_of("protocol").unwrap_or("http").to_owned(),
                host: field.text_of("host").ok_or("it has neither `url` nor `host`")?.to_owned(),
                port: field.text_of("port").and_then(|port| port.parse().ok()),
                path: field.text_of("path").unwrap_or_default().to_owned(),
            },
        };
        match target.scheme.as_str() {
            "http" | "https" | "grpc" | "grpcs" => Ok(target),
            other => Err(format!("the gateway does not forward to {other}")),
        }
    }

    fn tls(&self) -> bool {
        matches!(self.scheme.as_str(), "https" | "grpcs")
    }

    /// The Host that Kong sends without `preserve_host`.
    pub(super) fn authority(&self) -> String {
        let usual = if self.tls() { 443 } else { 80 };
        match self.port {
            Some(port) if port != usual => format!("{}:{port}", self.host),
            _ => self.host.clone(),
        }
    }
}

impl<'a> Upstreams<'a> {
    pub(super) fn of(entities: &Entities<'a>) -> Self {
        Self { balancers: entities.upstreams.clone(), used: Vec::new(), found: Vec::new() }
    }

    /// The Host that Kong sends to a service without `preserve_host`; `None` if it depends on the target.
    pub(super) fn host_of(&self, target: &Target) -> Option<String> {
        let Some(balancer) =
            self.balancers.iter().find(|field| field.text_of("name") == Some(target.host.as_str()))
        else {
            return Some(target.authority());
        };
        let only = || match balancer.get("targets").map(Field::items) {
            Some([one]) => one.text_of("target").map(str::to_owned),
            _ => None,
        };
        balancer.text_of("host_header").map(str::to_owned).or_else(only)
    }

    /// The name of the upstream of a service.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn used(
        &mut self,
        service: &Service<'a>,
        number: usize,
        target: &Target,
        marks: &mut Marks,
    ) -> Result<String, String> {
        if let Some((_, name, _)) = self.found.iter().find(|(known, ..)| *known == number) {
            return Ok(name.clone());
        }
        let field = service.field;
        let balancer =
            self.balancers.iter().copied().find(|field| field.text_of("name") == Some(target.host.as_str()));
        let scheme = if target.tls() { "https" } else { "http" };
        let mut servers = Vec::new();
        let mut node = map();
        match balancer {
            Some(balancer) => {
                self.used.push(balancer.text_of("name").unwrap_or_default());
                servers.extend(targets(balancer, scheme, marks));
            }
            None => {
                let port = target.port.unwrap_or(if field.get("url").is_some() && !target.tls() {
                    80
                } else if target.tls() {
                    443
                } else {
                    80
                });
                let source = field.get("url").or_else(|| field.get("host")).unwrap_or(field);
                servers.push(sourced(source, text(format!("{scheme}://{}:{port}", target.host))));
            }
        }
        if servers.is_empty() {
            return Err("its upstream has no target".to_owned());
        }
        let servers = list(servers).block();
        accepted::upstream_field("servers", &servers.clone(), false)?;
        node.insert("servers", servers);
        if let Some(balancer) = balancer {
            balancing(balancer, &mut node, marks);
        }
        if target.scheme.starts_with("grpc") {
            node.insert("protocol", text("http2"));
        }
        if target.tls() && field.text_of("tls_verify") != Some("true") {
            node.insert("tls", map().with("verify", boolean(false)).comment("the default of Kong"));
            marks.report.note("Kong does not verify certificates of services unless tls_verify is true, and so do these upstreams: remove `verify: false` where the certificates are good");
        }
        for word in ["url", "protocol", "host", "port", "path", "name"] {
            if let Some(field) = field.get(word) {
                marks.converted(field.number, format!("upstream {}", service.short()));
            }
        }
        node.insert("timeouts", timeouts(field, marks));
        let name = unused(&name(&service.name), &|name| self.found.iter().any(|(_, known, _)| known == name));
        self.found.push((number, name.clone(), sourced(field, node)));
        Ok(name)
    }

    /// The section `upstreams`.
    pub(super) fn finish(self, marks: &mut Marks) -> Node {
        for balancer in &self.balancers {
            if !self.used.contains(&balancer.text_of("name").unwrap_or_default()) {
                marks.ignored(balancer.number, "no service of a route has this host");
            }
        }
        self.found.into_iter().fold(map(), |section, (_, name, node)| section.with(name, node)).block()
    }
}

fn targets(balancer: &Field, scheme: &str, marks: &mut Marks) -> Vec<Node> {
    let items = balancer.get("targets").map_or(&[] as &[Field], Field::items);
    let weight =
        |field: &Field| field.text_of("weight").and_then(|weight| weight.parse::<u64>().ok()).unwrap_or(100);
    let common = items.iter().map(weight).fold(0, divisor).max(1);
    let most = items.iter().map(weight).max().unwrap_or(1) / common;
    let scale = most.div_ceil(1000).max(1);
    let mut out = Vec::new();
    let mut addresses: Vec<&str> = Vec::new();
    for item in items {
        let Some(target) = item.get("target") else { continue };
        let address = target.text().unwrap_or_default();
        let weight = weight(item);
        if weight == 0 {
            marks.all(item, Outcome::Ignored, "weight 0: it gets no requests");
            continue;
        }
        if addresses.contains(&address) {
            marks.all(
                item,
                Outcome::Approximated,
                "left out: another target has this address; raise the weight of that one",
            );
            continue;
        }
        addresses.push(address);
        let url = format!("{scheme}://{}{}", address, if address.contains(':') { "" } else { ":8000" });
        let share = (weight / common / scale).max(1);
        let node =
            if share == 1 { text(url) } else { map().with("url", text(url)).with("weight", text(share)) };
        match accepted::upstream_field("servers", &list([node.clone()]), false) {
            Ok(()) => {
                marks.all(item, Outcome::Converted, "a server of its upstream");
                out.push(sourced(target, node));
            }
            Err(why) => marks.all(item, Outcome::Unsupported, &format!("left out: {why}")),
        }
    }
    out
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// `balance` and `health` of an upstream of Kong.
fn balancing(balancer: &Field, node: &mut Node, marks: &mut Marks) {
    for word in ["name", "host_header"] {
        if let Some(field) = balancer.get(word) {
            marks.converted(field.number, "servers of the upstreams with this host");
        }
    }
    let algorithm = balancer.get("algorithm");
    let balance = match algorithm.and_then(Field::text) {
        None | Some("round-robin") => None,
        Some("least-connections") => Some(text("least_requests")),
        Some("consistent-hashing") => hash(balancer).map(|key| map().with("hash", text(key))),
        Some("latency") => Some(text("least_requests")),
        Some(_) => None,
    };
    if let Some(field) = algorithm {
        match field.text() {
            Some("latency") => marks.approximated(field.number, "balance: least_requests"),
            Some("consistent-hashing") if balance.is_none() => marks
                .unsupported(field.number, "it hashes by something that has no key: `balance: {hash: KEY}`"),
            _ => marks.converted(field.number, "balance"),
        }
    }
    for word in [
        "hash_on",
        "hash_on_header",
        "hash_on_cookie",
        "hash_on_query_arg",
        "hash_fallback",
        "hash_fallback_header",
        "hash_on_cookie_path",
        "slots",
    ] {
        if let Some(field) = balancer.get(word) {
            match word {
                "slots" => marks.ignored(field.number, "a hash needs no slots"),
                _ if balance.is_some() => marks.converted(field.number, "balance: {hash: …}"),
                _ => marks.ignored(field.number, "the algorithm does not hash"),
            }
        }
    }
    if let Some(balance) =
        balance.filter(|balance| accepted::upstream_field("balance", balance, false).is_ok())
    {
        node.insert("balance", balance);
    }
    if let Some(active) = balancer.at(&["healthchecks", "active"]) {
        let interval = active.at(&["healthy", "interval"]).and_then(Field::text).filter(|text| *text != "0");
        let failures = ["http_failures", "tcp_failures", "timeouts"]
            .iter()
            .find_map(|word| active.at(&["unhealthy", word])?.text());
        match interval {
            None => marks.all(active, Outcome::Ignored, "its interval is 0: it is off"),
            Some(interval) => {
                let mut health = map()
                    .with("path", text(active.text_of("http_path").unwrap_or("/")))
                    .with("every", text(format!("{interval}s")));
                for (word, value) in [
                    ("healthy", active.at(&["healthy", "successes"]).and_then(Field::text)),
                    ("unhealthy", failures),
                ] {
                    if let Some(value) = value.filter(|value| *value != "0") {
                        health.insert(word, text(value));
                    }
                }
                if let Some(statuses) = active.at(&["healthy", "http_statuses"]) {
                    health.insert("status", list(statuses.texts().iter().map(text)));
                }
                match accepted::upstream_field("health", &health, false) {
                    Ok(()) => {
                        node.insert("health", health.source(&active.source));
                        marks.all(active, Outcome::Converted, "health");
                    }
                    Err(why) => marks.all(active, Outcome::Unsupported, &why),
                }
            }
        }
    }
    if let Some(passive) = balancer.at(&["healthchecks", "passive"]) {
        marks.all(
            passive,
            Outcome::Approximated,
            "`ejection` of the upstream: after 5 failures in a row, unless it says otherwise",
        );
    }
}

/// The key of consistent hashing.
fn hash(balancer: &Field) -> Option<String> {
    let value = |word: &str| balancer.text_of(word).unwrap_or_default().to_owned();
    Some(match balancer.text_of("hash_on")? {
        "ip" => "ip".to_owned(),
        "path" => "path".to_owned(),
        "header" => format!("header:{} | ip", value("hash_on_header")),
        "cookie" => format!("cookie:{} | ip", value("hash_on_cookie")),
        "query_arg" => format!("query:{} | ip", value("hash_on_query_arg")),
        "consumer" => "ip".to_owned(),
        _ => return None,
    })
}

/// Kong waits for 60 seconds unless the service says otherwise.
fn timeouts(service: &Field, marks: &mut Marks) -> Node {
    let mut node = map();
    let of = |word: &str| {
        service.text_of(word).and_then(|text| text.parse::<u64>().ok()).filter(|ms| *ms > 0).unwrap_or(60_000)
    };
    let shown = |ms: u64| if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") };
    for (word, fields) in
        [("connect_timeout", ["connect", "connect"]), ("read_timeout", ["response", "idle"])]
    {
        for field in fields {
            let value = text(shown(of(word)));
            match accepted::upstream_field("timeouts", &map().with(field, value.clone()), false) {
                Ok(()) => {
                    node.insert(field, value);
                    if let Some(field) = service.get(word) {
                        marks.converted(field.number, "timeouts of its upstream");
                    }
                }
                Err(why) => {
                    if let Some(field) = service.get(word) {
                        marks.unsupported(field.number, why);
                    }
                }
            }
        }
    }
    node
}
