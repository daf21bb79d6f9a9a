//! The commands: their exit codes, their output, and the replay of logs.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;

use crate::harness::folder::{outcomes, text};
use crate::harness::{Folder, ReservedPort, program};
use serde_json::Value;

const GOOD: &str = "listen: [127.0.0.1:18080]\nlimits: {l: {key: ip, rate: 2/min}}\n\
                    routes: [{name: all, match: {path: /v1/*}, respond: {status: 200}, limits: [l]}]\n";
const BAD: &str = "listen: [127.0.0.1:18080]\nlimits: {l: {keys: ip, rate: 2/fortnight}}\n\
                   routes: [{name: all, respond: {status: 200}, limits: [m]}]\n";

/// `check` is 0 for a good file, 1 for a bad one, and tells all that is wrong, where, and what was meant.
#[test]
fn check_reports_every_mistake() {
    let folder = Folder::with(&[("gateway.yaml", GOOD), ("bad.yaml", BAD)]);
    assert_eq!(folder.run(&["check"]).status.code(), Some(0));
    assert_eq!(folder.run(&["check", "gateway.yaml"]).status.code(), Some(0));
    let bad = folder.run(&["check", "bad.yaml"]);
    assert_eq!(bad.status.code(), Some(1));
    let shown = text(&bad);
    for word in ["bad.yaml:2:", "bad.yaml:3:", "keys", "did you mean `key`", "2/fortnight", "^"] {
        assert!(shown.contains(word), "{word} is missing in:\n{shown}");
    }
    assert_eq!(folder.run(&["check", "missing.yaml"]).status.code(), Some(1));
}

/// `--strict` also fails on warnings, which are told in both cases.
#[test]
fn check_strict_fails_on_warnings() {
    let unused = GOOD.replace("limits: {l:", "limits: {unused: {key: ip, rate: 1/s}, l:");
    let folder = Folder::with(&[("gateway.yaml", &unused), ("good.yaml", GOOD)]);
    for (arguments, code) in [(&["check"][..], 0), (&["check", "--strict"], 1)] {
        let output = folder.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(text(&output).contains("unused"), "{}", text(&output));
    }
    assert_eq!(folder.run(&["check", "--strict", "good.yaml"]).status.code(), Some(0));
}

/// A constant cost above the bucket can never be admitted: an error of `check`.
#[test]
fn check_refuses_a_cost_that_can_never_be_admitted() {
    for limit in ["rate: 10/min, cost: 11", "rate: 10/min, burst: 5, cost: 6"] {
        let file = GOOD.replace("rate: 2/min", limit);
        let folder = Folder::with(&[("gateway.yaml", &file)]);
        assert_eq!(folder.run(&["check"]).status.code(), Some(1), "{limit}");
    }
}

/// The file that the repository ships is good, also strictly.
#[test]
fn the_shipped_file_is_valid() {
    let output =
        program().args(["check", "gateway.yaml"]).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

/// `schema` is JSON and knows every key of the file.
#[test]
fn schema_knows_every_key() {
    let output = Folder::with(&[]).run(&["schema"]);
    assert_eq!(output.status.code(), Some(0));
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    let known = schema["properties"].as_object().unwrap();
    for key in ["listen", "admin", "client_ip", "auth", "limits", "upstreams", "routes", "headers"] {
        assert!(known.contains_key(key), "{key}");
    }
    assert_eq!(schema["additionalProperties"], false, "unknown keys are errors");
    let text = schema.to_string();
    for key in [
        "algorithm",
        "burst",
        "slices",
        "strict",
        "count_rejected",
        "max_delay",
        "on_missing",
        "exempt",
        "max_keys",
        "forward_path",
    ] {
        assert!(text.contains(&format!("\"{key}\"")), "{key}");
    }
}

/// Arguments that are none are the user's mistake: 1. Help and version are none.
#[test]
fn wrong_arguments_are_code_1() {
    let folder = Folder::with(&[("gateway.yaml", GOOD)]);
    for arguments in
        [&["--wibble"][..], &["wibble"], &["check", "--wibble"], &["replay"], &["run", "--workers", "0"]]
    {
        let output = folder.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}");
    }
    for arguments in [&["--help"][..], &["--version"], &["check", "--help"]] {
        assert_eq!(folder.run(arguments).status.code(), Some(0), "{arguments:?}");
    }
}

