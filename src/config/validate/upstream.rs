//! Upstreams: servers and timeouts.

use std::time::Duration;

use super::super::model::{Action, RouteConfig, ServerConfig, UpstreamConfig};
use super::super::raw::{RawServer, RawUpstream};
use super::super::read::{At, Named};
use super::super::report::Report;
use super::super::values;
use super::{check_name, in_range, missing, value, word};

/// An upstream under its name; `None` where the file's one is wrong, so that references still find it.
pub(super) type Upstreams = Vec<(String, Option<UpstreamConfig>)>;

pub(super) fn all(raw: Option<&At<Named<RawUpstream>>>, report: &mut Report) -> Upstreams {
    let mut upstreams = Vec::new();
    for (name, upstream) in raw.map_or(&[][..], |raw| &raw.value.0) {
        check_name(name, "an upstream", report);
        upstreams.push((name.value.clone(), self::upstream(name, upstream, report)));
    }
    upstreams
}

fn upstream(name: &At<String>, raw: &RawUpstream, report: &mut Report) -> Option<UpstreamConfig> {
    if let Some(text) = &raw.balance {
        const OTHERS: [&str; 3] = ["least_requests", "random", "hash"];
        if OTHERS.iter().any(|other| text.value.starts_with(other)) {
            let message = format!("`balance: {}` is not available in this version of sluicegate", text.value);
            report.error(text.problem(message).help("use round_robin"));
        } else {
            word(text, "balance", &[("round_robin", ())], report);
        }
    }
    if let Some(text) = &raw.protocol {
        if text.value == "http2" {
            report.error(text.problem("`protocol: http2` is not available in this version of sluicegate"));
        } else {
            word(text, "protocol", &[("http1", ())], report);
        }
    }
    let Some(servers) = raw.servers.as_ref().filter(|servers| !servers.value.is_empty()) else {
        let what = format!("the upstream `{}`", name.value);
        missing(name.at, &what, "servers", "[http://127.0.0.1:9000]", report);
        return None;
    };
    let servers: Vec<Option<ServerConfig>> =
        servers.value.iter().map(|server| self::server(server, report)).collect();
    let timeouts = raw.timeouts.as_ref().map(|timeouts| &timeouts.value);
    let mut timeout = |text: Option<&At<String>>, usual: Duration| match text {
        None => Some(usual),
        Some(text) => value(text, report, |text| match values::duration(text)? {
            Duration::ZERO => Err("a timeout is longer than nothing".to_owned()),
            duration => Ok(duration),
        }),
    };
    let connect = timeout(timeouts.and_then(|t| t.connect.as_ref()), Duration::from_secs(1));
    let response = timeout(timeouts.and_then(|t| t.response.as_ref()), Duration::from_secs(30));
    let idle = timeout(timeouts.and_then(|t| t.idle.as_ref()), Duration::from_secs(60));
    Some(UpstreamConfig {
        name: name.value.clone(),
        servers: servers.into_iter().collect::<Option<Vec<_>>>()?,
        connect: connect?,
        response: response?,
        idle: idle?,
    })
}

fn server(RawServer(raw): &RawServer, report: &mut Report) -> Option<ServerConfig> {
    let Some(url) = &raw.url else {
        missing(raw.at, "a server", "url", "http://127.0.0.1:9000", report);
        return None;
    };
    let authority = value(url, report, |text| {
        let uri: http::Uri = text
            .parse()
            .map_err(|_| format!("expected a URL such as http://127.0.0.1:9000, found `{text}`"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err("https to upstreams is not available in this version of sluicegate".into());
            }
            _ => return Err(format!("expected a URL such as http://127.0.0.1:9000, found `{text}`")),
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(format!("a server is a host and a port, without a path: `{text}`"));
        }
        let authority = uri.authority().ok_or("the URL has no host")?;
        if authority.as_str().contains('@') {
            return Err("a server's URL holds no user or password".into());
        }
        Ok(format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80)))
    })?;
    let weight =
        raw.weight.as_ref().map_or(Some(1), |weight| in_range(weight, 1..=1_000, "weight", report))?;
    Some(ServerConfig { authority, weight: weight as u32 })
}

/// Upstreams that nothing is forwarded to.
pub(super) fn doubts(
    raw: Option<&At<Named<RawUpstream>>>,
    upstreams: &Upstreams,
    routes: &[RouteConfig],
    report: &mut Report,
) {
    if !report.errors.is_empty() || upstreams.iter().any(|(_, upstream)| upstream.is_none()) {
        return; // a route with a mistake may be the one that uses it
    }
    for (index, (name, _)) in raw.map_or(&[][..], |raw| &raw.value.0).iter().enumerate() {
        let used = |route: &RouteConfig| matches!(route.action, Action::Forward { upstream, .. } if upstream == index);
        if !routes.iter().any(used) {
            report.warning(name.problem(format!("no route uses the upstream `{}`", name.value)));
        }
    }
}
