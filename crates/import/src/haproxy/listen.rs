//! `bind`: the listeners.

use super::acl::Acls;
use super::parse::{Line, Section};
use super::rules::connections;
use crate::accepted;
use crate::files::Files;
use crate::marks::Marks;
use crate::names::{name, unused};
use crate::yaml::{Node, boolean, list, map, text};

/// A listener.
pub(super) struct Listener {
    pub(super) name: String,
    address: String,
    pub(super) port: String,
    pub(super) tls: bool,
    /// The number of its frontend.
    pub(super) section: usize,
    node: Node,
}

/// What `bind` lines need of the section `global`.
#[derive(Default)]
pub(super) struct Bases {
    pub(super) crt: String,
    pub(super) ca: String,
    /// Whether TLS 1.2 is refused.
    pub(super) tls_1_3: bool,
}

/// Parameters of `bind` that have a value and no effect on the result.
const IGNORED: [&str; 27] = [
    "alpn",
    "npn",
    "ssl-max-ver",
    "name",
    "process",
    "thread",
    "interface",
    "ciphers",
    "ciphersuites",
    "curves",
    "ecdhe",
    "mss",
    "backlog",
    "user",
    "group",
    "mode",
    "uid",
    "gid",
    "level",
    "nice",
    "tcp-ut",
    "id",
    "proto",
    "namespace",
    "shards",
    "severity-output",
    "sigalgs",
];

/// Adds the listeners of a section.
pub(super) fn listeners(
    section: &Section,
    number: usize,
    bases: &Bases,
    files: &dyn Files,
    out: &mut Vec<Listener>,
    marks: &mut Marks,
) {
    let per_ip = connections_per_ip(section, files, marks);
    let most = section.lines.iter().rfind(|line| line.word(0) == "maxconn");
    for line in section.lines.iter().filter(|line| line.word(0) == "bind") {
        let (fields, tls) = match parameters(line, bases, files) {
            Ok(found) => found,
            Err(why) => {
                marks.unsupported(line.id, why);
                continue;
            }
        };
        for written in line.word(1).split(',') {
            let Some((address, port)) = address(written) else {
                marks.unsupported(
                    line.id,
                    format!("the gateway does not listen on `{written}`: write an IP address and one port"),
                );
                continue;
            };
            if out.iter().any(|known| known.address == address) {
                marks.unsupported(line.id, format!("left out: another `bind` has the address {address}"));
                continue;
            }
            let mut node = fields
                .clone()
                .into_entries()
                .into_iter()
                .fold(map().with("address", text(&address)), |node, (key, value)| node.with(key, value));
            for (field, value) in [
                ("max_connections_per_ip", per_ip),
                ("max_connections", most.and_then(|line| line.word(1).parse().ok())),
            ] {
                if let Some(value) = value.filter(|value| *value > 0) {
                    node.insert(field, text(value));
                }
            }
            if let Err(why) = accepted::top_field("listen", &list([node.clone()])) {
                marks.unsupported(line.id, format!("left out: {why}"));
                continue;
            }
            marks.converted(line.id, format!("listen: {address}"));
            let wanted = name(&format!("{} {port}", section.name()));
            let taken = |name: &str| out.iter().any(|known: &Listener| known.name == name);
            let name = unused(&wanted, &taken);
            let node = node.source(&line.source);
            out.push(Listener { name, address, port, tls, section: number, node });
        }
    }
    if let Some(line) = most {
        marks.converted(
            line.id,
            "max_connections of its listeners; connections above that are closed, and do not wait",
        );
    }
}

/// The section `listen`.
pub(super) fn section(listeners: Vec<Listener>, named: bool) -> Node {
    let one = |listener: Listener| {
        if !named {
            return listener.node;
        }
        let comment = listener.node.comment_text();
        let entries = listener.node.into_entries();
        let node = entries
            .into_iter()
            .fold(map().with("name", text(&listener.name)), |node, (key, value)| node.with(key, value));
        match comment {
            Some(comment) => node.comment(comment),
            None => node,
        }
    };
    list(listeners.into_iter().map(one).collect::<Vec<_>>()).block()
}

/// An address of HAProxy as one of the gateway, and its port.
fn address(written: &str) -> Option<(String, String)> {
    let bare =
        ["ipv4@", "ipv6@", "tcp@"].iter().find_map(|prefix| written.strip_prefix(prefix)).unwrap_or(written);
    if let Some(path) = written.strip_prefix("unix@").or(written.starts_with('/').then_some(written)) {
        return Some((format!("unix:{path}"), String::new()));
    }
    let (host, port) = bare.rsplit_once(':')?;
    if port.is_empty() || !port.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let host = match host {
        "" | "*" => "0.0.0.0".to_owned(),
        "::" | "[::]" => "[::]".to_owned(),
        host if host.starts_with('[') || !host.contains(':') => host.to_owned(),
        host => format!("[{host}]"),
    };
    Some((format!("{host}:{port}"), port.to_owned()))
}

