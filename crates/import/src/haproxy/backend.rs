//! Backends as upstreams.

use super::parse::{Line, Section};
use super::server::{Server, server};
use super::units::{duration, milliseconds};
use crate::accepted;
use crate::marks::Marks;
use crate::yaml::{Node, list, map, text};

/// The upstream of a section; `None` if it has no server that the gateway can use.
pub(super) fn upstream(section: &Section, ca_base: &str, marks: &mut Marks) -> Option<Node> {
    let default: Vec<String> = section
        .lines
        .iter()
        .filter(|line| line.word(0) == "default-server")
        .flat_map(|line| line.from(1).to_vec())
        .collect();
    for line in section.lines.iter().filter(|line| line.word(0) == "default-server") {
        marks.converted(line.id, "parameters of the servers below it");
    }
    let mut servers: Vec<(Server, &Line)> = Vec::new();
    for line in section.lines.iter().filter(|line| matches!(line.word(0), "server" | "server-template")) {
        match server(line, &default) {
            Ok(found) => servers.push((found, line)),
            Err((outcome, why)) => marks.mark(line.id, outcome, why),
        }
    }
    let (first, _) = servers.first()?;
    let (tls, http2) = (first.tls, first.http2);
    servers.retain(|(server, line)| {
        let fits = server.tls == tls && server.http2 == http2;
        if !fits {
            marks.unsupported(
                line.id,
                "left out: the servers of an upstream agree in TLS and HTTP/2; write an upstream of its own",
            );
        }
        fits
    });
    let mut addresses: Vec<String> = Vec::new();
    servers.retain(|(server, line)| {
        let again = addresses.iter().any(|address| address == server.address());
        if again {
            marks.approximated(
                line.id,
                "left out: another server has this address; raise the weight of that one",
            );
        }
        addresses.push(server.address().to_owned());
        !again
    });
    for (server, line) in &servers {
        match server.differs.as_slice() {
            [] => marks.converted(line.id, "a server of its upstream"),
            differs => {
                marks.approximated(line.id, format!("a server of its upstream; {}", differs.join("; ")))
            }
        }
    }
    let all: Vec<_> = servers.iter().map(|(server, _)| server).collect();
    let mut node = map().with(
        "servers",
        list(servers.iter().map(|(server, line)| server.node().source(&line.source))).block(),
    );
    let mut add = |field: &str, value: Node| {
        if accepted::upstream_field(field, &value, tls).is_ok() {
            node.insert(field, value);
        }
    };
    if let Some(value) = balance(section, marks) {
        add("balance", value);
    }
    if let Some(value) = health(section, &all, marks) {
        add("health", value);
    }
    if let Some(most) = all.iter().filter_map(|server| server.max_connections).min() {
        add("max_connections", text(most));
    }
    if http2 {
        add("protocol", text("http2"));
    }
    if let Some(version) = all.iter().find_map(|server| server.proxy_protocol) {
        add("proxy_protocol", text(version));
    }
    if let Some(value) = all[0].tls_node(ca_base) {
        add("tls", value);
    }
    let timeouts = timeouts(section, marks);
    if !timeouts.is_empty() {
        add("timeouts", timeouts);
    }
    Some(node.source(&section.line.source))
}

fn balance(section: &Section, marks: &mut Marks) -> Option<Node> {
    let stick =
        section.lines.iter().rfind(|line| line.word(0) == "stick" && matches!(line.word(1), "on" | "match"));
    let cookie = section.lines.iter().rfind(|line| line.word(0) == "cookie");
    let hash = |key: &str| Some(map().with("hash", text(key)));
    if let Some(line) = stick {
        for line in section.lines.iter().filter(|line| line.word(0) == "stick") {
            marks.approximated(line.id, "balance: {hash: …}: a client has the same server as long as the servers stay; HAProxy remembers the first server of each");
        }
        for line in section.lines.iter().filter(|line| line.word(0) == "stick-table") {
            marks.ignored(line.id, "it is for `stick`; a hash needs no table");
        }
        for line in section.lines.iter().filter(|line| line.word(0) == "balance") {
            marks.ignored(line.id, "`stick` decides");
        }
        let (fetch, argument) = line.word(2).split_once('(').unwrap_or((line.word(2), ""));
        let argument = argument.trim_end_matches(')');
        return match fetch {
            "req.cook" | "cook" | "req.cook_sub" => hash(&format!("cookie:{argument} | ip")),
            "hdr" | "req.hdr" => hash(&format!("header:{argument} | ip")),
            "url_param" | "urlp" => hash(&format!("query:{argument} | ip")),
            _ => hash("ip"),
        };
    }
    if let Some(line) = cookie {
        marks.approximated(line.id, "balance: {hash: ip}: the gateway sets no cookie. Where clients have a cookie of their own, `hash: \"cookie:NAME | ip\"` is better");
        return hash("ip");
    }
    let line = section.lines.iter().rfind(|line| line.word(0) == "balance")?;
    let (word, argument) = line.word(1).split_once('(').unwrap_or((line.word(1), ""));
    let argument = if argument.is_empty() { line.word(2) } else { argument.trim_end_matches(')') };
    let (node, text_of): (Option<Node>, &str) = match word {
        "roundrobin" | "static-rr" => (None, "the default: round_robin"),
        "leastconn" => (Some(text("least_requests")), "balance: least_requests"),
        "random" => (Some(text("random")), "balance: random"),
        "source" => (hash("ip"), "balance: {hash: ip}"),
        "uri" => (hash("path"), "balance: {hash: path}"),
        "url_param" => (hash(&format!("query:{argument}")), "balance: {hash: …}"),
        "hdr" => (hash(&format!("header:{argument}")), "balance: {hash: …}"),
        "hash" if argument == "src" => (hash("ip"), "balance: {hash: ip}"),
        _ => {
            marks.unsupported(line.id, format!("servers are chosen in turn: there is no `balance: {word}`"));
            return None;
        }
    };
    marks.converted(line.id, text_of);
    node
}

