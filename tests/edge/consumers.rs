//! Known API keys: which are accepted, what they are counted as, what the upstream is told, and what happens when the
//! file changes while the gateway serves.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Output;

use crate::harness::{Fleet, Gateway, RedisServer, Response, Setup, Upstream, program, sleep, until};
use aws_lc_rs::digest::{SHA256, digest};
use serde_json::Value;
use sluicegate_auth::Consumers;
use sluicegate_base::file_watch::Watched;
use tempfile::TempDir;

/// An entry whose key is its name with `sk-` before it.
fn entry(name: &str, plan: &str) -> String {
    format!("- {{name: {name}, key: {}, plan: {plan}}}\n", hashed(&format!("sk-{name}")))
}

fn hashed(key: &str) -> String {
    let digest = digest(&SHA256, key.as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// A gateway that answers by itself, under one limit `l` of two a day.
fn rules(api_key: &str, key: &str) -> String {
    format!(
        "auth: {{api_key: {{consumers: consumers.yaml, {api_key}}}}}\nlimits: {{l: {{key: {key}, rate: 2/day}}}}\n\
         routes: [{{name: all, respond: {{status: 200}}, limits: [l]}}]\n"
    )
}

fn two() -> Setup {
    Setup::default().file("consumers.yaml", &(entry("acme", "pro") + &entry("beta", "free")))
}

fn status(gateway: &Gateway) -> Value {
    gateway.admin_get("/status").json()
}

#[track_caller]
fn is_challenge(answer: &Response) {
    assert_eq!(answer.status, 401);
    assert_eq!(answer.header("www-authenticate"), Some("ApiKey realm=\"sluicegate\""));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.json()["status"], 401);
    assert!(!answer.text().contains("acme") && !answer.text().contains("consumers"), "{}", answer.text());
}

/// With `required` only a known key, sent once, comes in; whatever else is sent is answered 401.
#[test]
fn only_known_keys_are_accepted() {
    let gateway = two().start(&rules("required: true", "consumer"));
    let (long, huge) = ("k".repeat(4 << 10), "k".repeat(10_000));
    let refused: [&[(&str, &str)]; 9] = [
        &[],
        &[("x-api-key", "")],
        &[("x-api-key", "sk-gamma")],
        &[("x-api-key", "SK-ACME")],
        &[("x-api-key", &hashed("sk-acme"))],
        &[("x-api-key", "sk-acme"), ("x-api-key", "sk-acme")],
        &[("x-api-key", "sk-acme"), ("x-api-key", "sk-beta")],
        &[("x-api-key", &long)],
        &[("x-api-key", &huge)],
    ];
    for headers in refused {
        is_challenge(&gateway.ask("GET", "/", headers));
    }
    assert_eq!(gateway.statuses(3, "/", &[("x-api-key", "sk-acme")]), [200, 200, 429]);
    assert_eq!(gateway.statuses(3, "/", &[("X-API-Key", "sk-beta")]), [200, 200, 429]);
    assert_eq!(gateway.remaining("l", "acme"), 0);
    assert_eq!(gateway.metric("sluicegate_requests_total", &[("route", "all"), ("code", "401")]), 9.0);
}

/// A key in the query is one too, and it is what is decoded that counts.
#[test]
fn a_key_in_the_query_is_known() {
    let gateway = two().start(&rules("query: key, required: true", "consumer"));
    for (target, status) in [
        ("/?key=sk-acme", 200),
        ("/?a=b&key=sk%2Dacme", 200),
        ("/?key=sk-acme&key=sk-acme", 401),
        ("/?key=", 401),
        ("/?key", 401),
        ("/?key=sk-nobody", 401),
        ("/", 401),
    ] {
        assert_eq!(gateway.get(target).status, status, "{target}");
    }
}

/// A gRPC call gets the status that says the same.
#[test]
fn a_call_without_a_known_key_is_unauthenticated() {
    let gateway = two().start(&rules("required: true", "consumer"));
    let answer = gateway.ask("POST", "/s/M", &[("content-type", "application/grpc"), ("x-api-key", "no")]);
    assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("16")));
    assert!(answer.body.is_empty());
}

