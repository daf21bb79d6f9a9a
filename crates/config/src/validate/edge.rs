//! The edge: addresses and operators.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::checks::{check_name, empty, in_range, missing, secret, value, word};
use super::section::Section;
use super::served;
use super::tls;
use super::upstream::unix_path;
use crate::language::host_name::host_name;
use crate::model::listen_address::ListenAddress;
use crate::model::listener::{AdminConfig, AdminToken, ListenerConfig, Role};
use crate::model::upstream::UNIX;
use crate::raw::RawConfig;
use crate::raw::listen::RawAdmin;
use crate::raw::listen::RawListener;
use crate::raw::scalars::RawCount;
use crate::read::at::{At, Folder};
use crate::read::is_wrong;
use crate::read::report::{Mistake, Report};

/// Connections at once of a listener when nothing else is said.
const CONNECTIONS: u64 = 10_000;
/// More than a process has file descriptors for.
const MOST_CONNECTIONS: u64 = 10_000_000;

pub(super) fn listeners(raw: &RawConfig, folder: Folder<'_>, report: &mut Report) -> Section<ListenerConfig> {
    let mut all = Section::new("listener", is_wrong!(raw, listen));
    let Some(listen) = &raw.listen else {
        missing(raw.at, "the file", ("listen", "[0.0.0.0:8080]"), &raw.wrong, report);
        return all;
    };
    if listen.value.is_empty() {
        empty(listen.at, "listen", "a gateway listens somewhere: `listen: [0.0.0.0:8080]`", report);
    }
    for RawListener(raw) in &listen.value {
        let address = raw.address.as_ref().and_then(|text| value(text, report, listen_address));
        let tls = raw.tls.as_ref().map(|raw| tls::tls(&raw.value, folder, report));
        let most = |raw: Option<&At<RawCount>>, field, report: &mut Report| {
            raw.and_then(|count| in_range(count, 1..=MOST_CONNECTIONS, field, report))
        };
        let max_connections = most(raw.max_connections.as_ref(), "max_connections", report);
        let per_ip = most(raw.max_connections_per_ip.as_ref(), "max_connections_per_ip", report);
        let Some(text) = &raw.address else {
            missing(raw.at, "a listener", ("address", "0.0.0.0:8080"), &raw.wrong, report);
            if let Some(name) = &raw.name {
                all.push(name.clone(), None);
            }
            continue;
        };
        let name = raw.name.as_ref().unwrap_or(text);
        if raw.name.is_some() {
            check_name(name, "listener", report);
        }
        let in_the_way =
            |own| all.valid().find(|(_, other)| overlap(&other.address, own)).map(|at| (own, at));
        if let Some((own, (at, other))) = address.as_ref().and_then(in_the_way) {
            let message = match *own == other.address {
                true => format!("two listeners have the address {own}"),
                false => format!("two listeners share addresses: {} and {own}", other.address),
            };
            let line = at.at.line;
            report.error(
                text.problem(message).help(format!("the first one is on line {line}; keep one of them")),
            );
        } else if let Some((at, _)) = all.valid().find(|(_, other)| other.name == name.value) {
            report.error(
                name.problem(format!("two listeners are called `{}`", name.value))
                    .help(format!("the first one is on line {}", at.at.line)),
            );
        }
        let served = served::served(raw, tls.as_ref(), report);
        let listener = address.map(|address| ListenerConfig {
            name: name.value.clone(),
            address,
            tls,
            proxy_protocol: raw.proxy_protocol.as_ref().is_some_and(|on| on.value),
            max_connections: max_connections.unwrap_or(CONNECTIONS),
            max_connections_per_ip: per_ip,
            served,
        });
        all.push(name.clone(), listener);
    }
    all
}

/// Whether two sockets on these addresses would be in each other's way: with one port, and one of them may stand
/// for the other's address too.
fn overlap(a: &ListenAddress, b: &ListenAddress) -> bool {
    match (a.tcp(), b.tcp()) {
        (Some(a), Some(b)) => tcp_overlap(a, b),
        _ => a == b,
    }
}

fn tcp_overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let (a, b) = (canonical(a), canonical(b));
    let stands_for = |wide: IpAddr, narrow: IpAddr| {
        wide.is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4()) // [::] takes IPv4 as well
    };
    a.port() == b.port()
        && a.port() != 0
        && (a.ip() == b.ip() || stands_for(a.ip(), b.ip()) || stands_for(b.ip(), a.ip()))
}

/// An address of IPv4 also where it is written as one of IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn listen_address(text: &str) -> Result<ListenAddress, Mistake> {
    let Some(path) = text.strip_prefix(UNIX) else { return address(text).map(ListenAddress::Tcp) };
    let path = unix_path(path)?;
    if path.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(Mistake::new("the path of a listener has no spaces"));
    }
    Ok(ListenAddress::Unix(path.into()))
}

fn address(text: &str) -> Result<SocketAddr, Mistake> {
    text.parse().map_err(|_| {
        let message = format!("expected an address such as 0.0.0.0:8080 or [::]:8080, found `{text}`");
        Mistake { message, help: address_help(text) }
    })
}

