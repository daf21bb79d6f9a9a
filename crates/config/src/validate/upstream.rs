//! Upstreams: servers and timeouts.

use std::time::Duration;

use rustls_pki_types::ServerName;

use super::balance;
use super::checks::{empty, in_range, missing, value};
use super::context::Context;
use super::fair;
use super::header_settings::header_case;
use super::overload;
use super::section::Section;
use super::upstream_tls::{Transport, transport};
use crate::language::values;
use crate::model::route::{Action, RouteConfig};
use crate::model::upstream::{Protocol, ServerConfig, UNIX, UpstreamConfig, UpstreamTimeouts};
use crate::raw::upstream::RawServer;
use crate::raw::upstream::RawUpstream;
use crate::read::at::{At, Folder};
use crate::read::report::{Mistake, Report};

/// The longest head of a response, unless the file says otherwise, in bytes.
const RESPONSE_HEAD: u64 = 64 << 10;

/// An upstream. `request_head` is the longest head of a request.
pub(super) fn upstream(
    name: &At<String>,
    raw: &RawUpstream,
    (folder, context): (Folder<'_>, Context<'_>),
    request_head: u64,
    report: &mut Report,
) -> Option<UpstreamConfig> {
    let balance = balance::balance(raw, context, report);
    let resolve = balance::resolve(raw, report);
    let health = balance::health(raw, report);
    let ejection = balance::ejection(raw, report);
    let retries = balance::retries(raw, report);
    let circuit = balance::circuit(raw, report);
    let servers = raw.servers.as_ref().and_then(|servers| {
        if servers.value.is_empty() {
            empty(servers.at, "servers", "such as `servers: [http://127.0.0.1:9000]`", report);
            return None;
        }
        // All of them are read, so that all that is wrong is told at once.
        let all: Vec<Option<ServerConfig>> =
            servers.value.iter().map(|server| self::server(server, report)).collect();
        let all = all.into_iter().collect::<Option<Vec<_>>>()?;
        for (at, server) in all.iter().enumerate() {
            if all[..at].iter().any(|other| other.authority == server.authority) {
                let url = servers.value[at].0.url.as_ref()?;
                let problem = url.problem(format!("the server `{}` is given twice", server.authority));
                report.error(problem.help("give it once, with the sum of the weights"));
            }
        }
        Some(all)
    });
    if raw.servers.is_none() {
        let what = format!("the upstream `{}`", name.value);
        missing(name.at, &what, ("servers", "[http://127.0.0.1:9000]"), &raw.wrong, report);
    }
    let transport = transport(raw, servers.as_deref(), folder, report);
    let timeouts = raw.timeouts.as_ref().map(|timeouts| &timeouts.value);
    let mut timeout = |text: Option<&At<String>>, usual: Duration| match text {
        None => Some(usual),
        Some(text) => value(text, report, |text| match values::duration(text)? {
            Duration::ZERO => Err(Mistake::new("a timeout is longer than nothing")),
            duration => Ok(duration),
        }),
    };
    let connect = timeout(timeouts.and_then(|t| t.connect.as_ref()), Duration::from_secs(1));
    let response = timeout(timeouts.and_then(|t| t.response.as_ref()), Duration::from_secs(30));
    let idle = timeout(timeouts.and_then(|t| t.idle.as_ref()), Duration::from_secs(60));
    let keep_alive = timeout(timeouts.and_then(|t| t.keep_alive.as_ref()), Duration::from_secs(60));
    let tunnel = timeout(timeouts.and_then(|t| t.tunnel.as_ref()), Duration::from_secs(3_600));
    let Transport { protocol, tls, proxy_protocol } = transport;
    // `None` is a mistake, `Some(None)` a field that is not there.
    let overload =
        raw.overload.as_ref().map_or(Some(None), |raw| overload::overload(&raw.value, report).map(Some));
    let fair = raw.fair.as_ref().map_or(Some(None), |fair| {
        fair::of_upstream(fair, raw.overload.is_some(), context, report).map(Some)
    });
    let (max_connections, max_pending) = circuit?;
    let max_head = match &raw.max_head {
        Some(text) => super::checks::max_head(text, report),
        None => Some(RESPONSE_HEAD.max(request_head)),
    };
    let max_headers = raw.max_headers.as_ref();
    let max_headers = max_headers.map_or(Some(1_024), |n| in_range(n, 10..=8_192, "max_headers", report));
    let header_case = header_case(raw.header_case.as_ref(), report);
    if let (Protocol::Http2, Some(raw)) = (protocol, &raw.header_case) {
        report.error(
            raw.problem("`header_case` means nothing over HTTP/2, where all names are in lower case")
                .help("remove it, or `protocol: http2`"),
        );
    }
    Some(UpstreamConfig {
        name: name.value.clone(),
        servers: servers?,
        balance: balance?,
        resolve: resolve?,
        timeouts: UpstreamTimeouts {
            connect: connect?,
            response: response?,
            idle: idle?,
            keep_alive: keep_alive?,
            tunnel: tunnel?,
        },
        protocol,
        tls,
        proxy_protocol,
        health: health?,
        ejection: ejection?,
        retries: retries?,
        max_connections,
        max_pending,
        max_head: max_head? as usize,
        max_headers: max_headers? as usize,
        header_case,
        overload: overload?,
        fair: fair?,
    })
}