/// Without `required` an unknown key is nobody: it is let in, and changing it gives no new counter.
#[test]
fn an_unknown_key_identifies_nobody() {
    for key in ["consumer", "api_key"] {
        let gateway = two().start(&rules("required: false", key));
        let asked = |sent: &str| gateway.ask("GET", "/", &[("x-api-key", sent)]).status;
        assert_eq!([asked("a"), asked("b"), asked("c")], [200, 200, 429], "{key}: they share one counter");
        assert_eq!(gateway.get("/").status, 429, "{key}: with those that send none");
        assert_eq!([asked("sk-acme"), asked("sk-acme"), asked("sk-acme")], [200, 200, 429], "{key}");
        assert_eq!(asked("sk-beta"), 200, "{key}");
    }
}

/// Two keys of a consumer are one consumer and two API keys.
#[test]
fn the_keys_of_a_consumer_share_its_limit() {
    let keys = format!("- name: acme\n  keys:\n  - {}\n  - {}\n", hashed("old"), hashed("new"));
    for (key, third) in [("consumer", 429), ("api_key", 200)] {
        let gateway = Setup::default().file("consumers.yaml", &keys).start(&rules("required: true", key));
        assert_eq!(gateway.statuses(2, "/", &[("x-api-key", "old")]), [200, 200]);
        assert_eq!(gateway.ask("GET", "/", &[("x-api-key", "new")]).status, third, "{key}");
    }
}

/// The file is read by a reader of our own, which is fast and refuses much; what it takes, any reader of YAML takes
/// for the same.
#[test]
fn the_file_is_yaml() {
    let text = std::fs::read_to_string("tests/config/good/consumers/consumers.yaml").unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut taken = 0;
    for cut in 0..lines.len() * 4 {
        let from = cut / 4; // up to three lines are missing from here on
        let to = lines.len().min(from + cut % 4);
        let text = [&lines[..from], &lines[to..]].concat().join("\n");
        let Ok(consumers) = Consumers::parse(&text, "consumers.yaml") else { continue };
        taken += 1;
        let yaml: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let entries = yaml.as_array().unwrap();
        let keys = |entry: &Value| {
            usize::from(entry["key"].is_string()) + entry["keys"].as_array().map_or(0, Vec::len)
        };
        let count: usize = entries.iter().map(keys).sum();
        assert_eq!((consumers.len(), consumers.keys()), (entries.len(), count), "{text}");
        for (key, place) in [("k1", "acme"), ("k2", "beta"), ("k5", "@gamma"), ("k6", "json")] {
            let Some(consumer) = consumers.find(key.as_bytes()) else { continue };
            assert_eq!(consumer.name, place);
            let entry = entries.iter().find(|entry| entry["name"] == place).unwrap();
            assert_eq!(consumer.plan, entry["plan"].as_str());
            let metadata = entry["metadata"].as_object().into_iter().flatten();
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let metadata: Vec<_> = metadata.map(|(name, value)| (name.clone(), text(value))).collect();
            let mut own: Vec<_> = consumer.metadata().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
            own.sort();
            assert_eq!(own, metadata, "{text}", text = entry);
        }
    }
    assert!(taken > 20, "{taken}");
}

/// Gateways with one store count a consumer together, and a consumer that comes later too.
#[test]
fn a_consumer_has_one_limit_at_all_gateways() {
    let redis = RedisServer::start();
    for key in ["consumer", "api_key"] {
        let rules = redis.store() + &rules("required: true", key);
        let fleet = Fleet::of(vec![two(), two()], &rules);
        fleet.up();
        assert_eq!(fleet.in_turn(4, "sk-acme"), [200, 200, 429, 429], "{key}");
        assert_eq!(fleet.in_turn(2, "sk-gamma"), [401, 401], "{key}");
        fleet.iter().for_each(|gateway| gateway.write_file("consumers.yaml", &entry("gamma", "pro")));
        let known = |gateway: &Gateway| status(gateway)["consumers"]["consumers"] == 1;
        until("both have the new file", || fleet.iter().all(known).then_some(()));
        assert_eq!(fleet.in_turn(4, "sk-gamma"), [200, 200, 429, 429], "{key}");
        redis.run::<()>(&["FLUSHALL"]);
    }
}

