//! Where commands read the configuration from, and the commands that need none.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Output, Stdio};

use crate::harness::folder::text;
use crate::harness::{Folder, Gateway, ReservedPort, Setup, program, until};

const GOOD: &str = "listen: [127.0.0.1:18080]\nauth: {api_key: {consumers: consumers.yaml}}\n\
                    limits: {l: {key: ip, rate: 1/day}}\n\
                    routes: [{name: all, respond: {status: 200}, limits: [l]}]\n";
const LOG: &str = "192.0.2.1 - - [03/Jul/2024:10:00:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n";

fn folder() -> Folder {
    let consumers = format!("- {{name: acme, key: sha256:{}}}\n", "0".repeat(64));
    Folder::with(&[
        ("gateway.yaml", GOOD),
        ("other.yaml", GOOD),
        ("log", LOG),
        ("consumers.yaml", &consumers),
    ])
}

#[track_caller]
fn is(output: &Output, code: i32, word: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", text(output));
    assert!(text(output).contains(word), "{word} is missing in:\n{}", text(output));
}

/// Every command that reads a configuration takes it as `--config FILE` and from standard input, and looks for the
/// files that it names in the current folder then.
#[test]
fn all_commands_read_the_configuration_alike() {
    let folder = folder();
    for command in [
        &["check", "other.yaml"][..],
        &["check", "--config", "other.yaml"],
        &["replay", "log", "--config", "other.yaml"],
        &["consumers", "list", "--config", "other.yaml"],
    ] {
        is(&folder.run(command), 0, "");
    }
    for command in [
        &["check", "-"][..],
        &["check", "--config", "-"],
        &["replay", "log", "--config", "-"],
        &["consumers", "list", "--config", "-"],
    ] {
        is(&folder.pipe(command, GOOD.as_bytes()), 0, "");
    }
    let bad = GOOD.replace("rate", "rat");
    for command in [&["check", "-"][..], &["run", "-"], &["--config", "-"], &["replay", "log", "--config=-"]]
    {
        is(&folder.pipe(command, bad.as_bytes()), 1, "<stdin>:3:");
    }
    let nowhere = GOOD.replace("consumers.yaml", "nowhere.yaml");
    is(&folder.pipe(&["check", "-"], nowhere.as_bytes()), 1, "nowhere.yaml");
    is(&folder.pipe(&["check", "-"], b"\xff"), 1, "cannot read <stdin>: line 1 is not UTF-8");
}

/// What cannot be meant is told.
#[test]
fn two_configurations_are_an_error() {
    let folder = folder();
    for command in [&["check"][..], &["run"]] {
        let both = [command, &["other.yaml", "--config", "gateway.yaml"]].concat();
        is(&folder.run(&both), 1, "cannot be used with");
    }
    let both = folder.pipe(&["replay", "-", "--config", "-"], GOOD.as_bytes());
    is(&both, 1, "cannot be both the log and the configuration");
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A gateway whose configuration came from standard input serves; it cannot be reloaded and says so, while the files
/// that its configuration names are watched.
#[test]
fn the_configuration_can_come_from_standard_input() {
    let (edge, admin) = (ReservedPort::new(), ReservedPort::new());
    let folder = Folder::with(&[("blocked.txt", "# nobody\n")]);
    let rules = format!(
        "listen: [\"{}\"]\nadmin: {{address: \"{}\", token: t}}\nlists: {{blocked: {{file: blocked.txt}}}}\n\
         deny: [blocked]\nroutes: [{{name: all, respond: {{status: 200}}}}]\n",
        edge.address, admin.address
    );
    let mut command = program();
    command.args(["run", "-"]).current_dir(folder.path("")).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    let _process = Process(child);
    for address in [edge.address, admin.address] {
        until("it serves", || TcpStream::connect(address).ok());
    }
    let ask = |method: &str, address, target: &str| {
        crate::harness::Client::connect(address).ask(
            method,
            target,
            &[("host", "localhost"), ("authorization", "Bearer t")],
        )
    };
    let reload = ask("POST", admin.address, "/reload");
    assert_eq!(reload.status, 422);
    assert!(reload.text().contains("read from standard input"), "{}", reload.text());
    let status = ask("GET", admin.address, "/status").json();
    assert_eq!(
        (&status["config_file"], &status["last_reload_error"]),
        (&"<stdin>".into(), &serde_json::Value::Null)
    );
    assert_eq!(ask("GET", edge.address, "/").status, 200);
    std::fs::write(folder.path("blocked.txt"), "127.0.0.1\n").unwrap();
    until("the list is in force", || (ask("GET", edge.address, "/").status == 403).then_some(()));
}

/// Every shell gets a script that names the commands and their options.
#[test]
fn shells_complete_commands() {
    let folder = Folder::with(&[]);
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = folder.run(&["completions", shell]);
        is(&script, 0, "add-key");
        is(&script, 0, "handover");
    }
    is(&folder.run(&["completions", "tcsh"]), 1, "bash");
    let bash = folder.run(&["completions", "bash"]).stdout;
    std::fs::write(folder.path("bash"), bash).unwrap();
    let completed = "source ./bash; COMP_WORDS=(sluicegate che); COMP_CWORD=1; \
                     _sluicegate sluicegate che sluicegate; echo \"${COMPREPLY[@]}\"";
    let mut shell = std::process::Command::new("bash");
    let output = shell.args(["-c", completed]).current_dir(folder.path("")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "check");
}