fn address_help(text: &str) -> Option<String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let too_large = || Some("a port is at most 65535".to_owned());
    if let Some((_, rest)) = text.split_once("://") {
        let rest = rest.trim_end_matches('/');
        return rest.parse::<SocketAddr>().ok().map(|address| format!("write {address}"));
    }
    if is_number(text) {
        return if text.parse::<u16>().is_ok() { Some(format!("write 0.0.0.0:{text}")) } else { too_large() };
    }
    if let Some((host, port)) = text.rsplit_once(':').filter(|(_, port)| is_number(port)) {
        return match host {
            _ if port.parse::<u16>().is_err() => too_large(),
            "" | "*" => Some(format!("write 0.0.0.0:{port}")),
            _ if host.parse::<Ipv6Addr>().is_ok() => Some(format!("write [{host}]:{port}")),
            _ if text.parse::<IpAddr>().is_ok() => Some(format!("the port is missing: [{text}]:8080")),
            _ => {
                Some(format!("an address, not a name: 127.0.0.1:{port} is this machine, 0.0.0.0:{port} all"))
            }
        };
    }
    let address = text.trim_matches(['[', ']']).parse::<IpAddr>().ok()?;
    Some(format!("the port is missing: {}", SocketAddr::new(address, 8080)))
}

pub(super) fn admin(
    raw: &RawAdmin,
    listeners: &Section<ListenerConfig>,
    folder: Folder<'_>,
    report: &mut Report,
) -> Option<AdminConfig> {
    let Some(text) = &raw.address else {
        missing(raw.at, "admin", ("address", "127.0.0.1:9090"), &raw.wrong, report);
        return None;
    };
    let address = value(text, report, address)?;
    if let Some((_, listener)) = listeners
        .valid()
        .find(|(_, listener)| listener.address.tcp().is_some_and(|own| tcp_overlap(own, address)))
    {
        report.error(
            text.problem(format!("admin has the same address as the listener `{}`", listener.name))
                .help("metrics and state are never on an address that serves clients; use another port"),
        );
    }
    let token = secret(raw.token.as_ref(), folder, report)?;
    let tokens = admin_tokens(raw, folder, report);
    let reads = [("open", false), ("token", true)];
    let reads_need_token =
        raw.reads.as_ref().map_or(Some(false), |text| word(text, "value of `reads`", &reads, report))?;
    if let Some(text) =
        raw.reads.as_ref().filter(|_| reads_need_token && token.is_empty() && tokens.is_empty())
    {
        report.error(text.problem("there is no token").help("set `token`, or one of `tokens`"));
    }
    if token.is_empty()
        && !reads_need_token
        && !address.ip().to_canonical().is_loopback()
        && !is_wrong!(raw, token)
    {
        report.warning(
            text.problem("admin is reachable from other machines, without a token")
                .help("anyone there can read the state; use 127.0.0.1, or guard the port"),
        );
    }
    let hosts = raw
        .hosts
        .iter()
        .flat_map(|hosts| &hosts.value)
        .filter_map(|text| value(text, report, admin_host))
        .collect();
    let show_keys = raw.show_keys.as_ref().filter(|flag| flag.value);
    if let Some(flag) = show_keys.filter(|_| !reads_need_token) {
        report.warning(
            flag.problem("everybody who reaches the admin API reads the API keys of clients in full")
                .help("set `reads: token`, or leave `show_keys` out: keys are then shown as digests"),
        );
    }
    let show_keys = show_keys.is_some();
    Some(AdminConfig { address, token, tokens, reads_need_token, show_keys, hosts })
}

/// The tokens by name.
fn admin_tokens(raw: &RawAdmin, folder: Folder<'_>, report: &mut Report) -> Vec<AdminToken> {
    let roles = [("read", Role::Read), ("rules", Role::Rules), ("all", Role::All)];
    let mut tokens: Vec<AdminToken> = Vec::new();
    for (name, fields) in raw.tokens.iter().flat_map(|tokens| &tokens.value.0) {
        check_name(name, "token", report);
        let Some(fields) = fields else { continue };
        let role = fields.role.as_ref().map_or(Some(Role::Read), |text| word(text, "role", &roles, report));
        if fields.token.is_none() {
            let what = format!("the token `{}`", name.value);
            missing(name.at, &what, ("token", "{file: deploy.token}"), &fields.wrong, report);
            continue;
        }
        let Some(token) = secret(fields.token.as_ref(), folder, report) else { continue };
        if token.is_empty() {
            report.error(name.problem(format!("the token `{}` is empty", name.value)));
        } else if name.value == "admin" {
            let problem = name.problem("`admin` is the name of `admin.token`");
            report.error(problem.help("choose another name"));
        } else if let Some(role) = role {
            tokens.push(AdminToken { name: name.value.clone(), token, role });
        }
    }
    tokens
}

/// A host as Host names it, without a port.
fn admin_host(text: &str) -> Result<String, Mistake> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(address.to_canonical().to_string());
    }
    let known = host_name(text.as_bytes()).filter(|_| !text.contains(':'));
    known.map(Cow::into_owned).ok_or_else(|| {
        Mistake::new(format!("`{text}` is not a host"))
            .help("a name or an address, without a port: gateway.internal")
    })
}