const FORWARDING: &str =
    "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, upstream: api}]\n";

/// The upstream is told the consumer, by nobody but the gateway.
#[test]
fn the_upstream_is_told_the_consumer() {
    let upstream = Upstream::answering("done");
    let file = format!("{}- {{name: plain, key: {}}}\n", entry("acme", "pro"), hashed("sk-plain"));
    let config = |rest: &str| format!("auth: {{api_key: {{consumers: consumers.yaml{rest}}}}}\n{FORWARDING}");
    let gateway = Setup::default().upstream(&upstream).file("consumers.yaml", &file).start(&config(""));
    let spoofed = [
        ("x-consumer-name", "root"),
        ("X-Consumer-Plan", "gold"),
        ("X_Consumer_Name", "root"),
        ("x-consumer_plan", "gold"),
        ("x-consumer-id", "stays"),
    ];
    let shown = |headers: &[(&str, &str)]| {
        let before = upstream.seen().len();
        assert_eq!(gateway.ask("GET", "/", &[headers, &spoofed].concat()).status, 200);
        let seen = upstream.wait_for(before + 1).pop().unwrap();
        assert_eq!(seen.head.one("x-consumer-id"), Some("stays"));
        assert!(seen.head.all("x_consumer_name").is_empty() && seen.head.all("x-consumer_plan").is_empty());
        ["x-consumer-name", "x-consumer-plan"].map(|name| seen.head.one(name).map(str::to_owned))
    };
    let both = |name: &str, plan: &str| [Some(name.to_owned()), Some(plan.to_owned())];
    assert_eq!(shown(&[("x-api-key", "sk-acme")]), both("acme", "pro"));
    let in_connection =
        [("x-api-key", "sk-acme"), ("connection", "x-consumer-name, x-consumer-plan, x-other")];
    assert_eq!(shown(&in_connection), both("acme", "pro"), "it cannot be named away");
    assert_eq!(shown(&[("x-api-key", "sk-plain")]), [Some("plain".to_owned()), None]);
    assert_eq!(shown(&[("x-api-key", "sk-nobody")]), [None, None]);
    assert_eq!(shown(&[]), [None, None]);

    // Behind the body is still in the request.
    let mut client = gateway.client();
    let head = [("transfer-encoding", "chunked"), ("te", "trailers"), ("trailer", "X-Consumer-Name, X-Sum")];
    client.request("POST", "/", &head).send("1\r\na\r\n0\r\nX-Consumer-Name: root\r\nX-Sum: 1\r\n\r\n");
    assert_eq!(client.response().status, 200);
    let seen = upstream.last().head;
    assert_eq!((seen.all("x-consumer-name"), seen.all("x-sum")), (vec![], vec!["1"]));

    gateway.reload(&config(", forward: false"));
    gateway.ask("GET", "/", &[("x-api-key", "sk-acme"), ("x-consumer-name", "own")]);
    assert_eq!(upstream.last().head.one("x-consumer-name"), Some("own"), "these headers are the API's then");
}

/// The file alone is enough: a key that is added is known within a second, one that is removed no more, and nobody's
/// counter or connection is lost.
#[test]
fn the_file_is_loaded_while_serving() {
    let gateway = two().start(&rules("required: true", "consumer"));
    let mut kept = gateway.client();
    let mut asked = |key: &str| kept.ask("GET", "/", &[("x-api-key", key)]).status;
    assert_eq!((asked("sk-acme"), asked("sk-gamma")), (200, 401));
    let loaded_at = status(&gateway)["loaded_at"].clone();

    gateway.write_file("consumers.yaml", &(entry("acme", "pro") + &entry("gamma", "free")));
    until("the new key is known", || (asked("sk-gamma") == 200).then_some(()));
    assert_eq!((asked("sk-beta"), asked("sk-acme"), asked("sk-acme")), (401, 200, 429));
    let shown = status(&gateway);
    assert_eq!((&shown["consumers"]["consumers"], &shown["loaded_at"]), (&Value::from(2), &loaded_at));

    // Another file that is renamed over it, as `consumers add` and editors do.
    let beside = gateway.path("new");
    std::fs::write(&beside, entry("delta", "free")).unwrap();
    std::fs::rename(beside, gateway.path("consumers.yaml")).unwrap();
    until("the other file is in force", || (asked("sk-delta") == 200).then_some(()));
    assert_eq!(asked("sk-gamma"), 401);

    // A file that is gone for a moment is being replaced.
    std::fs::remove_file(gateway.path("consumers.yaml")).unwrap();
    sleep(std::time::Duration::from_millis(700));
    assert_eq!(asked("sk-delta"), 200);
    gateway.write_file("consumers.yaml", &entry("epsilon", "free"));
    until("it is back", || (asked("sk-epsilon") == 200).then_some(()));
}

