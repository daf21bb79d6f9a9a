//! A new process takes over from the running one: no connection is refused, no request is lost, and a failure changes
//! nothing. The same for sockets from systemd.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::harness::client::refuses;
use crate::harness::load::count;
use crate::harness::{Client, Gateway, Load, Setup, Upstream, deadline, gated_upstream, until, within};

const FILE: &str =
    "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, upstream: api}]\n";

fn start(upstream: &Upstream) -> Gateway {
    Setup::default().upstream(upstream).handover().start(FILE)
}

/// Two upgrades in a row at 500 requests a second, on kept and on new connections: all are answered 200.
#[test]
fn two_upgrades_under_load_lose_nothing() {
    let upstream = Upstream::answering("done");
    let mut first = start(&upstream);
    let kept = Load::on(std::slice::from_ref(&first), 8).pause(Duration::from_millis(32)).start();
    let anew = Load::on(std::slice::from_ref(&first), 8).pause(Duration::from_millis(32)).anew().start();
    let some_more = || {
        let before = (kept.answered(), anew.answered());
        until("some more requests", || {
            (kept.answered() > before.0 + 50 && anew.answered() > before.1 + 50).then_some(())
        });
    };
    some_more();
    let mut second = first.successor();
    some_more();
    assert_eq!(first.ended(deadline()).code(), Some(0), "the first has ended");
    let third = second.successor();
    some_more();
    assert_eq!(second.ended(deadline()).code(), Some(0), "the second has ended");
    some_more();
    assert_eq!(third.admin_get("/readyz").status, 200);
    for (samples, connections) in [(kept.stop(), "kept"), (anew.stop(), "new")] {
        let lost: Vec<_> = samples.iter().filter(|sample| sample.status != 200).collect();
        assert!(
            lost.is_empty(),
            "{} of {} lost on {connections} connections: {lost:?}",
            lost.len(),
            samples.len()
        );
    }
    assert!(!second.log().contains("did not end in time"), "{}", second.log());
}

/// Requests in flight end in the process that began them, which then ends; a connection is told to come anew.
#[test]
fn requests_in_flight_end_in_the_old_process() {
    let (upstream, gate) = gated_upstream();
    let mut old = start(&upstream);
    let (mut slow, mut kept, mut idle) = (old.client(), old.client(), old.client());
    assert_eq!((kept.get("/").status, idle.get("/").status), (200, 200));
    slow.request("GET", "/slow", &[]);
    upstream.wait_for(3);
    let (new, mut kept) = std::thread::scope(|scope| {
        // It asks all the time, because the old process closes idle connections after two seconds.
        let asking = scope.spawn(move || {
            let ended = within(deadline() * 2, || {
                let answer = kept.get("/");
                assert_eq!(answer.status, 200);
                answer.header("connection").map(|value| assert_eq!(value, "close"))
            });
            ended.expect("the connection ends with an answer");
            kept
        });
        (old.successor(), asking.join().unwrap())
    });
    assert!(kept.is_closed());
    assert!(idle.is_closed(), "who does not come back is not waited for");
    assert_eq!(new.client().get("/").status, 200);
    gate.open();
    assert_eq!(slow.response().text(), "done");
    assert_eq!(old.ended(deadline()).code(), Some(0));
    assert_eq!(new.get("/").status, 200);
}

/// The admin API goes along, and the file that is read is the one that is there now.
#[test]
fn the_new_process_serves_the_admin_api() {
    let upstream = Upstream::answering("done");
    let old = start(&upstream);
    old.write(&FILE.replace("name: api, u", "name: renamed, u"));
    until("the file is in force", || (old.generation() == 2).then_some(()));
    let new = old.successor();
    assert_eq!(old.times_logged("draining: "), 1, "the old process has closed its admin API");
    until("only the new process answers", || (0..20).all(|_| new.generation() == 1).then_some(()));
    assert_eq!(new.admin_get("/config").json()["routes"][0]["name"], "renamed");
    assert_eq!(new.admin_get("/readyz").status, 200);
}

/// However many threads the two have, each socket is served.
#[test]
fn another_number_of_workers_serves_all_sockets() {
    let upstream = Upstream::answering("done");
    let mut gateway = Setup::default().upstream(&upstream).handover().workers(4).start(FILE);
    for workers in [1, 6, 2] {
        let next = gateway.successor_with_workers(workers);
        assert_eq!(gateway.ended(deadline()).code(), Some(0));
        for turn in 0..40 {
            assert_eq!(next.get("/").status, 200, "request {turn} with {workers} workers");
        }
        gateway = next;
    }
}