/// A bad or missing file is the user's mistake: `run` ends with 1 and says why.
#[test]
fn run_with_a_bad_file_is_code_1() {
    let folder = Folder::with(&[("gateway.yaml", BAD)]);
    for arguments in [&[][..], &["run"], &["run", "--config", "gateway.yaml"]] {
        let output = folder.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output).contains("2/fortnight"), "{}", text(&output));
    }
    let missing = folder.run(&["run", "--config", "missing.yaml"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing).contains("missing.yaml"));
}

/// An address that cannot be had is the machine's refusal: 2, and it is named. A pipe gets no colours.
#[test]
fn run_with_an_occupied_address_is_code_2() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let free = ReservedPort::new();
    for file in [
        format!("listen: [\"{address}\"]\nroutes: [{{name: all, respond: {{status: 200}}}}]\n"),
        format!(
            "listen: [\"{}\"]\nadmin: {{address: \"{address}\"}}\nroutes: [{{name: all, respond: {{status: 200}}}}]\n",
            free.address
        ),
    ] {
        let output = Folder::with(&[("gateway.yaml", &file)]).run(&["run"]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(&address), "{}", text(&output));
        assert!(!output.stderr.contains(&0x1b), "{}", text(&output));
    }
}

const COMBINED: &str = concat!(
    "203.0.113.9 - - [03/Jul/2024:12:00:00 +0200] \"GET /v1/a HTTP/1.1\" 200 12 \"-\" \"curl/8\"\n",
    "203.0.113.9 - ann [03/Jul/2024:12:00:01 +0200] \"POST /v1/b?x=1 HTTP/1.1\" 200 12 \"-\" \"curl/8\"\n",
    "203.0.113.9 - - [03/Jul/2024:10:00:02 +0000] \"GET //v1/./c HTTP/2.0\" 200 12 \"-\" \"curl/8\"\n",
    "203.0.113.10 - - [03/Jul/2024:10:00:02 +0000] \"GET /v1/a HTTP/1.1\" 200 12 \"-\" \"curl \\\"8\\\"\"\n",
    "203.0.113.9 - - [03/Jul/2024:10:00:03 +0000] \"GET /other HTTP/1.1\" 404 12 \"-\" \"-\"\n",
    "203.0.113.9 - - [03/Jul/2024:10:00:32 +0000] \"GET /v1/d HTTP/1.1\" 200 12 \"-\" \"-\"\n",
);
const COMBINED_OUTCOMES: [&str; 6] = ["admitted", "admitted", "refused", "admitted", "unmatched", "admitted"];

/// A log of nginx or Apache is replayed on its own clock, whatever time zones it is written in.
#[test]
fn replay_reads_the_combined_format() {
    let folder = Folder::with(&[("gateway.yaml", GOOD), ("access.log", COMBINED)]);
    let decisions = folder.decisions("access.log");
    assert_eq!(outcomes(&decisions), COMBINED_OUTCOMES);
    assert_eq!(decisions[2]["retry_after"], 28.0);
    assert_eq!((&decisions[4]["route"], &decisions[4]["limit"]), (&Value::Null, &Value::Null));
    let output = folder.run(&["replay", "access.log"]);
    let shown = text(&output);
    assert!(
        shown.contains("6 requests") && shown.contains("4 admitted") && shown.contains("1 refused"),
        "{shown}"
    );
}

