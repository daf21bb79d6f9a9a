//! Pipes, devices and other special files in place of a file, and predecessors that do not answer: the admin API
//! answers, signals are handled and memory does not grow.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use crate::harness::client::Client;
use crate::harness::{Gateway, Setup, Stopwatch, deadline, measure, patience, until};

const FILE: &str = "routes: [{name: all, respond: {status: 200}}]\n";

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// The admin API is not blocked: it answers several requests in a row.
#[track_caller]
fn answers_at_once(gateway: &Gateway) {
    let (statuses, took) = measure(|| [(); 5].map(|()| gateway.admin_get("/readyz").status));
    assert_eq!(statuses, [200; 5]);
    assert!(took < patience(5), "{took:?}");
}

#[track_caller]
fn ends(gateway: &mut Gateway) {
    gateway.signal("TERM");
    assert_eq!(gateway.ended(deadline()).code(), Some(0));
}

/// What the operator is told of a reload that does not come to be.
#[track_caller]
fn refused(gateway: &Gateway) -> String {
    let answer = gateway.admin_change("POST", "/reload");
    assert_eq!(answer.status, 422);
    answer.json()["report"].as_str().unwrap().to_owned()
}

/// Pipes and devices in the place of gateway.yaml are refused, and the configuration stays.
#[test]
fn a_configuration_is_a_regular_file() {
    for odd in ["a pipe", "/dev/zero", "/dev/tty"] {
        let mut gateway = Gateway::start(FILE);
        let path = gateway.path("gateway.yaml");
        gateway.remove_file();
        if odd == "a pipe" {
            pipe(&path)
        } else {
            symlink(odd, &path).unwrap()
        }
        let seen = until("it is noticed", || {
            gateway.admin_get("/status").json()["last_reload_error"].as_str().map(str::to_owned)
        });
        assert!(seen.contains("it is not a regular file"), "{seen}");
        assert!(refused(&gateway).contains("it is not a regular file"));
        answers_at_once(&gateway);
        assert!(gateway.peak_memory() < 300 << 20, "{odd}: {}", gateway.peak_memory());
        std::fs::remove_file(&path).unwrap();
        gateway.reload(FILE);
        ends(&mut gateway);
    }
}

/// A file has a bound, also one of which the file system says little.
#[test]
fn the_size_of_a_configuration_is_limited() {
    let mut gateway = Gateway::start(FILE);
    let file = std::fs::OpenOptions::new().write(true).open(gateway.path("gateway.yaml")).unwrap();
    file.set_len(8 << 30).unwrap();
    assert!(refused(&gateway).contains("it is larger than 64 MiB"));
    answers_at_once(&gateway);
    ends(&mut gateway);
}

/// The files beside gateway.yaml are regular files too.
#[test]
fn other_files_are_regular_and_limited_too() {
    let issuer = r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;
    let (tls, key) = (rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap(), "key.pem");
    let files = [("keys.yaml", "[]\n"), ("list.txt", "192.0.2.1\n"), ("jwks.json", issuer)];
    let yaml = "listen: [{name: edge, address: \"{edge}\"}, {address: \"{edge2}\", tls: {certificates: [{cert: cert.pem, key: key.pem}]}}]\n\
                auth: {api_key: {consumers: keys.yaml}, jwt: {jwks: {file: jwks.json}}}\n\
                lists: {known: {file: list.txt}}\ndeny: known\n\
                upstreams: {api: {servers: [\"https://127.0.0.1:9\"], tls: {ca: cert.pem}}}\n";
    let files = [
        files.as_slice(),
        &[("cert.pem", tls.cert.pem().leak()), (key, tls.signing_key.serialize_pem().leak())],
    ];
    for (odd, _) in files.concat() {
        let setup =
            files.concat().iter().fold(Setup::default(), |setup, (name, text)| setup.file(name, text));
        let mut gateway = setup.start(&format!("{yaml}{FILE}"));
        std::fs::remove_file(gateway.path(odd)).unwrap();
        pipe(&gateway.path(odd));
        assert!(refused(&gateway).contains("it is not a regular file"), "{odd}");
        until("it is noticed", || gateway.log().contains("it is not a regular file").then_some(()));
        answers_at_once(&gateway);
        ends(&mut gateway);
    }
}

/// An access log that is a pipe without a reader is refused; nobody waits for a reader.
#[test]
fn opening_an_access_log_does_not_block() {
    let mut gateway = Gateway::start(FILE);
    pipe(&gateway.path("access.log"));
    gateway.write(&format!("access_log: {{path: access.log}}\n{FILE}"));
    assert!(refused(&gateway).contains("cannot write the access log"));
    answers_at_once(&gateway);
    ends(&mut gateway);
}

/// A gateway that gives its sockets and then says nothing holds up nobody.
#[test]
fn a_silent_predecessor_does_not_block_the_start() {
    let mut first = Setup::default().handover().start(FILE);
    let door = first.handover();
    let (edge, admin, config) = (first.edge, first.admin, first.path("gateway.yaml"));
    let folder = tempfile::TempDir::new().unwrap();
    let kept = folder.path().join("gateway.yaml");
    std::fs::copy(config, &kept).unwrap();
    ends(&mut first); // its ports stay reserved
    let listener = UnixListener::bind(folder.path().join(door.file_name().unwrap())).unwrap();
    let mut child = crate::harness::program()
        .args(["run", "--config", &kept.display().to_string(), "--handover"])
        .arg(folder.path().join(door.file_name().unwrap()))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let (stream, _) = listener.accept().unwrap();
    (&stream).write_all(b"sluicegate 2 0\n").unwrap();
    let mut said = String::new();
    BufReader::new(&stream).read_line(&mut said).unwrap();
    assert!(said.starts_with("serving "), "{said}");
    let watch = Stopwatch::start();
    assert_eq!(Client::connect(admin).ask("GET", "/readyz", &[("host", "localhost")]).status, 200);
    assert_eq!(Client::connect(edge).get("/").status, 200);
    assert!(watch.elapsed() < patience(5), "{:?}", watch.elapsed());
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let ended = crate::harness::within(deadline(), || child.try_wait().unwrap());
    let _ = child.kill();
    assert_eq!(ended.and_then(|status| status.code()), Some(0));
}

/// A log and a file of rules that may not grow any more (`ulimit -f`) are errors; the gateway goes on.
#[test]
fn a_file_that_may_not_grow_ends_nothing() {
    let gateway = Gateway::start(
        "access_log: access.log\nrules: {file: rules.db}\nlimits: {l: {key: api_key, rate: 5/s}}\n\
         routes: [{name: all, respond: {status: 200}}]\n",
    );
    let pid = rustix::process::Pid::from_raw(i32::try_from(gateway.process()).unwrap());
    let most = rustix::process::Rlimit { current: Some(4_096), maximum: None };
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, most).unwrap();
    assert_eq!(gateway.statuses(200, "/", &[]), [200; 200]);
    until("the log says so", || gateway.log().contains("File too large").then_some(()));
    let rule = r#"{"limit": "l", "key": "k", "rate": "7/s"}"#;
    let answer = gateway.admin_put("/rules/one", rule);
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(gateway.get("/").status, 200);
    assert!(std::fs::metadata(gateway.path("access.log")).unwrap().len() <= 4_096);
}