/// Listeners that the new file does not have are closed, and those that it has besides are opened.
#[test]
fn listeners_may_change_with_the_process() {
    let both = format!("listen: [\"{{edge}}\", \"{{edge2}}\"]\n{FILE}");
    let upstream = Upstream::answering("done");
    let mut old = Setup::default().upstream(&upstream).handover().start(&both);
    assert_eq!(Client::connect(old.edge2).get("/").status, 200);
    old.signal("STOP"); // so that it does not read the file itself
    old.write(&format!("listen: [\"{{edge}}\"]\n{FILE}"));
    old.signal("CONT");
    let mut new = old.successor();
    assert_eq!(old.ended(deadline()).code(), Some(0));
    refuses(old.edge2);
    assert_eq!(new.get("/").status, 200);
    new.signal("STOP");
    new.write(&both);
    new.signal("CONT");
    let last = new.successor();
    assert_eq!(new.ended(deadline()).code(), Some(0));
    assert_eq!((last.get("/").status, Client::connect(last.edge2).get("/").status), (200, 200));
}

/// Whoever cannot take over leaves everything as it was.
#[test]
fn a_successor_that_fails_changes_nothing() {
    let upstream = Upstream::answering("done");
    let old = start(&upstream);
    let mut kept = old.client();
    assert_eq!(kept.get("/").status, 200);
    let path = old.handover().display().to_string();

    // One that may not: it was not told where.
    let (code, said) = old.rival("gateway.yaml", &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains(&format!("cannot listen on {}: another socket has this address", old.edge)),
        "{said}"
    );
    assert!(said.contains("--handover"), "{said}");

    // One that asks and goes, one that asks and talks nonsense.
    drop(UnixStream::connect(old.handover()).unwrap());
    let mut odd = UnixStream::connect(old.handover()).unwrap();
    odd.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    until("it is told off", || (old.log().matches("did not take over").count() == 2).then_some(()));

    // One whose file is wrong, and one that needs an address that is taken.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let file = std::fs::read_to_string(old.path("gateway.yaml")).unwrap();
    for (text, exit) in [
        ("nonsense", 1),
        (&file.replacen("}]\n", &format!("}}, \"{}\"]\n", taken.local_addr().unwrap()), 1), 2),
    ] {
        std::fs::write(old.path("wrong.yaml"), text).unwrap();
        let (code, said) = old.rival("wrong.yaml", &["--handover", &path]);
        assert_eq!(code, Some(exit), "{said}");
    }
    assert_eq!((kept.get("/").status, old.get("/").status), (200, 200));
    assert_eq!(old.admin_get("/readyz").status, 200);
    let new = old.successor();
    assert_eq!(new.get("/").status, 200, "and one that is right can still come");
}

/// A process that ends soon after it took over leaves the old one serving, with its counters, and another one can come.
#[test]
fn a_successor_that_ends_early_is_replaced_by_the_old_process() {
    let file = "limits: {per-client: {key: ip, rate: 20/day}}\n\
                routes: [{name: api, respond: {status: 200}, limits: [per-client]}]\n";
    let mut old = Setup::default().handover_confirmed_after("1h").start(file);
    let remaining = || -> u64 {
        let answer = old.get("/");
        assert_eq!(answer.status, 200);
        answer.header("x-ratelimit-remaining").unwrap().parse().unwrap()
    };
    assert_eq!(remaining(), 19);
    for (turn, signal) in ["KILL", "TERM", "KILL"].into_iter().enumerate() {
        let mut new = old.successor();
        new.signal(signal);
        new.ended(deadline());
        let times = turn + 1;
        until("the old one serves", || (old.log().matches("serves again").count() == times).then_some(()));
        assert_eq!(remaining(), 18 - turn as u64, "its counters are as they were");
        assert_eq!(old.admin_get("/readyz").status, 200);
        until("the next one can come", || old.handover().exists().then_some(()));
    }
    // One that is taken over from has not failed.
    let mut next = old.successor();
    let last = next.successor();
    assert_eq!(old.ended(deadline()).code(), Some(0));
    next.signal("TERM");
    assert_eq!(next.ended(deadline()).code(), Some(0));
    assert_eq!(last.get("/").status, 200);
}