fn server(RawServer(raw): &RawServer, report: &mut Report) -> Option<ServerConfig> {
    let weight = raw.weight.as_ref().map_or(Some(1), |weight| in_range(weight, 1..=1_000, "weight", report));
    let Some(url) = &raw.url else {
        missing(raw.at, "a server", ("url", "http://127.0.0.1:9000"), &raw.wrong, report);
        return None;
    };
    let (tls, authority) = value(url, report, authority)?;
    Some(ServerConfig { authority, tls, weight: weight? as u32 })
}

/// Whether a URL is https, and its HOST:PORT.
fn authority(text: &str) -> Result<(bool, String), Mistake> {
    if let Some(path) = text.strip_prefix(UNIX) {
        return unix_path(path).map(|path| (false, format!("{UNIX}{path}")));
    }
    if text.contains('@') {
        return Err(Mistake::new("a server's URL holds no user or password"));
    }
    let bad = || Mistake::new(format!("expected a URL such as http://127.0.0.1:9000, found `{text}`"));
    if !text.contains("://") && !text.contains(' ') && format!("http://{text}").parse::<http::Uri>().is_ok() {
        return Err(bad().help(format!("write http://{text}")));
    }
    let uri: http::Uri = text.parse().map_err(|_| bad())?;
    let authority = uri.authority().ok_or_else(bad)?;
    let tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(bad()),
    };
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(Mistake::new(format!("a server is a host and a port, without a path: `{text}`"))
            .help(format!("write {}://{authority}", if tls { "https" } else { "http" })));
    }
    let host = authority.host();
    let port = match authority.as_str().strip_prefix(host).and_then(|rest| rest.strip_prefix(':')) {
        None if tls => 443,
        None => 80,
        Some(port) => port
            .parse::<u16>()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| Mistake::new(format!("the port `{port}` is not between 1 and 65535")))?,
    };
    if tls && ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']')).is_err() {
        return Err(Mistake::new(format!("`{host}` is not a name that a certificate can be for")));
    }
    Ok((tls, format!("{host}:{port}")))
}

/// The path of a Unix socket.
pub(super) fn unix_path(path: &str) -> Result<&str, Mistake> {
    /// The longest that the kernel takes.
    const LONGEST: usize = 107;

    if path.len() > LONGEST {
        return Err(Mistake::new(format!(
            "the path of a Unix socket has at most {LONGEST} bytes, not {}",
            path.len()
        )));
    }
    if path.starts_with("//") {
        return Err(Mistake::new("the path of a Unix socket begins with one slash")
            .help(format!("write {UNIX}/{}", path.trim_start_matches('/'))));
    }
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        return Err(Mistake::new(format!("`{path}` is not an absolute path of a socket"))
            .help(format!("such as {UNIX}/run/app.sock")));
    }
    Ok(path)
}

/// Upstreams that nothing is forwarded to, and ways to spread requests that come to nothing.
pub(super) fn warnings(upstreams: &Section<UpstreamConfig>, routes: &[RouteConfig], report: &mut Report) {
    if !report.errors.is_empty() {
        return; // a route with a mistake may be the one that uses it
    }
    let mut users: Vec<Vec<&RouteConfig>> = upstreams.valid().map(|_| Vec::new()).collect();
    for route in routes {
        if let Action::Forward { upstream, .. } = &route.action {
            users[upstream.index].push(route);
        }
    }
    for ((name, upstream), users) in upstreams.valid().zip(&users) {
        balance::warnings(name, upstream, users, report);
        if users.is_empty() {
            report.warning(
                name.problem(format!("no route uses the upstream `{}`", name.value))
                    .help("name it in a route, or remove it"),
            );
        }
    }
}
