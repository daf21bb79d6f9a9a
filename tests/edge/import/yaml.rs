//! What gateways with the results of imports from YAML answer: the statuses, servers and paths that the documentation of the source
//! promises, written down in requests.txt of each case.
//!
//! ```text
//! # what the source does
//! send 3 GET /path host=a.example.com from=127.0.0.2 Header:value -> 200*2 429 by=server to=/forwarded
//! ```
//!
//! The requests of a line are sent at once, or with `in-turn` one after the other; `hold` is for requests that the server holds. `by`
//! names the servers that got them, `to` the path that they got.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::harness::tls::Authority;
use crate::harness::{Gateway, Setup, Upstream, client, deadline, in_parallel, sleep};

/// A line of requests.txt.
struct Line {
    shown: String,
    count: usize,
    method: String,
    target: String,
    host: String,
    from: String,
    headers: Vec<(String, String)>,
    in_turn: bool,
    statuses: Vec<u16>,
    servers: BTreeMap<String, usize>,
    path: Option<String>,
}

fn lines(text: &str) -> Vec<Line> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(line).collect()
}

fn line(shown: &str) -> Line {
    let (request, expected) = shown.split_once(" -> ").unwrap();
    let words: Vec<_> = request.split(' ').collect();
    let mut line = Line {
        shown: shown.to_owned(),
        count: words[1].parse().unwrap(),
        method: words[2].to_owned(),
        target: words[3].to_owned(),
        host: "localhost".to_owned(),
        from: "127.0.0.1".to_owned(),
        headers: Vec::new(),
        in_turn: false,
        statuses: Vec::new(),
        servers: BTreeMap::new(),
        path: None,
    };
    for word in &words[4..] {
        match word.split_once('=') {
            Some(("host", host)) => host.clone_into(&mut line.host),
            Some(("from", from)) => from.clone_into(&mut line.from),
            _ if *word == "in-turn" => line.in_turn = true,
            _ => {
                let (name, value) = word.split_once(':').unwrap();
                line.headers.push((name.to_owned(), value.to_owned()));
            }
        }
    }
    let times = |text: &str| match text.split_once('*') {
        Some((one, count)) => (one.to_owned(), count.parse().unwrap()),
        None => (text.to_owned(), 1),
    };
    for word in expected.split(' ') {
        if let Some(servers) = word.strip_prefix("by=") {
            line.servers = servers.split(',').map(times).collect();
            if let (1, Some(only)) = (line.servers.len(), line.servers.values_mut().next()) {
                *only = line.count;
            }
        } else if let Some(path) = word.strip_prefix("to=") {
            line.path = Some(path.to_owned());
        } else {
            let (status, count) = times(word);
            line.statuses.extend(vec![status.parse::<u16>().unwrap(); count]);
        }
    }
    line.statuses.sort_unstable();
    assert_eq!(line.statuses.len(), line.count, "{shown}");
    line
}

/// Sends one request on a connection of its own.
fn send(line: &Line, address: SocketAddr) -> u16 {
    let mut headers = vec![("Host", line.host.as_str()), ("Content-Length", "0"), ("Connection", "close")];
    headers.extend(line.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&format!("{}:0", line.from).parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.connect_timeout(&address.into(), deadline()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(deadline())).unwrap();
    stream.write_all(&client::head(&line.method, &line.target, &headers)).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer); // a connection that is closed without an answer has no status
    let status = String::from_utf8_lossy(&answer).split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or(0)
}

/// A gateway with a result, in front of a server for each one that the result names.
struct Played {
    gateway: Gateway,
    servers: Vec<(String, Upstream)>,
}

/// The values that follow a word in a text of YAML.
fn values(text: &str, word: &str) -> Vec<String> {
    let rest = text.match_indices(word).map(|(at, _)| &text[at + word.len()..]);
    let mut found: Vec<_> = rest
        .map(|rest| rest[..rest.find([',', '}', ']', ' ', '\n', '"']).unwrap_or(rest.len())].to_owned())
        .collect();
    found.sort();
    found.dedup();
    found
}

