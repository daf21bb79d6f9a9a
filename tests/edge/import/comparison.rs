//! The same requests to nginx or HAProxy and to a gateway with the result of its import.
//!
//! `requests.txt` of a case has lines such as these; the requests of a line are sent at once:
//!
//! ```text
//! send 5 GET /path host=api.example.com from=127.0.0.2 port=8443 Header:value
//! wait 1200ms
//! differs TEXT            the next line has other statuses, and the report says TEXT
//! ```

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustls::ClientConfig;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use super::haproxy::{self, Haproxy};
use super::nginx::{self, Nginx, PORTS, UPSTREAM};
use super::{cases, cases_of};
use crate::harness::tls::{Authority, TlsClient};
use crate::harness::{Seen, Setup, Stopwatch, Upstream, deadline, in_parallel, sleep};

/// Requests of one line that took longer were not sent at once: a limit may have admitted one more meanwhile.
const AT_ONCE: Duration = Duration::from_millis(400);

/// The path of health checks, which come at other times.
const HEALTH: &str = "/healthz";

/// How often a case is played, until the machine was fast enough.
const TRIES: usize = 5;

/// A line of requests.txt.
pub(super) enum Line {
    Send(Burst),
    Wait(Duration),
    Differs(String),
}

/// The program that a configuration is for.
#[derive(Clone, Copy)]
enum Peer {
    Nginx(&'static str),
    Haproxy(&'static str),
}

/// It is running.
enum Running {
    Nginx(Nginx),
    Haproxy(Haproxy),
}

impl Peer {
    fn start(self, case: &Path, replace: &dyn Fn(&str) -> String) -> Running {
        match self {
            Self::Nginx(program) => Running::Nginx(Nginx::start(program, case, replace)),
            Self::Haproxy(program) => Running::Haproxy(Haproxy::start(program, case, replace)),
        }
    }

    /// The status of refusals without one in the configuration, and what the report says of it.
    fn default_refusal(self) -> (u16, &'static str) {
        match self {
            Self::Nginx(_) => (503, "refused requests are answered 429 with Retry-After; nginx answers 503"),
            Self::Haproxy(_) => (
                403,
                "refused requests are answered 429 with Retry-After where the rule names no status; HAProxy answers 403",
            ),
        }
    }
}

impl Running {
    fn addresses(&self) -> [SocketAddr; 2] {
        match self {
            Self::Nginx(nginx) => nginx.addresses,
            Self::Haproxy(haproxy) => haproxy.addresses,
        }
    }
}

/// Requests that are sent at once.
pub(super) struct Burst {
    count: usize,
    method: String,
    target: String,
    host: String,
    from: String,
    port: usize,
    headers: Vec<(String, String)>,
    /// Whether they are held by the upstream, so that their time means nothing.
    held: bool,
}

pub(super) fn lines(text: &str) -> Vec<Line> {
    text.lines().map(|line| line.trim()).filter(|line| !line.is_empty()).map(parsed).collect()
}

fn parsed(line: &str) -> Line {
    let words: Vec<_> = line.split(' ').collect();
    match words[0] {
        "wait" => Line::Wait(Duration::from_millis(words[1].trim_end_matches("ms").parse().unwrap())),
        "differs" => Line::Differs(words[1..].join(" ")),
        "send" | "hold" => {
            let mut burst = Burst {
                count: words[1].parse().unwrap(),
                method: words[2].to_owned(),
                target: words[3].to_owned(),
                host: "localhost".to_owned(),
                from: "127.0.0.1".to_owned(),
                port: 0,
                headers: Vec::new(),
                held: words[0] == "hold",
            };
            for word in &words[4..] {
                match word.split_once('=') {
                    Some(("host", host)) => host.clone_into(&mut burst.host),
                    Some(("from", from)) => from.clone_into(&mut burst.from),
                    Some(("port", port)) => {
                        burst.port = PORTS.iter().position(|known| *known == port).unwrap()
                    }
                    _ => {
                        let (name, value) = word.split_once(':').unwrap();
                        burst.headers.push((name.to_owned(), value.to_owned()));
                    }
                }
            }
            Line::Send(burst)
        }
        other => panic!("{other}: {line}"),
    }
}

/// What became of the requests of a line.
pub(super) struct Outcome {
    pub(super) statuses: Vec<u16>,
    /// What reached the upstream, in the order of the alphabet.
    seen: Vec<String>,
}

/// The results of each line, in order, and whether all were sent at once.
pub(super) fn play(
    lines: &[Line],
    addresses: [SocketAddr; 2],
    tls: &Arc<ClientConfig>,
    upstream: &Upstream,
) -> (Vec<Outcome>, bool) {
    let mut in_time = true;
    let mut results = Vec::new();
    let mut before = 0;
    for line in lines {
        match line {
            Line::Wait(time) => sleep(*time), // limits measure time
            Line::Differs(_) => {}
            Line::Send(burst) => {
                let watch = Stopwatch::start();
                let mut found: Vec<_> = in_parallel(burst.count, |_| {
                    let sent = send(burst, addresses[burst.port], tls);
                    (sent, watch.elapsed())
                })
                .into_iter()
                .map(|(status, took)| {
                    // What waits in a queue takes its time; what is refused does not.
                    in_time &= burst.held || status == 200 || took < AT_ONCE;
                    status
                })
                .collect();
                found.sort_unstable();
                let all = upstream.seen();
                let seen = targets(&all[before..], burst);
                before = all.len();
                results.push(Outcome { statuses: found, seen });
            }
        }
    }
    (results, in_time)
}

/// The status of one request on a connection of its own; 0 if there is no answer.
fn send(burst: &Burst, address: SocketAddr, tls: &Arc<ClientConfig>) -> u16 {
    let mut headers = vec![("Host", burst.host.as_str()), ("Content-Length", "0"), ("Connection", "close")];
    headers.extend(burst.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    if burst.port == 1 {
        let mut client = TlsClient::connect(tls, address, &burst.host, b"").unwrap();
        return client.ask(&burst.target, &headers).unwrap().0;
    }
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&format!("{}:0", burst.from).parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.connect_timeout(&address.into(), deadline()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(deadline())).unwrap();
    stream.write_all(&crate::harness::client::head(&burst.method, &burst.target, &headers)).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer); // a connection that is closed without an answer has no status
    let status = String::from_utf8_lossy(&answer).split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or(0)
}

/// Answers 200; `/slow` in a path holds a request for long enough that others come meanwhile.
pub(super) fn upstream() -> Upstream {
    Upstream::scripted(|exchange| {
        if exchange.seen.target.contains("slow") {
            sleep(Duration::from_secs(1));
        }
        exchange.answer(200, &[], b"ok");
    })
}

/// An authority with the certificate of `api.example.com` and other hosts.
pub(super) static AUTHORITY: LazyLock<(Arc<ClientConfig>, String, String, String)> = LazyLock::new(|| {
    let authority = Authority::new();
    let signed = authority.sign(&["api.example.com", "other.example.com", "open.example.com"]);
    (Arc::new(authority.client(None)), signed.cert, signed.key, authority.pem())
});

/// The requests that an upstream has got, each with those headers that the client has sent, too, in the order of the alphabet.
fn targets(seen: &[Seen], burst: &Burst) -> Vec<String> {
    let own = |name: &&str| !["x-forwarded-for", "x-real-ip"].contains(name); // each proxy writes them in its way
    let names: Vec<_> = burst.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    let one = |seen: &Seen| {
        let headers = names.iter().map(String::as_str).filter(own);
        let headers: Vec<_> =
            headers.map(|name| format!(" {name}: {}", seen.head.all(name).join(", "))).collect();
        format!("{} {}{}", seen.method, seen.target, headers.concat())
    };
    let mut targets: Vec<_> = seen.iter().filter(|seen| seen.target != HEALTH).map(one).collect();
    targets.sort();
    targets
}

/// What became of each line.
struct Played {
    peer: Vec<Outcome>,
    gateway: Vec<Outcome>,
    in_time: bool,
}

fn played(peer: Peer, case: &Path, lines: &[Line]) -> Played {
    let (tls, cert, key, ca) = &*AUTHORITY;
    let certificates = TempDir::new().unwrap();
    std::fs::write(certificates.path().join("api.pem"), cert).unwrap();
    std::fs::write(certificates.path().join("api.key"), key).unwrap();
    std::fs::write(certificates.path().join("ca.pem"), ca).unwrap();
    std::fs::write(certificates.path().join("site.pem"), format!("{cert}{key}")).unwrap();
    let servers = [upstream(), upstream()];
    let replace = |text: &str, upstream: &Upstream| {
        let folder = certificates.path().display().to_string();
        let text = text.replace(UPSTREAM, &upstream.address.to_string());
        text.replace("/etc/nginx/tls", &folder).replace("/etc/haproxy/tls", &folder)
    };
    let running = peer.start(case, &|text| replace(text, &servers[0]));
    let mut yaml = replace(&std::fs::read_to_string(case.join("gateway.yaml")).unwrap(), &servers[1]);
    for (port, name) in PORTS.iter().zip(["{edge}", "{edge2}"]) {
        yaml = yaml.replace(&format!("0.0.0.0:{port}"), &format!("\"{name}\""));
    }
    let gateway = files_of(case)
        .into_iter()
        .fold(Setup::default(), |setup, (name, text)| setup.file(&name, &text))
        .start(&yaml);
    let (of_peer, of_gateway) = std::thread::scope(|scope| {
        let first = scope.spawn(|| play(lines, running.addresses(), tls, &servers[0]));
        let second = play(lines, [gateway.edge, gateway.edge2], tls, &servers[1]);
        (first.join().unwrap(), second)
    });
    Played { in_time: of_peer.1 && of_gateway.1, peer: of_peer.0, gateway: of_gateway.0 }
}

/// The files beside the configuration of a case, such as lists of addresses.
fn files_of(case: &Path) -> Vec<(String, String)> {
    let paths = std::fs::read_dir(case).unwrap().map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.extension().is_some_and(|end| end == "lst"));
    files
        .map(|path| {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap())
        })
        .collect()
}