/// The fields of a listener that come from the parameters of `bind`, and whether it has TLS.
fn parameters(line: &Line, bases: &Bases, files: &dyn Files) -> Result<(Node, bool), String> {
    let (mut tls, mut certificates, mut client_ca, mut verify) = (false, Vec::new(), None, String::new());
    let (mut node, mut min_version) = (map(), bases.tls_1_3.then_some("1.3"));
    let mut at = 2;
    while at < line.words.len() {
        let value = line.word(at + 1);
        match line.word(at) {
            "ssl" => tls = true,
            "accept-proxy" => node.insert("proxy_protocol", boolean(true)),
            "v4v6"
            | "v6only"
            | "defer-accept"
            | "tfo"
            | "strict-sni"
            | "no-sslv3"
            | "no-tlsv10"
            | "no-tlsv11"
            | "no-tls-tickets"
            | "prefer-client-ciphers"
            | "allow-0rtt"
            | "transparent"
            | "generate-certificates" => {}
            "crt" => {
                certificates.extend(pairs(&based(&bases.crt, value), files)?);
                at += 1;
            }
            "crt-list" => {
                let path = based(&bases.crt, value);
                let listed = files.read(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
                let by_host =
                    |line: &str| ["verify", "ca-file", "ca-verify"].iter().any(|word| line.contains(word));
                if listed
                    .lines()
                    .any(|line| line.split_once('[').is_some_and(|(_, options)| by_host(options)))
                {
                    return Err(format!(
                        "left out: {path} asks for certificates of clients for some hosts only, and a listener does it for all: write `tls: {{client_ca: FILE}}`"
                    ));
                }
                for file in listed
                    .lines()
                    .filter_map(|line| line.split_whitespace().next())
                    .filter(|file| !file.starts_with('#'))
                {
                    certificates.extend(pairs(&based(&bases.crt, file), files)?);
                }
                at += 1;
            }
            "ca-file" => {
                client_ca = Some(based(&bases.ca, value));
                at += 1;
            }
            "verify" => {
                value.clone_into(&mut verify);
                at += 1;
            }
            "ssl-min-ver" | "force-tlsv13" | "force-tlsv12" => {
                if value == "TLSv1.3" || line.word(at) == "force-tlsv13" {
                    min_version = Some("1.3");
                }
                at += usize::from(line.word(at) == "ssl-min-ver");
            }
            "maxconn" => {
                node.insert("max_connections", text(value));
                at += 1;
            }
            word if IGNORED.contains(&word) => at += 1,
            other => return Err(format!("left out: `{other}` of bind has no equivalent")),
        }
        at += 1;
    }
    if tls {
        if certificates.is_empty() {
            return Err("left out: it names no certificate that could be found".to_owned());
        }
        let mut fields = map().with(
            "certificates",
            list(
                certificates
                    .into_iter()
                    .map(|(cert, key)| map().with("cert", text(cert)).with("key", text(key))),
            ),
        );
        if let Some(ca) = client_ca.filter(|_| matches!(verify.as_str(), "required" | "optional")) {
            fields.insert("client_ca", text(ca));
            if verify == "optional" {
                fields.insert("client_auth", text("optional"));
            }
        }
        if let Some(version) = min_version {
            fields.insert("min_version", text(version));
        }
        node.insert("tls", fields);
    }
    Ok((node, tls))
}

fn based(base: &str, path: &str) -> String {
    if base.is_empty() || path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{}/{path}", base.trim_end_matches('/'))
    }
}

/// The certificates of a file or a folder. A file of HAProxy has the key in it, or beside it in FILE.key.
fn pairs(path: &str, files: &dyn Files) -> Result<Vec<(String, String)>, String> {
    let listed = files.glob(&format!("{}/*", path.trim_end_matches('/')));
    let others = [".key", ".ocsp", ".issuer", ".sctl", ".crl"];
    let mut found: Vec<_> =
        listed.into_iter().filter(|file| !others.iter().any(|end| file.ends_with(end))).collect();
    if found.is_empty() {
        if path.ends_with('/') {
            return Err(format!("left out: no certificate was found in {path}; list the pairs by hand"));
        }
        found.push(path.to_owned());
    }
    let key = |file: &String| match files.read(file) {
        Ok(text) if !text.contains("PRIVATE KEY-----") => format!("{file}.key"),
        _ => file.clone(),
    };
    Ok(found.into_iter().map(|file| (file.clone(), key(&file))).collect())
}

/// `tcp-request connection reject if { src_conn_cur ge N }`: how many connections an address may have.
fn connections_per_ip(section: &Section, files: &dyn Files, marks: &mut Marks) -> Option<u64> {
    let acls = Acls::of(section, files, &mut Marks::default());
    let mut found = None;
    for line in section.lines.iter().filter(|line| line.word(0) == "tcp-request") {
        let condition = acls.condition(line, 3, files, &mut Marks::default());
        let Some(count) = connections(line, &condition) else { continue };
        found = Some(found.map_or(count, |known: u64| known.min(count)));
        match condition.as_slice() {
            [clause] if clause.len() == 1 => {
                marks.converted(line.id, "max_connections_per_ip of its listeners");
            }
            _ => marks.approximated(line.id, "max_connections_per_ip of its listeners, for all clients"),
        }
    }
    for line in section.lines.iter().filter(|line| found.is_some() && line.word(0) == "stick-table") {
        marks.converted(line.id, "max_connections_per_ip of the listeners");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_haproxy() {
        let found = |written: &str| address(written).map(|(address, _)| address);
        assert_eq!(found("*:80").as_deref(), Some("0.0.0.0:80"));
        assert_eq!(found(":::443").as_deref(), Some("[::]:443"));
        assert_eq!(found("ipv4@10.0.0.1:80").as_deref(), Some("10.0.0.1:80"));
        assert_eq!(found("unix@/run/a.sock").as_deref(), Some("unix:/run/a.sock"));
        assert_eq!((found(":80-90"), found("80"), found("fd@3")), (None, None, None));
    }
}
