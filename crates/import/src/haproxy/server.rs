//! `server` lines.

use super::parse::Line;
use super::units::{duration, milliseconds};
use crate::accepted;
use crate::report::Outcome;
use crate::yaml::{Node, boolean, list, map, text};

/// A server.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    address: String,
    weight: Option<u64>,
    pub(super) tls: bool,
    pub(super) http2: bool,
    pub(super) check: bool,
    pub(super) every: Option<String>,
    pub(super) rise: Option<u64>,
    pub(super) fall: Option<u64>,
    pub(super) max_connections: Option<u64>,
    pub(super) proxy_protocol: Option<&'static str>,
    verify: bool,
    ca: Option<String>,
    pair: Option<String>,
    server_name: Option<String>,
    pub(super) differs: Vec<String>,
}

/// Parameters that have a value and no effect on the result.
const IGNORED: [&str; 26] = [
    "id",
    "cookie",
    "on-marked-down",
    "on-marked-up",
    "resolvers",
    "resolve-prefer",
    "resolve-net",
    "resolve-opts",
    "init-addr",
    "log-bufsize",
    "minconn",
    "maxqueue",
    "pool-max-conn",
    "pool-low-conn",
    "pool-purge-delay",
    "max-reuse",
    "tcp-ut",
    "namespace",
    "error-limit",
    "fastinter",
    "downinter",
    "ssl-min-ver",
    "ssl-max-ver",
    "ciphers",
    "ciphersuites",
    "source",
];

/// Parameters without a value and without an effect.
const FLAGS: [&str; 12] = [
    "no-check",
    "no-tls-tickets",
    "no-ssl-reuse",
    "no-sslv3",
    "no-tlsv10",
    "no-tlsv11",
    "stick",
    "non-stick",
    "tfo",
    "enabled",
    "no-backup",
    "no-verifyhost",
];

/// Reads a server with the parameters of `default-server`.
///
/// # Errors
/// What becomes of the line instead.
pub(super) fn server(line: &Line, default: &[String]) -> Result<Server, (Outcome, String)> {
    let unsupported = |why: String| (Outcome::Unsupported, why);
    let (address, own) =
        if line.word(0) == "server-template" { (line.word(3), 4) } else { (line.word(2), 3) };
    let mut server = Server { address: address.to_owned(), verify: true, ..Server::default() };
    if let Some(path) = address.strip_prefix("unix@").or(address.starts_with('/').then_some(address)) {
        server.address = format!("unix:{path}");
    }
    let words: Vec<&str> =
        default.iter().map(String::as_str).chain(line.from(own).iter().map(String::as_str)).collect();
    let mut at = 0;
    while at < words.len() {
        let value = words.get(at + 1).copied().unwrap_or_default();
        let number = value.parse::<u64>().ok();
        let mut takes = 1;
        match words[at] {
            "weight" if number == Some(0) => {
                return Err((Outcome::Ignored, "weight 0: it gets no requests".to_owned()));
            }
            "weight" => server.weight = number,
            "maxconn" => server.max_connections = number,
            "inter" => server.every = milliseconds(value).map(duration),
            "rise" => server.rise = number,
            "fall" => server.fall = number,
            "ca-file" if value == "@system-ca" => {}
            "ca-file" => server.ca = Some(value.to_owned()),
            "crt" => server.pair = Some(value.to_owned()),
            "verify" => server.verify = value != "none",
            "verifyhost" => server.server_name = Some(value.to_owned()),
            "sni" => match value.strip_prefix("str(").and_then(|rest| rest.strip_suffix(')')) {
                Some(name) => server.server_name = Some(name.to_owned()),
                None => server.differs.push("the SNI is the host of its URL, or tls.server_name".to_owned()),
            },
            "proto" => server.http2 = value == "h2",
            "alpn" => server.http2 = value.split(',').next() == Some("h2"),
            "slowstart" => server.differs.push("it gets its share at once, without slowstart".to_owned()),
            "observe" => server.differs.push("ejection watches requests of all servers".to_owned()),
            "track" => server.differs.push("it is checked itself".to_owned()),
            "port" | "addr" => server.differs.push("health checks go to the address of requests".to_owned()),
            "check-sni" | "check-alpn" | "check-proto" => {}
            word if IGNORED.contains(&word) => {}
            other => {
                takes = 0;
                match other {
                    "ssl" => server.tls = true,
                    "no-ssl" => server.tls = false,
                    "check" => server.check = true,
                    "send-proxy" => server.proxy_protocol = Some("v1"),
                    "send-proxy-v2" | "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
                        server.proxy_protocol = Some("v2")
                    }
                    "check-ssl" | "check-send-proxy" | "check-via-socks4" => {}
                    "disabled" => {
                        return Err((Outcome::Ignored, "it is disabled: it gets no requests".to_owned()));
                    }
                    "backup" => {
                        return Err(unsupported("left out: there are no servers for the time when all others are down; if no server is healthy, requests go to all of them".to_owned()));
                    }
                    flag if FLAGS.contains(&flag) => {}
                    other => {
                        return Err(unsupported(format!(
                            "left out: `{other}` of a server has no equivalent"
                        )));
                    }
                }
            }
        }
        at += 1 + takes;
    }
    if !server.address.starts_with("unix:")
        && server.address.rsplit(':').next().is_none_or(|port| port.parse::<u16>().is_err())
    {
        if !server.address.contains(':') || server.address.ends_with(':') {
            server.address =
                format!("{}:{}", server.address.trim_end_matches(':'), if server.tls { 443 } else { 80 });
            server
                .differs
                .push("its port is that of the request in HAProxy: write the port of the server".to_owned());
        } else {
            return Err(unsupported(
                "left out: its port is computed from that of the request: write a port".to_owned(),
            ));
        }
    }
    accepted::upstream_field("servers", &list([server.node()]), false)
        .map_err(|why| unsupported(format!("left out: {why}")))?;
    Ok(server)
}

impl Server {
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn node(&self) -> Node {
        let url = match self.address.strip_prefix("unix:") {
            Some(path) => format!("unix:{path}"),
            None => format!(
                "{}://{}",
                if self.tls { "https" } else { "http" },
                self.address.trim_start_matches("ipv4@").trim_start_matches("ipv6@")
            ),
        };
        match self.weight.filter(|weight| *weight != 1) {
            Some(weight) => map().with("url", text(url)).with("weight", text(weight)),
            None => text(url),
        }
    }

    /// The field `tls` of its upstream.
    pub(super) fn tls_node(&self, ca_base: &str) -> Option<Node> {
        let based = |path: &String| {
            if ca_base.is_empty() || path.starts_with('/') {
                path.clone()
            } else {
                format!("{ca_base}/{path}")
            }
        };
        let mut node = map();
        if !self.tls {
            return None;
        }
        if let Some(ca) = &self.ca {
            node.insert("ca", text(based(ca)));
        }
        if let Some(pair) = &self.pair {
            node = node.with("cert", text(pair)).with("key", text(pair));
        }
        if let Some(name) = &self.server_name {
            node.insert("server_name", text(name));
        }
        if !self.verify {
            node.insert("verify", boolean(false));
        }
        (!node.is_empty()).then_some(node)
    }
}