/// Compares one case; `None` if they agree.
fn difference(program: Peer, case: &Path) -> Option<String> {
    let lines = lines(&std::fs::read_to_string(case.join("requests.txt")).unwrap());
    let report = std::fs::read_to_string(case.join("report.txt")).unwrap();
    let said = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut tries = std::iter::repeat_with(|| played(program, case, &lines)).take(TRIES);
    let Some(Played { peer, gateway, .. }) = tries.find(|played| played.in_time) else {
        return Some(format!("the requests of a line took longer than {AT_ONCE:?}, {TRIES} times"));
    };
    // Another status of refusals is our 429 if the report says so.
    let (refusal, text) = program.default_refusal();
    let named = said.contains(text);
    let mapped = |status: &u16| if named && *status == refusal { 429 } else { *status };
    let (mut sent, mut differs) = (0, None);
    for line in &lines {
        match line {
            Line::Wait(_) => {}
            Line::Differs(text) => differs = Some(text),
            Line::Send(burst) => {
                let (one, two): (Vec<u16>, _) =
                    (peer[sent].statuses.iter().map(mapped).collect(), &gateway[sent].statuses);
                let (seen, seen_two) = (&peer[sent].seen, &gateway[sent].seen);
                let shown = format!(
                    "{} {} {}: its program {one:?}, gateway {two:?}",
                    burst.count, burst.method, burst.target
                );
                match differs.take() {
                    Some(text) if one == *two => {
                        return Some(format!("{shown}: no difference, contrary to `{text}`"));
                    }
                    Some(text) if !said.contains(text) => {
                        return Some(format!("{shown}: the report does not say `{text}`"));
                    }
                    None if one != *two => return Some(shown),
                    None if seen != seen_two => {
                        return Some(format!(
                            "{shown}: the upstreams got {seen:?} from its program, and {seen_two:?} from the gateway"
                        ));
                    }
                    Some(_) | None => {}
                }
                sent += 1;
            }
        }
    }
    None
}

/// Compares all cases in a folder.
fn compare(peer: Peer, mut folders: Vec<PathBuf>) {
    folders.sort();
    let differences: Vec<_> = folders
        .chunks(4)
        .flat_map(|chunk| in_parallel(chunk.len(), |at| (chunk[at].clone(), difference(peer, &chunk[at]))))
        .filter_map(|(case, difference)| Some(format!("{}: {}", case.display(), difference?)))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn results_answer_as_nginx_does() {
    let Some(program) = nginx::installed() else {
        eprintln!("SKIPPED: nginx is not installed; the results of imports were not compared with it");
        return;
    };
    let folders: Vec<_> = std::fs::read_dir(cases()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(folders.len() >= 20, "{}", folders.len());
    compare(Peer::Nginx(program), folders);
}

#[test]
fn results_answer_as_haproxy_does() {
    let Some(program) = haproxy::installed() else {
        eprintln!("SKIPPED: HAProxy is not installed; the results of imports were not compared with it");
        return;
    };
    let folders = cases_of("haproxy");
    assert!(folders.len() >= 6, "{}", folders.len());
    compare(Peer::Haproxy(program), folders);
}
