//! The addresses that servers listen on, and their TLS.

use super::context::{Context, Scope};
use super::parse::Directive;
use super::units::flag;
use crate::accepted;
use crate::report::Source;
use crate::yaml::{Node, boolean, list, map, text};

/// A listener and its servers.
pub(super) struct Listener<'a> {
    pub(super) address: String,
    pub(super) name: String,
    pub(super) tls: bool,
    proxy_protocol: bool,
    /// The numbers of the servers, in the order of the file.
    pub(super) servers: Vec<usize>,
    /// The server of requests for other hosts.
    pub(super) default: usize,
    explicit: bool,
    sources: Vec<&'a Source>,
    /// The servers that have to deny everybody here: the listener cannot keep away whom nginx keeps away from them.
    pub(super) closed: Vec<usize>,
}

/// The listeners of all servers.
pub(super) fn listeners<'a>(servers: &[(&'a Directive, Scope<'a>)], cx: &mut Context) -> Vec<Listener<'a>> {
    let mut found: Vec<Listener<'a>> = Vec::new();
    for (number, (server, scope)) in servers.iter().enumerate() {
        let mut written: Vec<(String, Option<&'a Directive>)> = Vec::new();
        for listen in scope.own("listen") {
            match address(listen.arg(0)) {
                _ if flag(&listen.args, "quic") => {
                    cx.unsupported(listen, "left out: the gateway does not speak HTTP/3")
                }
                Some(address) if refused(&address).is_some() => {
                    cx.unsupported(listen, format!("left out: {}", refused(&address).unwrap_or_default()));
                }
                Some(address) => {
                    cx.converted(listen, format!("listen: {address}"));
                    written.push((address, Some(listen)));
                }
                None => cx.unsupported(
                    listen,
                    "left out: the gateway listens on addresses, such as 127.0.0.1:8080, not on names",
                ),
            }
        }
        if scope.own("listen").is_empty() {
            written.push(("0.0.0.0:80".to_owned(), None));
        }
        for (address, listen) in written {
            let has = |name: &str| listen.is_some_and(|listen| flag(&listen.args, name));
            let tls = has("ssl") || scope.last("ssl").is_some_and(|ssl| ssl.arg(0) == "on");
            let source = listen.map_or(&server.source, |listen| &listen.source);
            let explicit = has("default_server") || has("default");
            match found.iter_mut().find(|known| known.address == address) {
                Some(known) => {
                    known.tls |= tls;
                    known.proxy_protocol |= has("proxy_protocol");
                    known.sources.push(source);
                    if !known.servers.contains(&number) {
                        known.servers.push(number);
                    }
                    if explicit {
                        (known.default, known.explicit) = (number, true);
                    }
                }
                None => found.push(Listener {
                    name: String::new(),
                    tls,
                    proxy_protocol: has("proxy_protocol"),
                    servers: vec![number],
                    default: number,
                    explicit,
                    sources: vec![source],
                    closed: Vec::new(),
                    address,
                }),
            }
        }
    }
    merged(&mut found, servers, cx);
    found
        .iter_mut()
        .filter(|listener| listener.tls)
        .for_each(|listener| client_certificates(listener, servers, cx));
    name_all(&mut found);
    found
}

/// Listeners whose addresses overlap become one: `listen 80` and `listen [::]:80`, or one address beside all.
fn merged<'a>(found: &mut Vec<Listener<'a>>, servers: &[(&'a Directive, Scope<'a>)], cx: &mut Context) {
    let mut at = 0;
    while at < found.len() {
        let wider = found.iter().position(|other| covers(&other.address, &found[at].address));
        let Some(wider) = wider else {
            at += 1;
            continue;
        };
        let narrow = found.remove(at);
        let wider = if wider > at { wider - 1 } else { wider };
        let wide = &mut found[wider];
        cx.report.note(match wide.servers == narrow.servers && wide.tls == narrow.tls {
            true => format!("the listener on {} accepts connections to {}, too, and stands for both", wide.address, narrow.address),
            false => format!(
                "the listener on {} has the servers of {}, too: addresses of one port are one listener here, with or without TLS. If that \
                 matters, give them different ports",
                wide.address, narrow.address
            ),
        });
        if !is_unspecified(&narrow.address) {
            let private = narrow.servers.iter().filter(|server| !wide.servers.contains(server));
            for number in private.chain(&narrow.closed) {
                for listen in servers[*number].1.own("listen") {
                    if address(listen.arg(0)).as_ref() == Some(&narrow.address) {
                        cx.unsupported(
                            listen,
                            format!(
                                "the listener on {0} accepts its requests, too. Its routes deny everybody there until you give it a port of its \
                                 own; requests for other hosts go to the default server of {0}",
                                wide.address
                            ),
                        );
                    }
                }
                wide.closed.push(*number);
            }
        }
        wide.tls |= narrow.tls;
        wide.proxy_protocol |= narrow.proxy_protocol;
        wide.sources.extend(narrow.sources);
        if narrow.explicit && !wide.explicit {
            (wide.default, wide.explicit) = (narrow.default, true);
        }
        wide.servers.extend(narrow.servers);
        wide.servers.sort_unstable();
        wide.servers.dedup();
    }
}