/// Packed logs and standard input are read the same way, and several logs are one after another.
#[test]
fn replay_reads_packed_logs_and_standard_input() {
    let folder = Folder::with(&[("gateway.yaml", GOOD), ("access.log", COMBINED)]);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(COMBINED.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    std::fs::write(folder.path("access.log.gz"), &packed).unwrap();
    assert_eq!(outcomes(&folder.decisions("access.log.gz")), COMBINED_OUTCOMES);
    for input in [COMBINED.as_bytes(), &packed] {
        let output = folder.pipe(&["replay", "-", "--decisions", "out.jsonl"], input);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert_eq!(outcomes(&folder.read("out.jsonl")), COMBINED_OUTCOMES);
    }
    let output = folder.run(&["replay", "access.log", "access.log.gz", "--decisions", "out.jsonl"]);
    assert_eq!(output.status.code(), Some(0));
    let both = folder.read("out.jsonl");
    assert_eq!(
        (both.len(), both[6]["line"].as_u64(), both[6]["outcome"].as_str()),
        (12, Some(1), Some("refused"))
    );
}

/// JSON lines, with every way to write a time, and unknown fields left alone.
#[test]
fn replay_reads_json_lines() {
    let times = [
        "1720000800",
        "1720000800.5",
        "\"1720000801.000001\"",
        "\"2024-07-03T10:00:02Z\"",
        "\"2024-07-03T12:00:03.5+02:00\"",
    ];
    let lines: String = times
        .iter()
        .map(|time| {
            format!("{{\"time\": {time}, \"client_ip\": \"2001:db8::1\", \"method\": \"GET\", \"host\": \"a.test\", \
                     \"path\": \"/v1/x?y\", \"headers\": {{\"X-Api-Key\": \"k\"}}, \"status\": 200, \"extra\": [1]}}\n")
        })
        .collect();
    let folder = Folder::with(&[("gateway.yaml", GOOD), ("log.jsonl", &lines)]);
    let decisions = folder.decisions("log.jsonl");
    assert_eq!(outcomes(&decisions), ["admitted", "admitted", "refused", "refused", "refused"]);
    let waits: Vec<f64> =
        decisions[2..].iter().map(|decision| decision["retry_after"].as_f64().unwrap()).collect();
    assert_eq!(waits, [28.999_999, 28.0, 26.5], "one token every 30 s, to the microsecond");
}

/// Lines that cannot be read are counted, told with their numbers, and skipped.
#[test]
fn replay_reports_lines_that_it_cannot_read() {
    let lines: Vec<&str> = COMBINED.lines().collect();
    let log = format!(
        "{}\nwhat is this?\n\n{{\"time\": 1}}\n{}\n\"\\x16\\x03\" 400\n{}",
        lines[0], lines[1], lines[2]
    );
    let folder = Folder::with(&[("gateway.yaml", GOOD), ("access.log", &log)]);
    let output = folder.run(&["replay", "access.log", "--decisions", "out.jsonl"]);
    assert_eq!(output.status.code(), Some(0));
    let shown = text(&output);
    assert!(shown.contains("3 lines could not be read"), "{shown}");
    for place in ["access.log:2:", "access.log:4:", "access.log:6:"] {
        assert!(shown.contains(place), "{place} is missing in:\n{shown}");
    }
    let decisions = folder.read("out.jsonl");
    let numbers: Vec<u64> = decisions.iter().map(|decision| decision["line"].as_u64().unwrap()).collect();
    assert_eq!((numbers, outcomes(&decisions)), (vec![1, 5, 7], vec!["admitted", "admitted", "refused"]));
}

/// A time that runs backwards counts as the latest time seen: it gives nobody a second allowance.
#[test]
fn replay_takes_times_that_run_backwards_as_the_latest() {
    let line = |time: u64| {
        format!("{{\"time\": {time}, \"client_ip\": \"192.0.2.1\", \"path\": \"/v1/x\", \"host\": \"a\"}}\n")
    };
    let log: String = [1_000_000, 1_000_030, 999_000, 1_000_010, 1_000_045, 1_000_060].map(line).concat();
    let folder = Folder::with(&[("gateway.yaml", GOOD), ("log", &log)]);
    let decisions = folder.decisions("log");
    assert_eq!(outcomes(&decisions), ["admitted", "admitted", "admitted", "refused", "refused", "admitted"]);
    let waits: Vec<f64> =
        decisions[3..5].iter().map(|decision| decision["retry_after"].as_f64().unwrap()).collect();
    assert_eq!(waits, [30.0, 15.0]);
}

/// `duration` lets concurrency be replayed: a place is free when the request before has ended.
#[test]
fn replay_knows_what_was_in_flight() {
    let file = GOOD.replace("rate: 2/min", "algorithm: concurrency, max: 2");
    let line = |(time, duration): (&str, &str)| {
        format!(
            "{{\"time\": {time}, \"client_ip\": \"192.0.2.1\", \"path\": \"/v1/x\", \"host\": \"a\", \"duration\": {duration}}}\n"
        )
    };
    let log: String = [
        ("100", "5"),
        ("101", "1.5"),
        ("102", "9"),
        ("102.5", "0.25"),
        ("102.6", "1"),
        ("102.75", "1"),
        ("105", "1"),
    ]
    .map(line)
    .concat();
    let folder = Folder::with(&[("gateway.yaml", &file), ("log", &log)]);
    let decisions = folder.decisions("log");
    assert_eq!(
        outcomes(&decisions),
        ["admitted", "admitted", "refused", "admitted", "refused", "admitted", "admitted"],
        "who is refused holds no place, and at the instant of an end its place is free"
    );
}

/// Shadow limits refuse nobody in a replay either, and are named where they would have.
#[test]
fn replay_names_shadow_verdicts() {
    let file = GOOD.replace("rate: 2/min", "rate: 2/min, mode: shadow");
    let folder = Folder::with(&[("gateway.yaml", &file), ("access.log", COMBINED)]);
    let decisions = folder.decisions("access.log");
    assert!(outcomes(&decisions).iter().all(|outcome| *outcome != "refused"));
    assert_eq!(decisions[2]["shadow"], serde_json::json!(["l"]));
    assert_eq!((decisions[0].get("shadow"), &decisions[0]["limit"]), (None, &Value::Null));
}

/// What cannot be read or written at all is told and has its code.
#[test]
fn replay_without_its_files_fails() {
    let folder = Folder::with(&[("gateway.yaml", GOOD), ("bad.yaml", BAD), ("access.log", COMBINED)]);
    for (arguments, code) in [
        (&["replay", "missing.log"][..], 1),
        (&["replay", "access.log", "--config", "missing.yaml"], 1),
        (&["replay", "access.log", "--config", "bad.yaml"], 1),
        (&["replay", "access.log", "--decisions", "missing/out.jsonl"], 2),
    ] {
        let output = folder.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(arguments.last().unwrap()), "{}", text(&output));
    }
}