fn start(case: &Path) -> Played {
    let mut yaml = std::fs::read_to_string(case.join("gateway.yaml")).unwrap();
    let urls = yaml
        .lines()
        .filter(|line| line.contains("servers:") || line.contains("- {url:"))
        .collect::<Vec<_>>()
        .join("\n");
    let mut servers = Vec::new();
    for address in values(&urls, "http://") {
        let upstream = Upstream::scripted(|exchange| {
            if exchange.seen.target.contains("slow") {
                sleep(Duration::from_secs(1)); // others come meanwhile
            }
            exchange.answer(200, &[], b"ok");
        });
        yaml = yaml.replace(&format!("http://{address}"), &format!("http://{}", upstream.address));
        let host = address.split(':').next().unwrap();
        let name = if host.starts_with(|c: char| c.is_ascii_digit()) {
            host
        } else {
            host.split('.').next().unwrap()
        };
        servers.push((name.to_owned(), upstream));
    }
    let listen = yaml.split("\n\n").find(|part| part.starts_with("listen:")).unwrap().to_owned();
    let mut own = listen.clone();
    for (address, name) in values(&listen, "0.0.0.0:").iter().zip(addresses(&listen)) {
        own = own.replace(&format!("0.0.0.0:{address}}}"), &format!("\"{name}\"}}"));
        own = own.replace(&format!("0.0.0.0:{address}\n"), &format!("\"{name}\"\n"));
        own = own.replace(&format!("0.0.0.0:{address} "), &format!("\"{name}\" "));
    }
    // One worker, so that servers have their turns over all requests.
    let mut setup = Setup::default().workers(1);
    let signed = Authority::new().sign(&["shop.example.com"]);
    for (word, text) in [("cert: ", &signed.cert), ("key: ", &signed.key)] {
        for file in values(&own, word) {
            let name = file.rsplit('/').next().unwrap();
            own = own.replace(&file, name);
            setup = setup.file(name, text);
        }
    }
    Played { gateway: setup.start(&yaml.replace(&listen, &own)), servers }
}

/// Ports in the order of their numbers, which are those of the listeners without TLS first.
fn addresses(listen: &str) -> Vec<&'static str> {
    assert!(values(listen, "0.0.0.0:").len() <= 2, "{listen}");
    match values(listen, "0.0.0.0:").first().map(String::as_str) {
        Some("443") => vec!["{edge2}", "{edge}"], // as text, 443 comes before 80
        _ => vec!["{edge}", "{edge2}"],
    }
}

/// Plays a case; the lines that were answered otherwise.
fn differences(case: &Path) -> Vec<String> {
    let played = start(case);
    let mut found = Vec::new();
    for line in lines(&std::fs::read_to_string(case.join("requests.txt")).unwrap()) {
        let before: Vec<_> = played.servers.iter().map(|(_, server)| server.seen().len()).collect();
        let one = |_| send(&line, played.gateway.edge);
        let mut statuses = if line.in_turn || !line.servers.is_empty() {
            (0..line.count).map(one).collect()
        } else {
            in_parallel(line.count, one)
        };
        statuses.sort_unstable();
        let mut differs = |what: &str, got: String| {
            found.push(format!("{}: {}: {what}: {got}", case.display(), line.shown));
        };
        if statuses != line.statuses {
            differs("statuses", format!("{statuses:?}\n{}", played.gateway.log()));
        }
        let seen = |index: usize| played.servers[index].1.seen().split_off(before[index]);
        if !line.servers.is_empty() {
            let counts = (0..before.len()).map(|index| (played.servers[index].0.clone(), seen(index).len()));
            let counts: BTreeMap<_, _> = counts.filter(|(_, count)| *count > 0).collect();
            if counts != line.servers {
                differs("servers", format!("{counts:?}"));
            }
        }
        if let Some(path) = &line.path {
            let targets: Vec<_> = (0..before.len()).flat_map(seen).map(|seen| seen.target).collect();
            if targets.iter().any(|target| target != path) || targets.is_empty() {
                differs("paths", format!("{targets:?}"));
            }
        }
    }
    found
}

fn folders(source: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import").join(source);
    let mut found: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    assert!(found.len() >= 6, "{source}: {}", found.len());
    found
}

fn answers_as_documented(source: &str) {
    let found: Vec<_> = folders(source)
        .chunks(3)
        .flat_map(|chunk| in_parallel(chunk.len(), |at| differences(&chunk[at])))
        .flatten()
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn results_of_ratelimit_answer_as_documented() {
    answers_as_documented("ratelimit");
}

#[test]
fn results_of_kubernetes_answer_as_documented() {
    answers_as_documented("kubernetes");
}

#[test]
fn results_of_traefik_answer_as_documented() {
    answers_as_documented("traefik");
}