fn is_unspecified(address: &str) -> bool {
    address.parse::<core::net::SocketAddr>().is_ok_and(|address| address.ip().is_unspecified())
}

/// What a server asks of the certificates of clients: the authority, and whether they must have one.
fn demand<'a>(scope: &Scope<'a>) -> Option<(&'a Directive, Option<&'a Directive>, bool)> {
    let verify = scope.last("ssl_verify_client").filter(|verify| verify.arg(0) != "off")?;
    Some((verify, scope.last("ssl_client_certificate"), !verify.arg(0).starts_with("optional")))
}

/// Closes the servers whose demand the listener cannot keep: it has one authority, and asks all clients for a certificate or none.
fn client_certificates<'a>(
    listener: &mut Listener<'a>,
    servers: &[(&'a Directive, Scope<'a>)],
    cx: &mut Context,
) {
    let order = in_order(listener);
    let scopes: Vec<_> = order.iter().map(|number| &servers[*number].1).collect();
    let kept = authority(&scopes);
    let all = all_demand(&scopes);
    for (number, scope) in order.iter().zip(scopes) {
        let Some((verify, file, required)) = demand(scope) else { continue };
        let why = match file {
            None => "it names no ssl_client_certificate",
            Some(file) if kept != Some(file.arg(0)) => {
                "a listener has one client_ca, and that of another server is another one"
            }
            Some(_) if required && !all => {
                "other servers of the listener serve clients without a certificate"
            }
            Some(_) => continue,
        };
        let text = format!(
            "{why}. Its routes deny everybody there until you give it an address or a port of its own"
        );
        cx.unsupported(verify, text.clone());
        if let Some(file) = file {
            cx.unsupported(file, text);
        }
        listener.closed.push(*number);
    }
}

/// The authority of a listener: that of its first server with one.
fn authority<'a>(scopes: &[&Scope<'a>]) -> Option<&'a str> {
    scopes.iter().find_map(|scope| demand(scope)?.1.map(Directive::arg0))
}

/// Whether all servers of a listener serve only clients with a certificate.
fn all_demand(scopes: &[&Scope<'_>]) -> bool {
    scopes.iter().all(|scope| matches!(demand(scope), Some((_, Some(_), true))))
}

/// The servers of a listener, the default one first.
fn in_order(listener: &Listener<'_>) -> Vec<usize> {
    let others = listener.servers.iter().copied().filter(|server| *server != listener.default);
    std::iter::once(listener.default).chain(others).collect()
}

/// Whether a listener on one address would accept connections to another one.
fn covers(wide: &str, narrow: &str) -> bool {
    let parsed = |text: &str| text.parse::<core::net::SocketAddr>().ok();
    let (Some(wide), Some(narrow)) = (parsed(wide), parsed(narrow)) else { return false };
    let all = wide.ip().is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4());
    all && wide.port() == narrow.port() && wide != narrow
}