/// A connection that is made while nobody serves waits, and is served then.
#[test]
fn no_connection_is_refused_while_a_successor_dies() {
    let upstream = Upstream::answering("done");
    let old = Setup::default().upstream(&upstream).handover_confirmed_after("1h").start(FILE);
    for _ in 0..3 {
        let mut new = old.successor();
        new.signal("STOP");
        let stopped = || std::fs::read_to_string(new.proc("status")).unwrap().contains("State:\tT");
        until("it has stopped", || stopped().then_some(()));
        let mut waiting: Vec<Client> = (0..8).map(|_| old.client()).collect();
        for client in &mut waiting {
            client.request("GET", "/", &[]);
        }
        new.signal("KILL");
        new.ended(deadline());
        waiting.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    }
}

/// What a process that asks for the sockets does after it said that it serves, and whether the old one serves again.
#[test]
fn the_connection_says_whether_the_successor_lives() {
    let upstream = Upstream::answering("done");
    for (says, again) in [("", true), ("succeeded\n", false)] {
        let mut old = Setup::default().upstream(&upstream).handover_confirmed_after("1h").start(FILE);
        let mut successor = UnixStream::connect(old.handover()).unwrap();
        successor.set_read_timeout(Some(deadline())).unwrap();
        successor.write_all(format!("serving {}\n", old.edge).as_bytes()).unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(successor.try_clone().unwrap());
        while !said.ends_with("draining\n") {
            assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
        }
        successor.write_all(says.as_bytes()).unwrap();
        drop((successor, lines));
        match again {
            true => {
                until("it serves again", || old.log().contains("serves again").then_some(()));
                assert_eq!((old.get("/").status, old.admin_get("/readyz").status), (200, 200));
                let new = old.successor();
                assert_eq!(new.get("/").status, 200);
            }
            false => assert_eq!(old.ended(deadline()).code(), Some(0)),
        }
    }
}

