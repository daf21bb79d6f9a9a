//! What a reload keeps, rescales or loses: `sluicegate diff`, the log, `GET /status` and `check --against-running` say the same,
//! and it is what happens.

use serde_json::Value;

use crate::harness::folder::text;
use crate::harness::{Folder, Gateway, ReservedPort};

/// One limit on every path.
fn limit(text: &str) -> String {
    format!("limits:\n  l: {{{text}}}\nroutes: [{{name: all, respond: {{status: 200}}, limits: [l]}}]\n")
}

const BEFORE: &str = "key: api_key, rate: 10/day";

/// The fates of a limit, and what its key has left of ten after four requests and the reload.
const CASES: [(&str, &str, u64); 9] = [
    ("key: api_key, rate: 10/day, on_missing: skip", "kept", 6),
    ("key: api_key, rate: 10/day, max_keys: 500", "rescaled", 6),
    ("key: api_key, rate: 20/day", "rescaled", 12),
    ("key: api_key, rate: 5/day", "rescaled", 3),
    ("key: api_key, rate: 10/day, mode: shadow", "kept", 6),
    ("key: 'header:x-api-key', rate: 10/day", "lost", 10),
    ("key: '[api_key, ip]', rate: 10/day", "lost", 10),
    ("key: api_key, algorithm: fixed_window, rate: 10/day", "lost", 10),
    ("key: api_key, algorithm: sliding_window, rate: 10/day, slices: 4", "lost", 10),
];

fn status(gateway: &Gateway) -> Value {
    serde_json::from_slice(&gateway.admin_get("/status").body).unwrap()
}

/// What is said before and after a reload is what happens to the counters.
#[test]
fn what_is_said_of_counters_is_what_happens() {
    for (after, fate, left) in CASES {
        let after = after.replace("'[api_key, ip]'", "[api_key, ip]");
        let gateway = Gateway::start(&limit(BEFORE));
        gateway.statuses(4, "/", &[("x-api-key", "k")]);
        let folder = Folder::with(&[("new.yaml", &format!("listen: [127.0.0.1:1]\n{}", limit(&after)))]);
        let admin = gateway.admin.to_string();
        let checked = folder.run(&["check", "--against-running", "--admin", &admin, "new.yaml"]);
        let line = format!("limit l                        {fate}");
        assert!(text(&checked).contains(&line), "{after}: {}", text(&checked));
        assert_eq!(checked.status.code(), Some(i32::from(fate == "lost")), "{after}");

        gateway.reload(&limit(&after));
        let key = if after.contains("[api_key") { "k,127.0.0.1" } else { "k" };
        assert_eq!(gateway.remaining("l", key), left, "{after}");
        let reload = &status(&gateway)["last_reload"];
        let shown = &reload["diff"]["limits"][0];
        assert_eq!(
            (&shown["name"], &shown["fate"], &shown["keys"]),
            (&"l".into(), &fate.into(), &1.into()),
            "{after}"
        );
        assert!(reload["at"].is_string() && reload["summary"].as_str().unwrap().contains(fate), "{reload}");
        assert!(gateway.times_logged("is in force, generation 2") > 0);
        assert_eq!(gateway.log().contains("loses its counters"), fate == "lost", "{after}");
    }
}

/// Two files: text for people, JSON for programs, and exit code 1 if something is lost.
#[test]
fn two_files_are_compared() {
    let file = |limits: &str, route: &str| {
        format!(
            "listen: [127.0.0.1:18080]\nlimits:\n{limits}routes: [{{name: {route}, respond: {{status: 200}}, limits: [a]}}]\n"
        )
    };
    let folder = Folder::with(&[
        ("old.yaml", &file("  a: {key: ip, rate: 5/s}\n  b: {key: ip, rate: 5/s, mode: off}\n", "one")),
        ("same.yaml", &file("  a: {key: ip, rate: 5/s}\n  b: {key: ip, rate: 5/s, mode: off}\n", "one")),
        ("new.yaml", &file("  a: {key: global, rate: 5/s}\n  c: {key: ip, rate: 5/s, mode: off}\n", "two")),
    ]);
    let same = folder.run(&["diff", "old.yaml", "same.yaml"]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same));
    let changed = folder.run(&["diff", "old.yaml", "new.yaml", "--json"]);
    assert_eq!(changed.status.code(), Some(1), "{}", text(&changed));
    let diff: Value = serde_json::from_slice(&changed.stdout).unwrap();
    let fates: Vec<(&str, &str)> = diff["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|limit| (limit["name"].as_str().unwrap(), limit["fate"].as_str().unwrap()))
        .collect();
    assert_eq!(fates, [("a", "lost"), ("c", "new"), ("b", "removed")]);
    assert!(diff["limits"][1]["why"].as_str().unwrap().contains("`b`"), "a limit with a new name: {diff}");
    assert_eq!((&diff["routes"]["added"][0], &diff["routes"]["removed"][0]), (&"two".into(), &"one".into()));
    assert_eq!(diff["listeners"]["changed"], Value::Array(Vec::new()));
    let people = folder.run(&["diff", "old.yaml", "new.yaml"]);
    assert!(
        text(&people).contains("! limit a                        lost      (key was ip and is global)"),
        "{}",
        text(&people)
    );
}