/// Many consumers: all are known, and another file of as many takes their place under load.
#[test]
fn many_consumers_are_known() {
    const MANY: usize = 20_000;
    let file = |word: &str| -> String { (0..MANY).map(|n| entry(&format!("{word}{n}"), "pro")).collect() };
    let gateway =
        Setup::default().file("consumers.yaml", &file("a")).start(&rules("required: true", "consumer"));
    let mut client = gateway.client();
    let mut asked = |key: &str| client.ask("GET", "/", &[("x-api-key", key)]).status;
    for n in (0..MANY).step_by(997).chain([MANY - 1]) {
        assert_eq!((asked(&format!("sk-a{n}")), asked(&format!("sk-b{n}"))), (200, 401), "{n}");
    }
    gateway.write_file("consumers.yaml", &file("b"));
    until("the other consumers are known", || {
        let (before, after) = (asked("sk-a3") != 401, asked("sk-b0") != 401);
        assert!(before || after, "there is always a whole file in force");
        after.then_some(())
    });
    for n in (1..MANY).step_by(997).chain([MANY - 1]) {
        assert_eq!((asked(&format!("sk-a{n}")), asked(&format!("sk-b{n}"))), (401, 200), "{n}");
    }
}

/// A mounted ConfigMap: the file is a link into a folder that is swapped.
#[test]
fn a_swapped_folder_is_noticed() {
    let gateway = two().start(&rules("required: true", "consumer"));
    for (turn, name) in ["x", "y", "z"].into_iter().enumerate() {
        let data = gateway.path(&format!("data-{turn}"));
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("consumers.yaml"), entry(name, "free")).unwrap();
        symlink(&data, gateway.path("data-new")).unwrap();
        std::fs::rename(gateway.path("data-new"), gateway.path("data")).unwrap();
        if turn == 0 {
            symlink("data/consumers.yaml", gateway.path("link")).unwrap();
            std::fs::rename(gateway.path("link"), gateway.path("consumers.yaml")).unwrap();
        }
        let key = format!("sk-{name}");
        until("the swapped file is in force", || {
            (gateway.ask("GET", "/", &[("x-api-key", &key)]).status != 401).then_some(())
        });
    }
}

/// A file with mistakes changes nothing: it is logged once and stands in /status, without a key in either.
#[test]
fn an_invalid_file_keeps_the_previous_consumers() {
    let gateway = two().start(&rules("required: true", "consumer"));
    let successful = || gateway.metric("sluicegate_config_last_reload_successful", &[]);
    let error = || status(&gateway)["consumers"]["last_reload_error"].as_str().map(str::to_owned);
    assert_eq!((error(), successful()), (None, 1.0));
    gateway.write_file(
        "consumers.yaml",
        &(entry("acme", "pro") + "- {name: beta, key: open-sesame}\n- name: x\n"),
    );
    // It may also be seen when only a part of it is written.
    let mistakes = ["consumers.yaml:2: a key is", "consumers.yaml:3: `x` has no key"];
    let shown = until("the mistakes are told", || {
        error().filter(|shown| mistakes.iter().all(|mistake| shown.contains(mistake)))
    });
    assert_eq!(successful(), 0.0);
    assert_eq!(gateway.ask("GET", "/", &[("x-api-key", "sk-beta")]).status, 200, "as before");
    assert_eq!(gateway.ask("GET", "/", &[("x-api-key", "open-sesame")]).status, 401);
    sleep(std::time::Duration::from_millis(1_200)); // two looks
    assert_eq!(gateway.times_logged("has 2 mistakes"), 1, "{}", gateway.log());
    assert!(!gateway.log().contains("open-sesame") && !shown.contains("open-sesame"));

    gateway.write_file("consumers.yaml", &(entry("acme", "pro") + &entry("gamma", "pro")));
    until("a good file is in force", || error().is_none().then_some(()));
    assert_eq!(gateway.ask("GET", "/", &[("x-api-key", "sk-gamma")]).status, 200);
    assert_eq!(successful(), 1.0);
}

