//! `sluicegate import`, and what its results do: beside the real nginx and HAProxy the same requests get the same statuses, or the
//! report has named the difference; for other sources, what their documentation promises.

mod comparison;
mod haproxy;
mod kong;
mod nginx;
mod yaml;

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Child;

use serde_json::Value;

use crate::harness::folder::text;
use crate::harness::{Folder, deadline, until};

/// The folder of the cases.
fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/nginx")
}

/// The folders of the cases of a source.
fn cases_of(source: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import").join(source);
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Waits until a program listens. If it ends before, the test fails with what it wrote to its log.
#[track_caller]
fn until_listening(program: &str, child: &mut Child, address: SocketAddr, log: &Path) {
    until(&format!("{program} listens"), || {
        if let Ok(Some(status)) = child.try_wait() {
            panic!("{program} ended with {status}: {}", std::fs::read_to_string(log).unwrap_or_default());
        }
        TcpStream::connect_timeout(&address, deadline()).ok()
    });
}

const CONFIG: &str = "events {}\nhttp {\n  limit_req_zone $binary_remote_addr zone=one:1m rate=10r/s;\n  server {\n    listen 8080;\n    \
                      location / { limit_req zone=one burst=5 nodelay; proxy_pass http://127.0.0.1:9000; gzip on; }\n  }\n}\n";

#[test]
fn a_result_is_valid_and_names_its_lines() {
    let folder = Folder::with(&[("nginx.conf", CONFIG)]);
    let output =
        folder.run(&["import", "nginx", "nginx.conf", "-o", "gateway.yaml", "--report", "report.txt"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        text(&output).contains("converted, 1 ignored, 0 approximated, 1 unsupported"),
        "{}",
        text(&output)
    );
    let yaml = std::fs::read_to_string(folder.path("gateway.yaml")).unwrap();
    assert!(yaml.contains("one: {key: ip, rate: 10/s, burst: 6}  # nginx.conf:3, nginx.conf:6"), "{yaml}");
    let report = std::fs::read_to_string(folder.path("report.txt")).unwrap();
    assert!(report.contains("unsupported\n  nginx.conf:6  gzip on\n"), "{report}");
    let checked = folder.run(&["check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
}

#[test]
fn a_file_is_replaced_only_if_that_is_asked_for() {
    let folder = Folder::with(&[("nginx.conf", CONFIG), ("gateway.yaml", "# mine\n")]);
    let import = ["import", "nginx", "nginx.conf", "-o", "gateway.yaml"];
    let refused = folder.run(&import);
    assert!(
        refused.status.code() == Some(2) && text(&refused).contains("--force replaces it"),
        "{}",
        text(&refused)
    );
    let yaml = || std::fs::read_to_string(folder.path("gateway.yaml")).unwrap();
    assert_eq!(yaml(), "# mine\n");
    let forced = folder.run(&[&import[..], &["--force"]].concat());
    assert_eq!(forced.status.code(), Some(0), "{}", text(&forced));
    assert!(yaml().starts_with("# Converted from nginx.conf"), "{}", yaml());
    // The report is refused before anything is written.
    let report = ["import", "nginx", "nginx.conf", "--report", "nginx.conf"];
    let refused = folder.run(&report);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0), "{}", text(&refused));
    assert!(text(&refused).contains("cannot write nginx.conf: it exists"), "{}", text(&refused));
    assert_eq!(std::fs::read_to_string(folder.path("nginx.conf")).unwrap(), CONFIG);
    assert_eq!(folder.run(&[&report[..], &["--force"]].concat()).status.code(), Some(0));
    let report = std::fs::read_to_string(folder.path("nginx.conf")).unwrap();
    assert!(report.contains("unsupported\n  nginx.conf:6  gzip on\n"), "{report}");
}

/// A device or a pipe may have no end.
#[test]
fn only_regular_files_are_included() {
    let folder =
        Folder::with(&[("nginx.conf", &CONFIG.replace("events {}", "events {} include /dev/zero;"))]);
    let output = folder.run(&["import", "nginx", "nginx.conf", "--report"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("left out: it is not a regular file"), "{}", text(&output));
}

#[test]
fn folders_standard_input_and_dumps_are_read() {
    let folder = Folder::with(&[("nginx.conf", CONFIG)]);
    let file = folder.run(&["import", "nginx", "nginx.conf"]);
    assert!(
        String::from_utf8_lossy(&file.stdout).starts_with("# Converted from nginx.conf"),
        "{}",
        text(&file)
    );
    let whole = folder.run(&["import", "nginx", "."]);
    assert!(
        String::from_utf8_lossy(&whole.stdout).starts_with("# Converted from ./nginx.conf"),
        "{}",
        text(&whole)
    );
    let dump = format!(
        "# configuration file /etc/nginx/nginx.conf:\nevents {{}}\ninclude /etc/nginx/more/*.conf;\n# configuration file \
         /etc/nginx/more/http.conf:\n{}",
        CONFIG.replace("events {}", "")
    );
    for input in [CONFIG.to_owned(), dump] {
        let piped = folder.pipe(&["import", "nginx", "-"], input.as_bytes());
        assert_eq!(piped.status.code(), Some(0), "{}", text(&piped));
        assert!(String::from_utf8_lossy(&piped.stdout).contains("rate: 10/s, burst: 6"), "{}", text(&piped));
    }
}

#[test]
fn strict_fails_if_a_directive_is_unsupported() {
    let folder = Folder::with(&[("nginx.conf", CONFIG), ("plain.conf", &CONFIG.replace("gzip on;", ""))]);
    let strict = |file: &str| folder.run(&["import", "nginx", file, "--strict"]);
    assert_eq!((strict("nginx.conf").status.code(), strict("plain.conf").status.code()), (Some(1), Some(0)));
    let output = folder.run(&["import", "nginx", "nginx.conf", "--json", "--report", "report.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let report: Value = serde_json::from_slice(&std::fs::read(folder.path("report.json")).unwrap()).unwrap();
    let items = report["items"].as_array().unwrap();
    let gzip = items.iter().find(|item| item["directive"] == "gzip on").unwrap();
    assert_eq!(
        (&gzip["outcome"], &gzip["file"], &gzip["line"]),
        (&"unsupported".into(), &"nginx.conf".into(), &6.into())
    );
}

#[test]
fn mistakes_are_shown_with_their_place() {
    let folder = Folder::with(&[
        ("nginx.conf", "http {\n  server {\n    listen 80\n  }\n}\n"),
        ("empty.conf", "events {}\n"),
        ("circle.conf", "include circle.conf;\n"),
    ]);
    let output = folder.run(&["import", "nginx", "nginx.conf"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "nginx.conf:3:5: error: `listen` is not ended before the end of its block\n  3 |     listen 80\n    |     ^\n  \
                    help: end it with `;`\n";
    assert_eq!(text(&output), expected);
    let empty = folder.run(&["import", "nginx", "empty.conf"]);
    assert!(text(&empty).contains("there is no block `http` in it"), "{}", text(&empty));
    let circle = folder.run(&["import", "nginx", "circle.conf"]);
    assert_eq!(circle.status.code(), Some(1));
    assert!(text(&circle).contains("files include each other without end"), "{}", text(&circle));
    let piped = folder.pipe(&["import", "nginx", "-"], b"\n");
    assert_eq!(piped.status.code(), Some(1));
    assert!(text(&piped).contains("standard input is empty"), "{}", text(&piped));
    let endless = folder.pipe(&["import", "kubernetes", "-"], &b"a: 1\n".repeat(4 << 20));
    assert_eq!(endless.status.code(), Some(1));
    assert!(text(&endless).contains("it is larger than 16 MiB"), "{}", text(&endless));
    let swallowed = folder.run(&["import", "nginx", "--report", "nginx.conf"]);
    assert!(text(&swallowed).contains("sluicegate import nginx <PATH> [OPTIONS]"), "{}", text(&swallowed));
    let missing = folder.run(&["import", "nginx", "absent.conf"]);
    assert!(
        text(&missing).contains("cannot read absent.conf") && text(&missing).contains("help: "),
        "{}",
        text(&missing)
    );
}

/// Files that a result names and that are not on this machine are reported, and the result is written all the same.
#[test]
fn absent_certificates_are_reported() {
    let folder = Folder::with(&[]);
    let path = cases().join("tls/nginx.conf").display().to_string();
    let output = folder.run(&["import", "nginx", &path, "-o", "gateway.yaml"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        text(&output).contains("gateway.yaml needs these files before it can be used"),
        "{}",
        text(&output)
    );
    assert!(folder.path("gateway.yaml").exists());
}

#[test]
fn sources_in_yaml_are_files_folders_and_standard_input() {
    let file =
        "domain: a\ndescriptors:\n  - {key: user_id, rate_limit: {unit: minute, requests_per_unit: 5}}\n";
    let folder = Folder::with(&[("one.yaml", file), ("broken.yml", "a: [\n"), ("other.txt", "")]);
    let asked = folder.run(&["import", "ratelimit", "one.yaml", "--strict"]);
    assert_eq!(asked.status.code(), Some(1), "{}", text(&asked));
    let answered = [
        "import",
        "ratelimit",
        "one.yaml",
        "--strict",
        "--key",
        "user_id=header:X-User-Id",
        "-o",
        "gateway.yaml",
    ];
    let answered = folder.run(&answered);
    assert_eq!(answered.status.code(), Some(0), "{}", text(&answered));
    let checked = folder.run(&["check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    std::fs::remove_file(folder.path("gateway.yaml")).unwrap();
    let broken = folder.run(&["import", "ratelimit", "."]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(text(&broken).starts_with("./broken.yml:1:4: error: "), "{}", text(&broken));
    let routers = "http: {routers: {a: {rule: 'Path(`/a`)', service: a}}, services: {a: {loadBalancer: {servers: [{url: 'http://10.0.0.1'}]}}}}\n";
    let piped = folder.pipe(&["import", "traefik", "-"], routers.as_bytes());
    assert_eq!(piped.status.code(), Some(0), "{}", text(&piped));
    assert!(String::from_utf8_lossy(&piped.stdout).contains("  # stdin:1"), "{}", text(&piped));
    let absent = folder.run(&["import", "kubernetes", "absent.yaml"]);
    assert!(
        text(&absent).contains("cannot read absent.yaml") && text(&absent).contains("help: "),
        "{}",
        text(&absent)
    );
}