fn health(section: &Section, servers: &[&Server], marks: &mut Marks) -> Option<Node> {
    let option = section.lines.iter().rfind(|line| line.word(0) == "option" && line.word(1) == "httpchk");
    let checked = servers.iter().find(|server| server.check);
    let (Some(option), Some(server)) = (option, checked) else {
        if let Some(option) = option {
            marks.ignored(option.id, "none of its servers has `check`");
        }
        if checked.is_some() {
            marks.report.note("`check` without option httpchk only opens connections; here a server is ejected after failed requests, and `health: {path: …}` asks for a path");
        }
        return None;
    };
    let (mut method, mut path) = match (option.word(2), option.word(3)) {
        ("", _) => ("OPTIONS".to_owned(), "/".to_owned()),
        (path, "") => ("OPTIONS".to_owned(), path.to_owned()),
        (method, path) => (method.to_owned(), path.to_owned()),
    };
    let mut node = map();
    let mut status = None;
    for line in section.lines.iter().filter(|line| line.word(0) == "http-check") {
        match line.word(1) {
            "send" => {
                for (at, word) in line.words.iter().enumerate() {
                    match (word.as_str(), line.word(at + 1)) {
                        ("meth", value) => value.clone_into(&mut method),
                        ("uri", value) => value.clone_into(&mut path),
                        ("hdr", value) if value.eq_ignore_ascii_case("host") => {
                            node.insert("host", text(line.word(at + 2)))
                        }
                        _ => {}
                    }
                }
                marks.converted(line.id, "health");
            }
            "expect" => match (line.word(2), line.word(3)) {
                ("status", value) => {
                    status = Some(list(value.split(',').map(text)));
                    marks.converted(line.id, "health.status");
                }
                _ => marks.unsupported(line.id, "a health check looks at the status only"),
            },
            "disable-on-404" => marks.ignored(line.id, "a server that answers 404 is unhealthy"),
            _ => marks.unsupported(line.id, "a health check is one GET"),
        }
    }
    if option.word(4).contains("Host:") || option.words.last().is_some_and(|word| word.contains("\nHost:")) {
        let host = option.words.iter().find_map(|word| word.split("Host:").nth(1)).unwrap_or_default().trim();
        if !host.is_empty() {
            node.insert("host", text(host));
        }
    }
    match method.as_str() {
        "GET" => marks.converted(option.id, "health"),
        other => marks.approximated(option.id, format!("health; a check is a GET, not {other}")),
    }
    let status = status.unwrap_or_else(|| list([text("200-399")]));
    let entries = node.into_entries();
    let node =
        entries.into_iter().fold(map().with("path", text(path)), |node, (key, value)| node.with(key, value));
    let node = node
        .with("every", text(server.every.clone().unwrap_or_else(|| "2s".to_owned())))
        .with("healthy", text(server.rise.unwrap_or(2)))
        .with("unhealthy", text(server.fall.unwrap_or(3)))
        .with("status", status);
    match accepted::upstream_field("health", &node, false) {
        Ok(()) => Some(node.source(&option.source)),
        Err(why) => {
            marks.unsupported(option.id, why);
            None
        }
    }
}

fn timeouts(section: &Section, marks: &mut Marks) -> Node {
    let mut node = map();
    let fields: [(&str, &[&str]); 3] =
        [("connect", &["connect"]), ("server", &["response", "idle"]), ("tunnel", &["tunnel"])];
    for (word, names) in fields {
        let Some(line) = section.lines.iter().rfind(|line| line.word(0) == "timeout" && line.word(1) == word)
        else {
            continue;
        };
        let Some(time) = milliseconds(line.word(2)).filter(|time| *time > 0) else {
            marks.unsupported(line.id, "it is not a time; the gateway always has timeouts");
            continue;
        };
        for field in names {
            match accepted::upstream_field("timeouts", &map().with(*field, text(duration(time))), false) {
                Ok(()) => {
                    node.insert(*field, text(duration(time)));
                    marks.converted(
                        line.id,
                        format!("timeouts.{} of the upstreams", names.join(" and timeouts.")),
                    );
                }
                Err(why) => marks.unsupported(line.id, why),
            }
        }
    }
    node
}