/// A configuration that was refused for its consumers comes into force when they are right.
#[test]
fn a_configuration_waits_for_its_consumers() {
    let gateway = two().start(&rules("required: true", "consumer"));
    gateway.write_file("consumers.yaml", "- name: x\n");
    gateway.write(&rules("required: false", "consumer"));
    until("it is refused", || status(&gateway)["last_reload_error"].as_str().map(|_| ()));
    assert_eq!(gateway.get("/").status, 401, "as before");
    gateway.write_file("consumers.yaml", &entry("acme", "pro"));
    until("it is in force", || (gateway.get("/").status == 200).then_some(()));
    assert_eq!(gateway.ask("GET", "/", &[("x-api-key", "sk-acme")]).status, 200);
    assert!(status(&gateway)["last_reload_error"].is_null());
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    program().args(arguments).current_dir(folder).output().unwrap()
}

fn out(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `consumers add` makes a key that a gateway which runs knows a moment later, and `remove` takes it away.
#[test]
fn a_created_key_is_known() {
    let gateway =
        Setup::default().file("consumers.yaml", "# ours\n[]\n").start(&rules("required: true", "consumer"));
    let folder = gateway.path("");
    let (code, printed) = out(&run(&folder, &["consumers", "add", "acme", "--plan", "pro"]));
    assert_eq!(code, Some(0));
    let key = printed.strip_suffix('\n').unwrap();
    let random = key.strip_prefix("sk_").unwrap();
    assert!(
        random.len() == 43 && random.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)),
        "{key}"
    );
    let text = std::fs::read_to_string(gateway.path("consumers.yaml")).unwrap();
    assert_eq!(text, format!("# ours\n- name: acme\n  key: {}\n  plan: pro\n", hashed(key)));
    until("the key is known", || {
        (gateway.ask("GET", "/", &[("x-api-key", key)]).status == 200).then_some(())
    });

    assert_eq!(out(&run(&folder, &["consumers", "list"])), (Some(0), "acme\tpro\t1\n".to_owned()));
    let again = run(&folder, &["consumers", "add", "acme"]);
    assert_eq!(out(&again), (Some(1), String::new()), "a name is given once");
    assert!(String::from_utf8_lossy(&again.stderr).contains("a consumer `acme` already"));
    assert_eq!(run(&folder, &["consumers", "remove", "nobody"]).status.code(), Some(1));
    assert_eq!(run(&folder, &["consumers", "remove", "acme"]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(gateway.path("consumers.yaml")).unwrap(), "# ours\n[]\n");
    until("the key is unknown", || {
        (gateway.ask("GET", "/", &[("x-api-key", key)]).status == 401).then_some(())
    });
}

