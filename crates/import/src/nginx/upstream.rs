//! `upstream` blocks and the servers of `proxy_pass` and `grpc_pass`.

use super::context::{Context, Scope};
use super::parse::Directive;
use super::units::{flag, milliseconds, name, parameter, time, unused};
use crate::accepted;
use crate::report::Source;
use crate::yaml::{Node, boolean, list, map, text};

/// nginx waits this long for a connection and for an answer unless `proxy_connect_timeout` and `proxy_read_timeout` say otherwise.
const TIMEOUT: u64 = 60_000;

/// All upstreams that routes use.
#[derive(Default)]
pub(super) struct Upstreams<'a> {
    defined: Vec<&'a Directive>,
    used: Vec<Used>,
}

/// Where requests are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) tls: bool,
    pub(super) grpc: bool,
    /// A name of an `upstream` block, a host with or without a port, or `unix:PATH`.
    pub(super) address: String,
}

struct Used {
    target: Target,
    name: String,
    source: Source,
    retries: Option<Node>,
    tls: Option<Node>,
    connect: u64,
    read: u64,
}

impl<'a> Upstreams<'a> {
    pub(super) fn of(http: &Scope<'a>) -> Self {
        Self { defined: http.own("upstream"), used: Vec::new() }
    }

    /// The name of the upstream for a target with the TLS and the retries of this scope. Others have upstreams of their own.
    ///
    /// # Errors
    /// Why the gateway cannot forward to it.
    pub(super) fn used(
        &mut self,
        target: Target,
        source: &Source,
        scope: &Scope<'a>,
        cx: &mut Context,
    ) -> Result<String, String> {
        if !self.defined.iter().any(|block| block.arg(0) == target.address) {
            accepted::upstream_field("servers", &list([text(url(&target.address, &target))]), false)?;
        }
        let prefix = if target.grpc { "grpc" } else { "proxy" };
        let connect = timeout(scope, &format!("{prefix}_connect_timeout"), "timeouts.connect", cx);
        let connect = connect.unwrap_or(TIMEOUT);
        let read =
            timeout(scope, &format!("{prefix}_read_timeout"), "timeouts.response and timeouts.idle", cx);
        let read = read.unwrap_or(TIMEOUT);
        let (retries, tls) = (retries(scope, cx), tls(&target, scope, cx));
        let known = self
            .used
            .iter_mut()
            .find(|used| used.target == target && used.retries == retries && used.tls == tls);
        if let Some(used) = known {
            if (used.read, used.connect) != (read, connect) {
                cx.report.note(format!(
                    "routes to upstream {} have different timeouts in nginx; an upstream has one of each, the longest. The `timeout` of a \
                     route bounds its requests as a whole",
                    used.name
                ));
            }
            used.read = used.read.max(read);
            used.connect = used.connect.max(connect);
            return Ok(used.name.clone());
        }
        let wanted = name(&target.address);
        let name = unused(&wanted, &|name| self.used.iter().any(|used| used.name == name));
        if target.tls
            && scope.last(&format!("{prefix}_ssl_verify")).is_none_or(|verify| verify.arg(0) != "on")
        {
            cx.report.note(format!(
                "nginx does not verify the certificates of https servers unless proxy_ssl_verify is on, and neither does upstream {name} here \
                 (verify: false). Remove that line if they have valid certificates"
            ));
        }
        self.used.push(Used {
            target,
            name: name.clone(),
            source: source.clone(),
            retries,
            tls,
            connect,
            read,
        });
        Ok(name)
    }

    /// The section `upstreams`.
    pub(super) fn finish(self, cx: &mut Context) -> Node {
        let mut section = map();
        for used in &self.used {
            let block = self.defined.iter().find(|block| block.arg(0) == used.target.address);
            let (mut node, https) = match block {
                Some(block) => {
                    cx.converted(block, format!("upstream {}", used.name));
                    defined(block, &used.target, cx)
                }
                None => {
                    let url = url(&used.target.address, &used.target);
                    (map().with("servers", list([text(&url)])), url.starts_with("https://"))
                }
            };
            let timeouts = map().with("connect", duration(used.connect));
            let timeouts = timeouts.with("response", duration(used.read)).with("idle", duration(used.read));
            node = node.with("timeouts", timeouts);
            if used.target.grpc {
                node = node.with("protocol", text("http2"));
            }
            node = node.with_some("retries", used.retries.clone());
            if https {
                node = node.with_some("tls", used.tls.clone());
            }
            let source = block.map_or(&used.source, |block| &block.source);
            let mut kept = map();
            for (field, value) in node.into_entries() {
                match accepted::upstream_field(&field, &value, https) {
                    Ok(()) => kept.insert(field, value),
                    Err(why) => match block {
                        Some(block) => cx.unsupported(block, format!("{field} is left out: {why}")),
                        None => {
                            cx.report.note(format!("{field} of upstream {} is left out: {why}", used.name))
                        }
                    },
                }
            }
            section.insert(used.name.clone(), kept.source(source).block());
        }
        for block in &self.defined {
            if !self.used.iter().any(|used| used.target.address == block.arg(0)) {
                cx.ignored(block, "nothing forwards to it");
            }
        }
        section.block()
    }
}