/// A socket that a dead process left is no obstacle; a file that is none is not touched.
#[test]
fn only_safe_socket_paths_are_used() {
    let upstream = Upstream::answering("done");
    let mut gateway = start(&upstream);
    let path = gateway.handover();
    assert!(path.exists());
    gateway.signal("KILL");
    gateway.ended(deadline());
    let mut again = gateway.again();
    assert_eq!(again.get("/").status, 200);
    again.signal("TERM");
    assert_eq!(again.ended(deadline()).code(), Some(0));
    assert!(!path.exists(), "it cleans up");
    std::fs::write(&path, "precious").unwrap();
    let (code, said) = gateway.rival("gateway.yaml", &["--handover", path.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{said}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

/// A gateway on sockets that it was started with, as systemd does it.
struct Activated {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
}

impl Activated {
    /// The sockets are those of the edge and of the admin API.
    fn start(config: &std::path::Path, sockets: &[TcpListener; 2], args: &[&str]) -> Self {
        let [edge, admin] = sockets.each_ref().map(|socket| OwnedFd::from(socket.try_clone().unwrap()));
        let script =
            "exec env LISTEN_FDS=2 LISTEN_PID=$$ \"$0\" run --config \"$@\" 3<&0 4<&1 </dev/null >/dev/null";
        let mut child = Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_sluicegate")])
            .arg(config)
            .args(args)
            .env("NOTIFY_SOCKET", config.with_file_name("notify"))
            .stdin(Stdio::from(edge))
            .stdout(Stdio::from(admin))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, log }
    }

    fn end(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let ended = within(deadline(), || self.child.try_wait().unwrap());
        ended.and_then(|status| status.code())
    }

    /// Waits until it has said so.
    fn says(&mut self, words: &str) {
        let mut line = String::new();
        while self.log.read_line(&mut line).unwrap() > 0 {
            if line.contains(words) {
                return;
            }
            line.clear();
        }
        panic!("it never says `{words}`");
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

/// Sockets that systemd opened are served, and outlive the process: who connects while it is restarted waits.
#[test]
fn connections_during_a_restart_under_socket_activation_are_served() {
    let sockets = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
    let [edge, admin]: [SocketAddr; 2] = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.yaml");
    let text = format!(
        "listen: [\"{edge}\"]\nadmin: {{address: \"{admin}\"}}\nroutes: [{{respond: {{status: 200}}}}]\n"
    );
    std::fs::write(&config, &text).unwrap();

    let notified = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    notified.set_read_timeout(Some(deadline())).unwrap();
    let shown = || {
        let mut buffer = [0; 64];
        let length = notified.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };

    let mut early = Client::connect(edge);
    early.request("GET", "/", &[]);
    let first = Activated::start(&config, &sockets, &[]);
    assert_eq!(early.response().status, 200, "who came before the gateway is served");
    let load = || Load::at(edge, 4).pause(Duration::from_millis(10)).anew();
    let mut samples = load().send(50);
    assert_eq!(Client::connect(admin).ask("GET", "/readyz", &[("host", "localhost")]).status, 200);
    assert_eq!(shown(), "READY=1");
    assert_eq!(first.end(), Some(0));
    assert_eq!(shown(), "STOPPING=1");
    let mut between = Client::connect(edge);
    between.request("GET", "/", &[]);
    // Not before the first has ended: then it closes connections that ask nothing for a moment.
    let load = load().start();
    let mut second = Activated::start(&config, &sockets, &[]);
    second.says(&format!("listening on {edge}"));
    assert_eq!(between.response().status, 200, "who came between the two is served");
    let before = load.answered();
    until("some more requests", || (load.answered() > before + 50).then_some(()));
    samples.extend(load.stop());
    assert_eq!(count(&samples, 200), samples.len(), "all are answered");

    // A listener can go and come back, although systemd has its socket all the while.
    std::fs::write(&config, text.replace(&edge.to_string(), "127.0.0.1:0")).unwrap();
    second.says("is in force, generation 2");
    std::fs::write(&config, &text).unwrap();
    second.says("is in force, generation 3");
    assert_eq!(Client::connect(edge).get("/").status, 200);
    assert_eq!(second.end(), Some(0));
}

/// With the sockets of systemd too, a successor that ends early is replaced by the old process. systemd is not told that it ends.
#[test]
fn under_socket_activation_a_successor_that_ends_early_is_replaced() {
    let sockets = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
    let [edge, admin]: [SocketAddr; 2] = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.yaml");
    let text = format!(
        "listen: [\"{edge}\"]\nadmin: {{address: \"{admin}\"}}\nroutes: [{{respond: {{status: 200}}}}]\n"
    );
    std::fs::write(&config, &text).unwrap();
    let notified = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    notified.set_read_timeout(Some(deadline())).unwrap();
    let handover = folder.path().join("handover.sock").display().to_string();
    let args = ["--handover", &handover, "--handover-confirm", "1h"];
    let mut old = Activated::start(&config, &sockets, &args);
    old.says(&format!("listening on {edge}"));
    until("it can be taken over from", || folder.path().join("handover.sock").exists().then_some(()));
    let mut new = Activated::start(&config, &sockets, &args);
    new.says("took over");
    drop(new); // kills it
    old.says("serves again");
    old.says("admin on");
    assert_eq!(Client::connect(edge).get("/").status, 200);
    let mut buffer = [0; 64];
    let mut shown = Vec::new();
    notified.set_nonblocking(true).unwrap();
    while let Ok(length) = notified.recv(&mut buffer) {
        shown.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    assert!(shown.iter().all(|state| state == "READY=1") && !shown.is_empty(), "{shown:?}");
    assert_eq!(old.end(), Some(0));
}

/// A Unix socket of systemd is served, and its file stays when the gateway ends.
#[test]
fn a_unix_socket_of_systemd_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.sock");
    let edge = TcpListener::from(OwnedFd::from(UnixListener::bind(&path).unwrap()));
    let sockets = [edge, TcpListener::bind("127.0.0.1:0").unwrap()];
    let config = folder.path().join("gateway.yaml");
    let (edge, admin) = (path.display(), sockets[1].local_addr().unwrap());
    let text = format!(
        "listen: [\"unix:{edge}\"]\nadmin: {{address: \"{admin}\"}}\nroutes: [{{respond: {{status: 204}}}}]\n"
    );
    std::fs::write(&config, &text).unwrap();
    for _ in 0..2 {
        let mut gateway = Activated::start(&config, &sockets, &[]);
        gateway.says(&format!("listening on unix:{edge}"));
        let mut client = UnixStream::connect(&path).unwrap();
        client.set_read_timeout(Some(deadline())).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 204 "), "{line}");
        assert_eq!(gateway.end(), Some(0));
        assert!(path.exists());
    }
}