/// The file keeps its mode and its comments, a link stays one, and what is not asked for stays as it is.
#[test]
fn a_changed_file_keeps_everything_else() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("real.yaml");
    let text = format!(
        "# top\n  - name: a # first\n    key: {}\n\n  # of b\n  {}",
        hashed("a"),
        entry("b", "x").trim()
    );
    std::fs::write(&path, &text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).unwrap();
    symlink("real.yaml", folder.path().join("link.yaml")).unwrap();
    let consumers = |arguments: &[&str]| {
        let output = run(folder.path(), &[&["consumers"], arguments, &["--file", "link.yaml"]].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(consumers(&["add", "c"]).0, Some(0));
    let now = std::fs::read_to_string(&path).unwrap();
    assert!(now.starts_with(&(text.clone() + "\n  - name: c\n    key: sha256:")), "{now}");
    assert_eq!(consumers(&["remove", "c"]).0, Some(0));
    assert_eq!(consumers(&["remove", "a"]).0, Some(0));
    let left = format!("# top\n\n  # of b\n  {}", entry("b", "x"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), left);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o604);
    assert!(std::fs::symlink_metadata(folder.path().join("link.yaml")).unwrap().is_symlink());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left behind");

    std::fs::write(&path, "- name: broken\n").unwrap();
    let (code, shown) = consumers(&["add", "d"]);
    assert!(code == Some(1) && shown.contains("link.yaml:1: `broken` has no key"), "{shown}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "- name: broken\n");
    for name in ["", "a b", "a,b", "ž"] {
        assert_eq!(consumers(&["add", name]).0, Some(1), "{name}");
    }
}

/// Keys that are made at the same time are all kept, in a file that one of them made.
#[test]
fn keys_can_be_created_concurrently() {
    let folder = TempDir::new().unwrap();
    let codes = crate::harness::in_parallel(8, |index| {
        run(folder.path(), &["consumers", "add", &format!("c{index}"), "--file", "all.yaml"]).status.code()
    });
    assert_eq!(codes, [Some(0); 8]);
    assert_eq!(out(&run(folder.path(), &["consumers", "list", "--file", "all.yaml"])).1.lines().count(), 8);
    let mode = std::fs::metadata(folder.path().join("all.yaml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o007, 0, "others need not read it");
}

/// Where the file is, the configuration says; one that names none, and one without its file, are told so.
#[test]
fn the_configuration_says_where_the_file_is() {
    let folder = TempDir::new().unwrap();
    let write = |text: &str| std::fs::write(folder.path().join("gateway.yaml"), text).unwrap();
    let rest = "listen: [127.0.0.1:18080]\nroutes: [{respond: {status: 200}}]\n";
    write(rest);
    let none = run(folder.path(), &["consumers", "add", "a"]);
    assert!(none.status.code() == Some(1) && String::from_utf8_lossy(&none.stderr).contains("names no file"));
    write(&format!("auth: {{api_key: {{consumers: keys.yaml}}}}\n{rest}"));
    for command in [&["check"][..], &["run"]] {
        let output = run(folder.path(), command);
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("cannot read keys.yaml"), "{output:?}");
    }
    assert_eq!(run(folder.path(), &["consumers", "add", "a"]).status.code(), Some(0));
    assert_eq!(run(folder.path(), &["check", "--strict"]).status.code(), Some(0));
    std::fs::set_permissions(folder.path().join("keys.yaml"), std::fs::Permissions::from_mode(0o644))
        .unwrap();
    let open = run(folder.path(), &["check", "--strict"]);
    assert_eq!(open.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&open.stderr).contains("can be read by every user"), "{open:?}");
}

/// A replay knows the same keys: with `required` those without one are refused.
#[test]
fn a_replay_knows_the_keys() {
    let folder = TempDir::new().unwrap();
    let line = |key: &str| {
        format!(
            "{{\"time\": 1, \"client_ip\": \"203.0.113.9\", \"method\": \"GET\", \"host\": \"a.test\", \"path\": \"/\", \"headers\": {{\"x-api-key\": \"{key}\"}}}}\n"
        )
    };
    let log: String = ["sk-acme", "sk-acme", "sk-acme", "sk-nobody", "x"].into_iter().map(line).collect();
    std::fs::write(folder.path().join("log"), log).unwrap();
    std::fs::write(folder.path().join("consumers.yaml"), entry("acme", "pro")).unwrap();
    let outcomes = |api_key: &str, key: &str| -> Vec<String> {
        let rules = format!("listen: [127.0.0.1:18080]\n{}", rules(api_key, key));
        std::fs::write(folder.path().join("gateway.yaml"), rules).unwrap();
        assert_eq!(run(folder.path(), &["replay", "log", "--decisions", "out"]).status.code(), Some(0));
        let text = std::fs::read_to_string(folder.path().join("out")).unwrap();
        let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.map(|row| row["outcome"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(outcomes("required: true", "global")[3..], ["refused", "refused"]);
    assert_eq!(
        outcomes("required: false", "consumer"),
        ["admitted", "admitted", "refused", "admitted", "admitted"]
    );
}