fn name_all(found: &mut [Listener<'_>]) {
    for at in 0..found.len() {
        let port = found[at].address.rsplit(':').next().unwrap_or_default().to_owned();
        let wanted = match (port.as_str(), found[at].tls) {
            ("80", false) => "http".to_owned(),
            ("443", true) => "https".to_owned(),
            _ if found[at].address.starts_with("unix:") => "socket".to_owned(),
            _ => format!("port-{port}"),
        };
        let taken = |name: &str| found[..at].iter().any(|other| other.name == name);
        found[at].name = super::units::unused(&wanted, &taken);
    }
}

/// An address of `listen` as the gateway writes it.
fn address(text: &str) -> Option<String> {
    if text.starts_with("unix:/") {
        return Some(text.to_owned());
    }
    if let Ok(port) = text.parse::<u16>() {
        return Some(format!("0.0.0.0:{port}"));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') && (!host.contains(':') || host.ends_with(']')) => {
            (host, port.parse::<u16>().ok()?)
        }
        _ => (text, 80),
    };
    let host = match host {
        "*" => "0.0.0.0".to_owned(),
        "localhost" => "127.0.0.1".to_owned(),
        host => host.to_owned(),
    };
    let parsed = host.trim_start_matches('[').trim_end_matches(']').parse::<core::net::IpAddr>().ok()?;
    Some(core::net::SocketAddr::new(parsed, port).to_string())
}

/// Whether clients name the port in `Host`: a server listens on another one than 80 and 443.
pub(super) fn has_unusual_port(scope: &Scope<'_>) -> bool {
    let addresses = scope.every("listen").into_iter().filter_map(|listen| address(listen.arg(0)));
    let mut ports = addresses.filter(|address| !address.starts_with("unix:"));
    ports.any(|address| ![":80", ":443"].iter().any(|usual| address.ends_with(usual)))
}

/// Why the gateway cannot listen on an address.
fn refused(address: &str) -> Option<String> {
    accepted::top_field("listen", &list([text(address)])).err()
}

/// The section `listen`. Listeners have names if there are several.
pub(super) fn section<'a>(
    listeners: &[Listener<'a>],
    servers: &[(&'a Directive, Scope<'a>)],
    folder: &str,
    cx: &mut Context,
) -> Node {
    let named = listeners.len() > 1;
    let nodes = listeners.iter().map(|listener| {
        let mut node = map();
        if named {
            node = node.with("name", text(&listener.name));
        }
        node = node.with("address", text(&listener.address));
        if listener.tls {
            let scopes: Vec<_> = in_order(listener).iter().map(|server| &servers[*server].1).collect();
            node = node.with("tls", tls(&scopes, folder, cx));
        }
        if listener.proxy_protocol {
            node = node.with("proxy_protocol", boolean(true));
            cx.report.note("with proxy_protocol, the address in the PROXY header is the client, also where nginx used it only for some peers");
        }
        listener.sources.iter().take(4).fold(node, |node, source| node.comment(source))
    });
    list(nodes.collect::<Vec<_>>()).block()
}