/// A file with errors, a gateway that is away: clear errors and exit code 1.
#[test]
fn what_cannot_be_compared_is_an_error() {
    let folder = Folder::with(&[
        ("good.yaml", &format!("listen: [127.0.0.1:18080]\n{}", limit(BEFORE))),
        ("bad.yaml", "listen: [nowhere]\n"),
    ]);
    let port = ReservedPort::new();
    let nobody = port.address.to_string();
    for (args, word) in [
        (&["diff", "good.yaml", "bad.yaml"][..], "bad.yaml has errors"),
        (&["diff", "good.yaml", "none.yaml"], "cannot read none.yaml"),
        (&["diff", "-", "-"], "standard input cannot be both"),
        (&["check", "--against-running", "--admin", &nobody, "good.yaml"], "cannot reach the admin API"),
    ] {
        let output = folder.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output));
        assert!(text(&output).contains(word), "{args:?}: {}", text(&output));
    }
}

/// Shared counters are lost with the prefix of their names, and kept with everything else.
#[test]
fn a_store_elsewhere_loses_shared_counters() {
    let file =
        |store: &str| format!("listen: [127.0.0.1:18080]\nstore: {{redis: {{{store}}}}}\n{}", limit(BEFORE));
    let folder = Folder::with(&[
        ("old.yaml", &file("url: 'redis://127.0.0.1:6379'")),
        ("slow.yaml", &file("url: 'redis://127.0.0.1:6379', timeout: 30ms")),
        ("prefix.yaml", &file("url: 'redis://127.0.0.1:6379', prefix: other")),
        ("server.yaml", &file("url: 'redis://127.0.0.1:6380'")),
    ]);
    for (new, code) in [("slow.yaml", 0), ("prefix.yaml", 1), ("server.yaml", 1)] {
        let output = folder.run(&["diff", "old.yaml", new]);
        assert_eq!(output.status.code(), Some(code), "{new}: {}", text(&output));
    }
}

/// What is said of plans, and of keys that a store counts.
#[test]
fn a_limit_is_lost_only_if_all_its_counters_are() {
    let file = |limit: &str| {
        format!(
            "listen: [127.0.0.1:1]\nstore: {{redis: {{url: \"redis://10.0.0.5\"}}}}\nauth: {{check: {{url: 'http://127.0.0.1:9/'}}}}\n\
             limits: {{l: {{{limit}}}}}\nroutes: [{{name: all, respond: {{status: 200}}, limits: [l]}}]\n"
        )
    };
    for (before, after, fate) in [
        (
            "key: consumer, rate: 10/day, scope: local",
            "key: consumer, rate: 10/day, scope: local, plans: {gold: 100/day}",
            "kept",
        ),
        (
            "key: consumer, rate: 10/day, scope: local, plans: {a: 5/day}",
            "key: consumer, rate: 10/day, scope: local, plans: {a: 5/day, b: 7/day}",
            "kept",
        ),
        (
            "key: consumer, rate: 10/day, scope: local, plans: {a: 5/day}",
            "key: consumer, rate: 10/day, scope: local, plans: {a: 6/day}",
            "rescaled",
        ),
        (
            "key: consumer, rate: 10/day, scope: local, plans: {a: 5/day}",
            "key: consumer, rate: 10/day, scope: local",
            "lost",
        ),
        ("key: consumer, rate: 10/day, plans: {a: 5/day}", "key: consumer, rate: 10/day", "kept"),
        ("key: api_key, rate: 10/day", "key: api_key | ip, rate: 10/day", "kept"),
        ("key: api_key, rate: 10/day", "key: api_key | ip, rate: 20/day", "rescaled"),
        ("key: api_key, rate: 10/day, scope: local", "key: api_key | ip, rate: 10/day, scope: local", "lost"),
        ("key: api_key, rate: 10/day", "key: ip, rate: 10/day", "lost"),
        ("key: api_key, rate: 10/day", "key: api_key, algorithm: leaky_bucket, rate: 10/day", "lost"),
    ] {
        let folder = Folder::with(&[("old.yaml", &file(before)), ("new.yaml", &file(after))]);
        let said = folder.run(&["diff", "old.yaml", "new.yaml"]);
        let line = format!("limit l                        {fate}");
        assert!(text(&said).contains(&line), "{before} -> {after}: {}", text(&said));
    }
}