fn duration(ms: u64) -> Node {
    text(time(&format!("{ms}ms")).unwrap_or_default())
}

fn timeout(scope: &Scope<'_>, directive: &str, becomes: &str, cx: &mut Context) -> Option<u64> {
    let found = scope.last(directive)?;
    match milliseconds(found.arg(0)).filter(|ms| (1..=86_400_000).contains(ms)) {
        Some(ms) => {
            cx.converted(found, format!("{becomes} of the upstream"));
            Some(ms)
        }
        None => {
            cx.unsupported(found, "it is not a time of one day or less");
            None
        }
    }
}

/// The URL of a server.
fn url(address: &str, target: &Target) -> String {
    match address.starts_with("unix:") {
        true => address.to_owned(),
        false => format!("{}://{address}", if target.tls { "https" } else { "http" }),
    }
}

/// The fields of an `upstream` block, and whether it has a server with https://.
fn defined(block: &Directive, target: &Target, cx: &mut Context) -> (Node, bool) {
    let mut servers = Vec::new();
    let mut extra = map();
    let mut https = false;
    let all: Vec<_> = block.children().iter().filter(|child| child.name == "server").collect();
    let only_backups = all.iter().all(|server| flag(&server.args, "backup") || flag(&server.args, "down"));
    for server in &all {
        if flag(&server.args, "down") {
            cx.approximated(server, "left out: it is down. The admin API takes servers out of service");
        } else if flag(&server.args, "backup") && !only_backups {
            cx.unsupported(server, "left out: the gateway has no servers that are only used when others are down. List it as a server, or route to it by hand");
        } else {
            let address = url(server.arg(0), target);
            let node = match parameter(&server.args, "weight").filter(|weight| *weight != "1") {
                Some(weight) => map().with("url", text(address)).with("weight", text(weight)),
                None => text(address),
            };
            match accepted::upstream_field("servers", &list(servers.iter().chain([&node]).cloned()), false) {
                Ok(()) => {
                    https |= target.tls && !server.arg(0).starts_with("unix:");
                    servers.push(node.source(&server.source));
                    parameters(server, &all, cx);
                }
                Err(why) => cx.unsupported(server, format!("left out: {why}")),
            }
        }
    }
    if servers.is_empty() {
        servers.push(text("http://127.0.0.1:9").comment("no server of the upstream is in use"));
    }
    if let Some(node) = ejection(&all) {
        extra.insert("ejection", node);
    }
    if let Some(most) =
        all.first().and_then(|server| parameter(&server.args, "max_conns")).filter(|most| *most != "0")
    {
        extra.insert("max_connections", text(most));
    }
    let mut node = map().with("servers", list(servers));
    for child in block.children() {
        match child.name.as_str() {
            "least_conn" => {
                cx.converted(child, "balance: least_requests");
                node.insert("balance", text("least_requests"));
            }
            "ip_hash" => {
                cx.approximated(child, "balance by a consistent hash of the whole address; nginx uses the first three bytes of IPv4");
                node.insert("balance", map().with("hash", text("ip")));
            }
            "random" => {
                cx.converted(child, "balance: random, the better of two");
                node.insert("balance", text("random"));
            }
            "hash" => match super::key::key(child.arg(0), &[]) {
                Ok(key) if key.parts.len() == 1 && !key.per_server => {
                    cx.approximated(
                        child,
                        "balance by a consistent hash; requests may have other servers than with nginx",
                    );
                    node.insert("balance", map().with("hash", text(&key.parts[0])));
                }
                Ok(_) => cx.unsupported(child, "a hash has one part: choose one for balance: {hash: KEY}"),
                Err(why) => cx.unsupported(child, why),
            },
            "keepalive" => cx.ignored(child, "connections are always kept, as many as were in use"),
            "keepalive_timeout" => cx.ignored(
                child,
                "timeouts.keep_alive is 60s, and the server's own Keep-Alive where that is shorter",
            ),
            _ => {}
        }
    }
    (merge(node, extra), https)
}

fn merge(node: Node, extra: Node) -> Node {
    extra.into_entries().into_iter().fold(node, |node, (key, value)| node.with(key, value))
}