/// The TLS of a listener, of all servers that it has.
fn tls(scopes: &[&Scope<'_>], folder: &str, cx: &mut Context) -> Node {
    let path = |path: &str| {
        if path.starts_with('/') || folder.is_empty() { path.to_owned() } else { format!("{folder}/{path}") }
    };
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut certificates = Vec::new();
    for scope in scopes {
        let (certs, keys) = (scope.all("ssl_certificate"), scope.all("ssl_certificate_key"));
        for (cert, key) in certs.iter().zip(&keys) {
            if cert.arg(0).contains('$') || cert.arg(0).starts_with("data:") {
                cx.unsupported(
                    cert,
                    "left out: certificates are files, chosen by the server name of the client",
                );
                cx.unsupported(
                    key,
                    "left out: certificates are files, chosen by the server name of the client",
                );
                continue;
            }
            let pair = (path(cert.arg(0)), path(key.arg(0)));
            let node = map().with("cert", text(&pair.0)).with("key", text(&pair.1));
            let tls = map().with("certificates", list(certificates.iter().chain([&node]).cloned()));
            if pairs.contains(&pair) {
                cx.converted(cert, "tls.certificates of the listener");
                cx.converted(key, "tls.certificates of the listener");
            } else if let Err(why) = accepted_tls(&tls) {
                cx.unsupported(cert, format!("left out: {why}"));
                cx.unsupported(key, format!("left out: {why}"));
            } else {
                cx.converted(cert, "tls.certificates of the listener");
                cx.converted(key, "tls.certificates of the listener");
                certificates.push(node.source(&cert.source));
                pairs.push(pair);
            }
        }
        if let Some((verify, Some(file), required)) = demand(scope)
            && authority(scopes) == Some(file.arg(0))
            && (all_demand(scopes) || !required)
        {
            for directive in [verify, file] {
                cx.converted(directive, "tls.client_ca of the listener");
            }
        }
    }
    let with_authority = scopes.iter().find_map(|scope| demand(scope)?.1);
    let ca = with_authority.map(|file| (path(file.arg(0)), !all_demand(scopes), &file.source));
    if certificates.is_empty() {
        // Without it the listener would serve in cleartext.
        let node = map().with("cert", text("missing.pem")).with("key", text("missing.key"));
        certificates.push(node.comment("not converted: name the certificate here"));
        cx.report.note("a listener has no certificate that could be converted: it names missing.pem, and cannot be used before you change that");
    }
    let mut node = map().with("certificates", list(certificates));
    if let Some((file, optional, source)) = ca {
        let mut with_ca = node.clone().with("client_ca", text(file).source(source));
        if optional {
            with_ca.insert("client_auth", text("optional"));
        }
        match accepted_tls(&with_ca) {
            Ok(()) => node = with_ca,
            Err(why) => {
                node.insert("client_ca", text("missing.pem").comment(format!("not converted: {why}")))
            }
        }
    }
    if let Some(protocols) = scopes.iter().find_map(|scope| scope.last("ssl_protocols")) {
        let new = protocols.args.iter().all(|version| version == "TLSv1.3");
        let old = protocols
            .args
            .iter()
            .any(|version| matches!(version.as_str(), "SSLv2" | "SSLv3" | "TLSv1" | "TLSv1.1"));
        match old {
            true => cx.approximated(protocols, "TLS 1.2 and 1.3 only"),
            false => cx.converted(protocols, "tls.min_version of the listener"),
        }
        if new {
            node = node.with("min_version", text("1.3"));
        }
    }
    node
}

/// Whether the gateway accepts the TLS of a listener.
fn accepted_tls(tls: &Node) -> Result<(), String> {
    let listener = map().with("address", text("127.0.0.1:443")).with("tls", tls.clone());
    accepted::top_field("listen", &list([listener]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_listen() {
        for (written, expected) in [
            ("80", Some("0.0.0.0:80")),
            ("*:8080", Some("0.0.0.0:8080")),
            ("127.0.0.1:8080", Some("127.0.0.1:8080")),
            ("127.0.0.1", Some("127.0.0.1:80")),
            ("[::]:443", Some("[::]:443")),
            ("[::1]", Some("[::1]:80")),
            ("localhost:9000", Some("127.0.0.1:9000")),
            ("unix:/run/nginx.sock", Some("unix:/run/nginx.sock")),
            ("api.example.com:80", None),
            ("99999", None),
        ] {
            assert_eq!(address(written).as_deref(), expected, "{written}");
        }
    }
}