/// `check` finds that the access log cannot be opened, on which `run` would fail, and makes no file. What is not allowed is
/// tried as a user who is not allowed everything.
#[test]
fn check_knows_whether_the_access_log_can_be_opened() {
    let yaml = "listen: [127.0.0.1:0]\naccess_log: PATH\nroutes: [{respond: {status: 200}}]\n";
    let folder = tempfile::TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mode = |name: &str, mode| std::fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
    for name in ["shut", "open", "a-folder"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    for name in ["shut.log", "open.log"] {
        std::fs::write(path(name), "").unwrap();
    }
    mode("", 0o755);
    for (name, bits) in [("shut", 0o555), ("open", 0o777), ("shut.log", 0o444), ("open.log", 0o666)] {
        mode(name, bits);
    }
    let is_root = std::fs::metadata(path("open.log")).unwrap().uid() == 0;
    for (log, code, why) in [
        ("open.log", 0, ""),
        ("open/new.log", 0, ""),
        ("a-folder", 1, "is a directory"),
        ("shut.log", 1, "Permission denied"),
        ("shut/new.log", 1, "shut: Permission denied"),
        ("open.log/new.log", 1, "make the folder"),
    ] {
        std::fs::write(path("gateway.yaml"), yaml.replace("PATH", log)).unwrap();
        let mut command = program();
        if is_root {
            command.uid(65_534).gid(65_534);
        }
        let checked = command.arg("check").current_dir(folder.path()).output().unwrap();
        let said = text(&checked);
        assert_eq!(checked.status.code(), Some(code), "{log}: {said}");
        assert!(
            code == 0 || (said.contains(why) && said.contains("cannot write the access log to")),
            "{log}: {said}"
        );
    }
    assert!(!path("open/new.log").exists());
}

/// `check` finds that the access log has no folder, on which `run` would fail.
#[test]
fn check_knows_where_the_access_log_goes() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("gateway.yaml");
    std::fs::write(
        &file,
        "listen: [127.0.0.1:0]\naccess_log: nowhere/access.log\nroutes: [{respond: {status: 200}}]\n",
    )
    .unwrap();
    let checked = crate::harness::program().arg("check").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(1), "{said}");
    assert!(said.contains("gateway.yaml:2:13: error: cannot write the access log to"), "{said}");
    assert!(said.contains("help: make the folder") && said.contains("1 error, 0 warnings"), "{said}");
    let ran = crate::harness::program().arg("run").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && said.contains("(line 2 of the configuration)"), "{said}");
    std::fs::create_dir(folder.path().join("nowhere")).unwrap();
    assert!(crate::harness::program().arg("check").arg(&file).status().unwrap().success());
}