/// Says what became of the parameters of a server.
fn parameters(server: &Directive, all: &[&Directive], cx: &mut Context) {
    let mut differs = Vec::new();
    for arg in server.args.iter().skip(1) {
        let name = arg.split('=').next().unwrap_or_default();
        match name {
            "max_fails" | "fail_timeout" | "max_conns" => {
                let value = parameter(&server.args, name);
                if all.iter().any(|other| parameter(&other.args, name) != value) {
                    differs
                        .push(format!("{name} is that of the first server, for all servers of an upstream"));
                }
            }
            "weight" | "resolve" => {}
            "backup" => differs.push("it is used like others: there are only backups".to_owned()),
            _ => differs.push(format!("{arg} has no equivalent")),
        }
    }
    match differs.is_empty() {
        true => cx.converted(server, "a server of its upstream"),
        false => cx.approximated(server, format!("a server of its upstream; {}", differs.join("; "))),
    }
}

/// `max_fails` and `fail_timeout` of the first server, if any server has them.
fn ejection(all: &[&Directive]) -> Option<Node> {
    let first = all.first()?;
    let failures = parameter(&first.args, "max_fails");
    let span = parameter(&first.args, "fail_timeout").and_then(time);
    match (failures, span) {
        (Some("0"), _) => Some(text("off")),
        (None, None) => None,
        (failures, span) => {
            let node = map().with("failures", text(failures.unwrap_or("1")));
            Some(node.with_some("for", span.map(text)))
        }
    }
}

/// `proxy_next_upstream` and its relatives.
fn retries(scope: &Scope<'_>, cx: &mut Context) -> Option<Node> {
    let next = scope.last("proxy_next_upstream");
    let tries = scope.last("proxy_next_upstream_tries");
    let attempts = tries
        .and_then(|tries| tries.arg(0).parse::<u32>().ok())
        .filter(|tries| *tries > 0)
        .map(|tries| tries - 1);
    if let Some(tries) = tries {
        cx.converted(tries, "retries of the upstream: the tries after the first");
    }
    let Some(next) = next else { return attempts.map(text) };
    if flag(&next.args, "off") {
        cx.converted(next, "retries: 0");
        return Some(text(0));
    }
    let statuses: Vec<_> =
        next.args.iter().filter(|arg| arg.starts_with("http_")).map(String::as_str).collect();
    match statuses.is_empty() {
        true => cx.converted(
            next,
            "retries: refused connections, and broken ones where that is safe; a timeout is not retried",
        ),
        false => cx.approximated(
            next,
            format!(
                "only requests without an answer are retried, not those answered {}",
                statuses.join(", ").replace("http_", "")
            ),
        ),
    }
    let attempts = attempts.unwrap_or(1);
    Some(match flag(&next.args, "non_idempotent") {
        true => map().with("attempts", text(attempts)).with("unsafe", boolean(true)),
        false => text(attempts),
    })
}

/// How servers are verified.
fn tls(target: &Target, scope: &Scope<'_>, cx: &mut Context) -> Option<Node> {
    if !target.tls {
        return None;
    }
    let prefix = if target.grpc { "grpc_ssl" } else { "proxy_ssl" };
    let last = |name: &str| scope.last(&format!("{prefix}_{name}"));
    let mut node = map();
    let verify = last("verify");
    if let Some(verify) = verify {
        cx.converted(verify, "tls.verify of the upstream");
    }
    for (directive, field) in [
        ("trusted_certificate", "ca"),
        ("certificate", "cert"),
        ("certificate_key", "key"),
        ("name", "server_name"),
    ] {
        if let Some(found) = last(directive).filter(|found| !found.arg(0).contains('$')) {
            cx.converted(found, format!("tls.{field} of the upstream"));
            node.insert(field, text(found.arg(0)));
        }
    }
    if let Some(found) = last("server_name") {
        cx.ignored(found, "the gateway always sends the server's name");
    }
    if verify.is_none_or(|verify| verify.arg(0) != "on") {
        node.insert("verify", boolean(false));
    }
    (!node.is_empty()).then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nginx::parse::parse;

    #[test]
    fn what_verifies_servers_in_another_way_is_another_upstream() {
        let config =
            "a {} b { proxy_ssl_verify on; } c { proxy_ssl_verify on; } d { proxy_next_upstream off; }";
        let parsed = parse("n", config).unwrap();
        let (mut upstreams, mut cx) = (Upstreams::default(), Context::default());
        let mut used = |at: usize| {
            let target = Target { tls: true, grpc: false, address: "up.test".to_owned() };
            let scope = Scope::top(parsed[at].children());
            upstreams.used(target, &parsed[at].source, &scope, &mut cx).unwrap()
        };
        assert_eq!([used(0), used(1), used(2), used(3)], ["up.test", "up.test-2", "up.test-2", "up.test-3"]);
        let section = upstreams.finish(&mut cx).into_entries();
        let verify = |at: usize| section[at].1.clone().into_entries().iter().any(|(name, _)| name == "tls");
        assert_eq!((verify(0), verify(1)), (true, false));
    }
}
