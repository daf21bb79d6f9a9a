//! The results of imports of kong.yaml, beside what Kong's documentation says.
//!
//! A line of `requests.txt` ends with the statuses that Kong answers: `send 7 GET /a = 200*5 429*2`. Where the report names a
//! difference, the statuses of the gateway are behind an arrow, and a line `differs TEXT` above it has words of the report.

use std::path::Path;

use super::cases_of;
use super::comparison::{AUTHORITY, Line, lines, play, upstream};
use super::nginx::UPSTREAM;
use crate::harness::Folder;
use crate::harness::Setup;
use crate::harness::folder::text;

/// How often a case is played, until the machine was fast enough.
const TRIES: usize = 5;

/// The statuses of `200*5 429*2`, in order.
fn statuses(text: &str) -> Vec<u16> {
    let mut found = Vec::new();
    for word in text.split_whitespace() {
        let (status, count) = word.split_once('*').unwrap_or((word, "1"));
        found.extend(std::iter::repeat_n(status.parse::<u16>().unwrap(), count.parse().unwrap()));
    }
    found.sort_unstable();
    found
}

/// The minutes since 1970.
#[allow(
    clippy::disallowed_methods,
    reason = "windows of the gateway begin with the minutes of the wall clock"
)]
fn minute() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() / 60
}

/// What the gateway answered, and which targets its upstream got.
fn answers(case: &Path, requests: &[Line]) -> (Vec<Vec<u16>>, Vec<String>, bool) {
    let folder = Folder::with(&[]);
    let source = case.join("kong.yaml").display().to_string();
    let output = folder.run(&["import", "kong", &source, "-o", "gateway.yaml"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let api = upstream();
    let yaml = std::fs::read_to_string(folder.path("gateway.yaml")).unwrap();
    let yaml = yaml.replace(UPSTREAM, &api.address.to_string()).replace("0.0.0.0:8000", "\"{edge}\"");
    let consumers = std::fs::read_to_string(folder.path("consumers.yaml")).ok();
    let setup =
        consumers.iter().fold(Setup::default(), |setup, consumers| setup.file("consumers.yaml", consumers));
    let gateway = setup.start(&yaml);
    let minute = minute();
    let (found, in_time) = play(requests, [gateway.edge, gateway.edge2], &AUTHORITY.0, &api);
    let found = found.into_iter().map(|outcome| outcome.statuses).collect();
    let in_time = in_time && minute == self::minute(); // windows begin anew with each minute
    let mut targets: Vec<_> =
        api.seen().iter().map(|seen| format!("{} {}", seen.method, seen.target)).collect();
    targets.retain(|target| target != "GET /healthz");
    targets.sort();
    targets.dedup();
    (found, targets, in_time)
}

fn check(case: &Path) {
    let Ok(written) = std::fs::read_to_string(case.join("requests.txt")) else { return };
    let report = std::fs::read_to_string(case.join("report.txt")).unwrap();
    let said = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let requests: Vec<_> = written.lines().map(|line| line.split(" = ").next().unwrap()).collect();
    let requests = lines(&requests.join("\n"));
    let mut tries = std::iter::repeat_with(|| answers(case, &requests)).take(TRIES);
    let (found, targets, _) =
        tries.find(|(.., in_time)| *in_time).expect("the requests of a line took too long");
    let (mut sent, mut differs) = (0, None);
    for line in written.lines() {
        if let Some(text) = line.strip_prefix("differs ") {
            assert!(said.contains(text), "{}: the report does not say `{text}`", case.display());
            differs = Some(text);
        } else if let Some((_, expected)) = line.split_once(" = ") {
            let (kong, gateway) = expected.split_once(" -> ").unwrap_or((expected, expected));
            assert_eq!(kong != gateway, differs.take().is_some(), "{}: {line}", case.display());
            assert_eq!(found[sent], statuses(gateway), "{}: {line}", case.display());
            sent += 1;
        }
    }
    assert_eq!(sent, found.len(), "{}", case.display());
    if let Ok(expected) = std::fs::read_to_string(case.join("upstream.txt")) {
        assert_eq!(targets, expected.lines().collect::<Vec<_>>(), "{}", case.display());
    }
}

#[test]
fn results_answer_as_kong_documents() {
    let folders = cases_of("kong");
    assert!(folders.len() >= 6, "{}", folders.len());
    folders.iter().for_each(|case| check(case));
}

#[test]
fn consumers_are_written_beside_the_result_once() {
    let case =
        cases_of("kong").into_iter().find(|case| case.ends_with("consumers")).unwrap().join("kong.yaml");
    let kong = std::fs::read_to_string(case).unwrap();
    let folder = Folder::with(&[("kong.yaml", &kong)]);
    let first = folder.run(&["import", "kong", "kong.yaml", "-o", "gateway.yaml"]);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first));
    let checked = folder.run(&["check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    let consumers = std::fs::read_to_string(folder.path("consumers.yaml")).unwrap();
    assert!(
        consumers.contains("- name: \"bob\"\n  keys:\n    - sha256:") && !consumers.contains("bob-key"),
        "{consumers}"
    );
    let again = folder.run(&["import", "kong", "kong.yaml", "-o", "gateway.yaml"]);
    assert_eq!(again.status.code(), Some(2), "{}", text(&again));
    assert!(text(&again).contains("cannot write consumers.yaml"), "{}", text(&again));
    // Nothing is written beside a gateway.yaml that is not replaced.
    std::fs::remove_file(folder.path("consumers.yaml")).unwrap();
    let refused = folder.run(&["import", "kong", "kong.yaml", "-o", "gateway.yaml"]);
    assert!(text(&refused).contains("cannot write gateway.yaml"), "{}", text(&refused));
    assert!(!folder.path("consumers.yaml").exists());
    let printed = folder.run(&["import", "kong", "kong.yaml"]);
    assert!(text(&printed).contains("2 consumers are not written"), "{}", text(&printed));
}

#[test]
fn haproxy_is_read_from_folders_and_standard_input_with_the_environment() {
    let cfg = "defaults\n  mode http\nfrontend f\n  bind \"*:${NO_SUCH_PORT-8080}\"\n  default_backend b\nbackend b\n  server s 127.0.0.1:9000\n";
    let folder = Folder::with(&[("haproxy.cfg", cfg)]);
    for found in
        [folder.run(&["import", "haproxy", "."]), folder.pipe(&["import", "haproxy", "-"], cfg.as_bytes())]
    {
        assert_eq!(found.status.code(), Some(0), "{}", text(&found));
        assert!(String::from_utf8_lossy(&found.stdout).contains("address: 0.0.0.0:8080"), "{}", text(&found));
    }
    let folder = Folder::with(&[("haproxy.cfg", "frontend f\n  bind 'x\n")]);
    let wrong = folder.run(&["import", "haproxy", "haproxy.cfg"]);
    assert!(text(&wrong).starts_with("haproxy.cfg:2:8: error: the quote"), "{}", text(&wrong));
}