/// There is a manual page for every command, with its examples.
#[test]
fn every_command_has_a_manual_page() {
    let folder = Folder::with(&[]);
    is(&folder.run(&["man", "--dir", "man/man1"]), 0, "");
    let page = |name: &str| std::fs::read_to_string(folder.path(&format!("man/man1/{name}.1"))).unwrap();
    for (name, example) in [
        ("sluicegate", "serve ./sluicegate.yaml"),
        ("sluicegate-check", "\\-\\-strict"),
        ("sluicegate-consumers-add-key", "remove\\-key acme"),
        ("sluicegate-health", "HEALTHCHECK"),
    ] {
        let text = page(name);
        assert!(
            text.contains(".TH ") && text.contains("Example") && text.contains(example),
            "{name}: {text}"
        );
    }
    let all = String::from_utf8(folder.run(&["man"]).stdout).unwrap();
    assert_eq!(all.matches(".TH ").count(), std::fs::read_dir(folder.path("man/man1")).unwrap().count());
    is(&folder.run(&["man", "--dir", "man/man1/sluicegate.1"]), 2, "sluicegate.1");
}

/// `health` is 0 while the gateway serves, else 1, as container engines want it.
#[test]
fn health_says_whether_a_gateway_serves() {
    let mut gateway: Gateway =
        Setup::default().start("routes: [{match: {path: /x}, respond: {status: 200}}]\n");
    let admin = gateway.admin.to_string();
    let ask = |address: &str| program().args(["health", "--admin", address]).output().unwrap();
    // It gives up after two seconds.
    let says = |address: &str, code: i32, word: &str| {
        let output = until("there is an answer", || {
            Some(ask(address)).filter(|output| !text(output).contains("cannot reach"))
        });
        is(&output, code, word);
    };
    says(&admin, 0, "ready");
    says(&gateway.edge.to_string(), 1, "says 404");
    gateway.signal("TERM");
    gateway.ended(crate::harness::deadline());
    is(&ask(&admin), 1, &admin);
}

/// Commands that ask a gateway find it by the configuration in the folder where they run.
#[test]
fn commands_find_the_gateway_by_its_configuration() {
    let gateway = Gateway::start(
        "limits: {l: {key: ip, rate: 1/day}}\nroutes: [{match: {path: /*}, respond: {status: 200}, limits: [l]}]\n",
    );
    let run = |args: &[&str]| program().args(args).current_dir(gateway.path("")).output().unwrap();
    let id = || gateway.get("/").head.all("x-request-id").concat();
    let (_, refused) = (id(), id());
    is(&run(&["health"]), 0, "ready");
    is(&run(&["top", "--once"]), 0, "127.0.0.1");
    is(&run(&["rules", "list"]), 1, "this gateway has no rules");
    is(&run(&["explain", "--request", &refused]), 0, "429");
    // Elsewhere the usual address is asked.
    is(&program().args(["health", "--admin", "127.0.0.1:1"]).output().unwrap(), 1, "127.0.0.1:1");
    let nowhere = folder();
    assert!(!text(&nowhere.run(&["health"])).contains(&gateway.admin.to_string()));
}

/// Users of nginx and HAProxy validate a file with `-t`, `-c`, `test` or `validate`.
#[test]
fn a_configuration_is_validated_in_other_words() {
    let folder = folder();
    for command in [
        &["-t"][..],
        &["-t", "-c", "other.yaml"],
        &["run", "-t", "other.yaml"],
        &["test", "other.yaml"],
        &["validate", "-c", "other.yaml"],
    ] {
        is(&folder.run(command), 0, "0 errors");
    }
    is(&folder.run(&["-c", "-f", "other.yaml"]), 1, "sluicegate check other.yaml");
    is(&folder.run(&["-s", "reload"]), 1, "kill -HUP");
}

/// An argument that is not UTF-8 is an error like any other.
#[test]
fn arguments_that_are_not_utf_8_are_refused() {
    let wrong = std::ffi::OsStr::from_bytes(b"\xff");
    for before in [&["explain", "/", "--consumer"][..], &["top", "--key"]] {
        let output = program().args(before).arg(wrong).output().unwrap();
        is(&output, 1, "error: ");
    }
}

/// `size` computes what a given load needs, as a table and as JSON, and says what is wrong with its arguments.
#[test]
fn size_computes_what_a_traffic_needs() {
    let size = |args: &[&str]| program().arg("size").args(args).output().unwrap();
    let figures = ["--users", "100M", "--qps", "100M", "--limit", "100/min"];
    let table = size(&figures);
    is(&table, 0, "100,000,000 keys, 100,000,000 requests/s (1.00 a key on average, all alike)");
    is(&table, 0, "one gateway for each key, local");
    let json = size(&[&figures[..], &["--json", "--store-us", "6", "--load", "1"]].concat());
    let shown: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let exact = &shown["layouts"][0];
    assert_eq!((&exact["layout"], &exact["shards"]), (&"Exact".into(), &600.into()), "{shown:#}");
    let queued =
        |size_of_body| size(&[&figures[..], &["--queued", "1M", "--queued-bytes", size_of_body]].concat());
    assert_eq!(queued("64KiB").stdout, queued("65536").stdout);
    is(&queued("64KiB"), 0, "with bodies of 65,536 bytes");
    is(&queued("64 bytes"), 1, "such as 64KiB");
    for (wrong, word) in [
        (["--users", "0", "--qps", "1", "--limit", "1/s"], "at least 1"),
        (["--users", "1x", "--qps", "1", "--limit", "1/s"], "such as 20, 10k or 1M"),
        (["--users", "1", "--qps", "1", "--limit", "100"], "100/s or 100/min"),
    ] {
        is(&size(&wrong), 1, word);
    }
}
