//! Files beside gateway.yaml that were emptied by an editor that failed, a full disk or a broken feed. They change
//! nothing unless they state that they are meant to be empty.

use crate::harness::folder::text;
use crate::harness::{Folder, Gateway, Setup, sleep, until};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};

const CONSUMERS: &str = "auth: {api_key: {consumers: consumers.yaml, required: true}}\n\
                         routes: [{name: all, respond: {status: 200}}]\n";
const LIST: &str = "lists: {blocked: {file: blocked.txt}}\ndeny: blocked\n\
                    routes: [{name: all, respond: {status: 200}}]\n";

fn consumers() -> String {
    let digest: String =
        digest(&SHA256, b"sk-acme").as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("- name: acme\n  key: sha256:{digest}\n")
}

/// gateway.yaml is loaded when it is whole: what is missing while it is written loses no counter.
#[test]
fn a_configuration_that_is_written_slowly_is_loaded_once() {
    let first = "limits: {a: {key: ip, rate: 1/day}}\nroutes:\n- {name: a, match: {path: /a}, respond: {status: 200}, limits: [a]}\n";
    let other = "limits: {b: {key: ip, rate: 1/day}}\nroutes:\n- {name: b, match: {path: /b}, respond: {status: 200}, limits: [b]}\n";
    let gateway = Gateway::start(first);
    assert_eq!([gateway.get("/a").status, gateway.get("/a").status], [200, 429]);
    let generation = gateway.generation();
    gateway.write(other);
    sleep(Duration::from_millis(70));
    gateway.write(&format!("{first}- {{name: c, match: {{path: /c}}, respond: {{status: 201}}}}\n"));
    until("the new route", || (gateway.get("/c").status == 201).then_some(()));
    assert_eq!(gateway.get("/a").status, 429, "its counter is still there");
    assert_eq!(gateway.generation(), generation + 1);
}

/// An emptied file of consumers, or of addresses, is refused, and what it said before stays in force. The same text is
/// refused at the start and by `check`, and in a reload of gateway.yaml.
#[test]
fn emptied_files_change_nothing() {
    let known = consumers();
    for (yaml, name, full, none, before, then) in [
        (CONSUMERS, "consumers.yaml", known.as_str(), "# nobody\n[]\n", 200, 401),
        (LIST, "blocked.txt", "127.0.0.0/8\n", "# nobody\n", 403, 200),
    ] {
        let gateway = Setup::default().file(name, full).start(yaml);
        let ask = || gateway.ask("GET", "/", &[("x-api-key", "sk-acme")]).status;
        let error = || {
            gateway.admin_get("/status").json()["file_errors"].as_object().unwrap().values().next().cloned()
        };
        let successful = || gateway.metric("sluicegate_config_last_reload_successful", &[]);
        let emptied: &[&str] =
            if name == "blocked.txt" { &["", " \n"] } else { &["", "\n", "# all gone\n", "---\n"] };
        for emptied in emptied {
            gateway.write_file(name, emptied);
            let error = until("it is refused", error);
            assert!(error.as_str().unwrap().contains(&format!("{name}:1: the file ")), "{error}");
            assert_eq!((ask(), successful()), (before, 0.0), "{emptied:?}");
            gateway.write(&format!("{yaml}max_headers: 64\n"));
            assert_eq!(gateway.admin_change("POST", "/reload").status, 422);
            assert_eq!(ask(), before);
            gateway.write(yaml);
            gateway.write_file(name, full);
            until("it is taken back", || (successful() == 1.0).then_some(()));

            let listen = format!("listen: [127.0.0.1:0]\n{yaml}");
            let folder = Folder::with(&[("gateway.yaml", &listen), (name, emptied)]);
            for command in ["check", "run"] {
                let output = folder.run(&[command]);
                assert_eq!(output.status.code(), Some(1), "{command} {emptied:?}: {}", text(&output));
                assert!(text(&output).contains("the file "), "{}", text(&output));
            }
        }
        gateway.write_file(name, none);
        until("it says so", || (ask() == then).then_some(()));
        assert_eq!(successful(), 1.0);
    }
}

/// `consumers remove` says that nobody is left, and `consumers add` begins with a file that says nothing.
#[test]
fn commands_write_files_that_are_read() {
    let folder = Folder::with(&[
        ("gateway.yaml", CONSUMERS),
        ("consumers.yaml", &format!("# ours\n{}# end", consumers())),
    ]);
    let run = |arguments: &[&str]| {
        let output = folder.run(&[&["consumers"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        std::fs::read_to_string(folder.path("consumers.yaml")).unwrap()
    };
    assert_eq!(run(&["remove", "acme"]), "# ours\n# end\n[]\n");
    assert!(run(&["add", "beta"]).starts_with("# ours\n# end\n- name: beta\n"));
    std::fs::write(folder.path("consumers.yaml"), "").unwrap();
    assert!(run(&["add", "beta"]).starts_with("- name: beta\n"));
    std::fs::write(folder.path("consumers.yaml"), "# ours\n").unwrap();
    assert!(run(&["add", "beta"]).starts_with("# ours\n- name: beta\n"));
}
