//! Rules at run time: other numbers of a limit for single keys, managed over the admin API and the command.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::load::admitted;
use crate::harness::{Client, Gateway, Load, RedisServer, Response, Setup, TOKEN, deadline, program, until};

/// A limit of 5 that does not fill up again, with rules.
const FIVE: &str = "rules: {file: rules.db, wait: 1s}\nlimits: {per-key: {key: api_key, rate: 5/366d}}\nroutes:\n  \
                    - {name: usage, match: {path: /usage}, respond: usage, limits: [per-key]}\n  \
                    - {name: api, respond: {status: 200}, limits: [per-key]}\n";

/// A change with the token, or a question.
#[track_caller]
fn ask(gateway: &Gateway, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let bearer = format!("Bearer {TOKEN}");
    let length = body.len().to_string();
    let own =
        [("host", "localhost"), ("authorization", bearer.as_str()), ("content-length", length.as_str())];
    let mut client = Client::connect(gateway.admin);
    client.request(method, path, &[&own, headers].concat()).send(body);
    client.response()
}

#[track_caller]
fn put(gateway: &Gateway, id: &str, rule: &Value) -> Response {
    ask(gateway, "PUT", &format!("/rules/{id}"), &[], &rule.to_string())
}

fn rule(key: &str, rate: &str) -> Value {
    json!({ "limit": "per-key", "key": key, "rate": rate })
}

/// What a key has left after one more request.
#[track_caller]
fn left(gateway: &Gateway, key: &str) -> (u64, u64) {
    let response = gateway.ask("GET", "/", &[("x-api-key", key)]);
    (response.number("x-ratelimit-limit"), response.number("x-ratelimit-remaining"))
}

/// Waits until a key has this limit, and spends none of it: a request waits for its rule, but not for longer than a second.
#[track_caller]
pub(crate) fn in_force(gateway: &Gateway, key: &str, limit: u64) {
    until("the rule is in force", || {
        let shown = gateway.ask("GET", "/usage", &[("x-api-key", key)]);
        (shown.number("x-ratelimit-limit") == limit).then_some(())
    });
}

/// A rule is in force for the next request, on what was spent; a deleted one is not.
#[test]
fn a_rule_is_in_force_at_once() {
    let gateway = Gateway::start(FIVE);
    assert_eq!(left(&gateway, "k1"), (5, 4));
    let made = put(&gateway, "acme", &rule("k1", "50/366d"));
    assert_eq!((made.status, made.header("etag")), (201, Some("\"1\"")));
    let response = gateway.ask("GET", "/", &[("x-api-key", "k1")]);
    assert_eq!(response.number("x-ratelimit-limit"), 50);
    assert_eq!(response.number("x-ratelimit-remaining"), 39, "a fifth was spent, and one more");
    assert!(response.header("ratelimit-policy").unwrap().starts_with("\"per-key\";q=50;"), "{response:?}");
    assert_eq!(left(&gateway, "k2"), (5, 4), "others are as before");
    assert_eq!(put(&gateway, "acme", &rule("k1", "500/366d")).status, 200);
    assert_eq!(left(&gateway, "k1").0, 500);
    assert_eq!(ask(&gateway, "DELETE", "/rules/acme", &[], "").status, 204);
    assert_eq!(left(&gateway, "k1").0, 5);
    assert_eq!(ask(&gateway, "DELETE", "/rules/acme", &[], "").status, 404);
}

/// Under a rule exactly as many requests pass as it says, however many come at once.
#[test]
fn a_rule_is_exact() {
    let gateway = Setup::default().workers(4).start(FIVE);
    assert_eq!(put(&gateway, "acme", &rule("k1", "70/366d")).status, 201);
    in_force(&gateway, "k1", 70);
    let gateways = [gateway];
    let passed = admitted(&Load::on(&gateways, 32).keys(&["k1"]).send(300));
    assert_eq!(passed, 70);
}

/// Of several rules the highest priority applies, then the most exact, then the newest.
#[test]
fn priorities_and_patterns() {
    let gateway = Gateway::start(FIVE);
    put(&gateway, "all", &rule("*", "10/366d"));
    put(&gateway, "merchants", &rule("merchant-*", "20/366d"));
    put(&gateway, "one", &rule("merchant-1", "30/366d"));
    in_force(&gateway, "x", 10);
    in_force(&gateway, "merchant-2", 20);
    in_force(&gateway, "merchant-1", 30);
    let mut first = rule("*", "40/366d");
    first["priority"] = 1.into();
    put(&gateway, "all", &first);
    in_force(&gateway, "merchant-1", 40);
    put(&gateway, "newer", &json!({"limit": "per-key", "key": "*", "rate": "60/366d", "priority": 1}));
    in_force(&gateway, "x", 60);
    put(&gateway, "free", &json!({"limit": "per-key", "key": "vip", "exempt": true, "priority": 9}));
    until("the key is exempt", || {
        let response = gateway.ask("GET", "/", &[("x-api-key", "vip")]);
        response.header("x-ratelimit-limit").is_none().then_some(())
    });
    put(
        &gateway,
        "shadow",
        &json!({"limit": "per-key", "key": "tried", "mode": "shadow", "rate": "1/366d", "priority": 9}),
    );
    assert_eq!(gateway.statuses(3, "/", &[("x-api-key", "tried")]), [200; 3]);
}

/// Addresses are named as addresses and networks.
#[test]
fn addresses_and_networks() {
    let text = "client_ip: {trusted_proxies: [127.0.0.1]}\nrules: {file: rules.db, wait: 1s}\nlimits: {per-ip: {key: ip, rate: \
                5/366d}}\nroutes: [{respond: {status: 200}, limits: [per-ip]}]\n";
    let gateway = Gateway::start(text);
    let has = |address: &str, limit: u64| {
        until("the rule is in force", || {
            let response = gateway.ask("GET", "/", &[("x-forwarded-for", address)]);
            (response.number("x-ratelimit-limit") == limit).then_some(())
        });
    };
    let of = |key: &str, rate: &str| json!({"limit": "per-ip", "key": key, "rate": rate});
    put(&gateway, "office", &of("203.0.113.0/24", "20/366d"));
    put(&gateway, "host", &of("203.0.113.7", "30/366d"));
    put(&gateway, "six", &of("2001:DB8:0::/48", "40/366d"));
    has("203.0.113.1", 20);
    has("203.0.113.7", 30);
    has("203.0.114.1", 5);
    has("2001:db8:0:1::1", 40);
}

/// A rule begins and ends at its times.
#[test]
fn a_rule_has_times() {
    let gateway = Gateway::start(FIVE);
    let mut later = rule("k1", "50/366d");
    later["from"] = "2100-01-01T00:00:00Z".into();
    put(&gateway, "later", &later);
    assert_eq!(left(&gateway, "k1").0, 5);
    let mut over = rule("k1", "60/366d");
    over["until"] = "2020-01-01T00:00:00Z".into();
    put(&gateway, "over", &over);
    assert_eq!(left(&gateway, "k1").0, 5);
    let mut short = rule("k2", "70/366d");
    put(&gateway, "short", &short);
    in_force(&gateway, "k2", 70);
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(1_500);
    short["until"] = soon.to_string().into();
    put(&gateway, "short", &short);
    until("the rule has ended", || (left(&gateway, "k2").0 == 5).then_some(()));
    assert!(jiff::Timestamp::now() >= soon);
}

/// What is wrong with a rule is told as `check` tells it, and nothing is written.
#[test]
fn a_wrong_rule_is_refused() {
    let gateway = Gateway::start(FIVE);
    for (wrong, field, detail) in [
        (json!({"limit": "per-kez", "key": "k", "rate": "1/s"}), "limit", "did you mean `per-key`?"),
        (json!({"limit": "per-key", "key": "k", "rate": "7/mi"}), "rate", "expected a rate such as"),
        (json!({"limit": "per-key", "key": "k"}), "rate", ""),
        (json!({"limit": "per-key", "key": "k", "max": 3}), "max", ""),
        (json!({"limit": "per-key", "key": "", "rate": "1/s"}), "key", ""),
        (json!({"limit": "per-key", "key": "k", "rate": "1/s", "until": "tomorrow"}), "until", ""),
    ] {
        let refused = put(&gateway, "x", &wrong);
        assert_eq!(refused.status, 422, "{wrong}: {}", refused.text());
        let errors = refused.json()["errors"].clone();
        assert_eq!(errors[0]["field"], field, "{wrong}: {errors}");
        assert!(errors[0]["detail"].as_str().unwrap().contains(detail), "{errors}");
    }
    assert_eq!(ask(&gateway, "PUT", "/rules/x", &[], "{").status, 400);
    let unknown = put(&gateway, "x", &json!({"limit": "per-key", "key": "k", "rates": "1/s"}));
    assert!(unknown.status == 400 && unknown.text().contains("rates"), "{}", unknown.text());
    assert_eq!(
        put(&gateway, "x", &json!({"id": "y", "limit": "per-key", "key": "k", "rate": "1/s"})).status,
        422
    );
    assert_eq!(gateway.admin_get("/rules").json()["rules"], json!([]));
    let mut client = Client::connect(gateway.admin);
    client.request("PUT", "/rules/x", &[("host", "localhost"), ("content-length", "2")]).send("{}");
    assert_eq!(client.response().status, 401, "changes need the token");
}

/// ETag, If-Match and If-None-Match; PATCH changes what it names.
#[test]
fn conditions() {
    let gateway = Gateway::start(FIVE);
    let text = rule("k1", "50/366d").to_string();
    let conditional = |headers: &[(&str, &str)], body: &str| ask(&gateway, "PUT", "/rules/a", headers, body);
    assert_eq!(conditional(&[("if-match", "*")], &text).status, 412);
    assert_eq!(conditional(&[("if-none-match", "*")], &text).status, 201);
    let there = conditional(&[("if-none-match", "*")], &text);
    assert_eq!((there.status, there.header("etag")), (412, Some("\"1\"")));
    assert_eq!(there.json()["current"]["rate"], "50/366d");
    let patched = ask(
        &gateway,
        "PATCH",
        "/rules/a",
        &[("if-match", "\"1\"")],
        "{\"rate\": \"60/366d\", \"note\": \"n\"}",
    );
    assert_eq!((patched.status, patched.header("etag")), (200, Some("\"2\"")));
    assert_eq!(patched.json()["note"], "n");
    assert_eq!(ask(&gateway, "PATCH", "/rules/a", &[("if-match", "\"1\"")], "{}").status, 412);
    assert_eq!(ask(&gateway, "PATCH", "/rules/a", &[], "{\"priority\": 4}").json()["priority"], 4);
    assert_eq!(ask(&gateway, "DELETE", "/rules/a", &[("if-match", "\"1\"")], "").status, 412);
    assert_eq!(ask(&gateway, "GET", "/rules/a", &[], "").header("etag"), Some("\"3\""));
}

/// Of 200 writers that add one each with If-Match, no update is lost.
#[test]
fn no_update_is_lost() {
    const WRITERS: usize = 200;
    let gateway = Gateway::start(FIVE);
    put(&gateway, "count", &rule("k", "1/366d"));
    let conflicts = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                loop {
                    let read = ask(&gateway, "GET", "/rules/count", &[], "");
                    let known: Value = read.json();
                    let count: u64 =
                        known["rate"].as_str().unwrap().split('/').next().unwrap().parse().unwrap();
                    let body = rule("k", &format!("{}/366d", count + 1)).to_string();
                    let tag = read.header("etag").unwrap().to_owned();
                    match ask(&gateway, "PUT", "/rules/count", &[("if-match", &tag)], &body).status {
                        200 => break,
                        412 => _ = conflicts.fetch_add(1, Ordering::Relaxed),
                        other => panic!("{other}"),
                    }
                }
            });
        }
    });
    assert_eq!(gateway.admin_get("/rules/count").json()["rate"], format!("{}/366d", WRITERS + 1));
}

/// A batch is written as a whole or not at all; a dry run writes nothing.
#[test]
fn batches_are_atomic() {
    let gateway = Gateway::start(FIVE);
    let lines: String = (0..1_000)
        .map(|n| {
            json!({"id": format!("r{n:04}"), "limit": "per-key", "key": format!("k{n}"), "rate": "9/366d"})
                .to_string()
                + "\n"
        })
        .collect();
    let tried = ask(&gateway, "POST", "/rules:batch?dry_run=1", &[], &lines);
    assert_eq!((tried.status, tried.text().lines().count()), (200, 1_000));
    assert_eq!(gateway.admin_get("/rules").json()["rules"], json!([]), "a dry run");
    let wrong = format!("{lines}{{\"delete\": \"nobody\"}}\n");
    let refused = ask(&gateway, "POST", "/rules:batch", &[], &wrong);
    assert_eq!(refused.status, 404);
    assert_eq!(refused.json()["errors"][0]["line"], 1_001);
    let malformed = ask(&gateway, "POST", "/rules:batch", &[], &format!("{lines}{{\"id\": \"z\"}}\n"));
    assert_eq!((malformed.status, malformed.json()["errors"][0]["line"].as_u64()), (422, Some(1_001)));
    assert_eq!(gateway.admin_get("/rules").json()["rules"], json!([]), "nothing of either");
    let done = ask(&gateway, "POST", "/rules:batch", &[], &lines);
    assert_eq!((done.status, done.text().lines().count()), (200, 1_000));
    in_force(&gateway, "k7", 9);
    let mut seen = Vec::new();
    let mut next = "/rules?most=300".to_owned();
    loop {
        let page = gateway.admin_get(&next);
        seen.extend(
            page.json()["rules"]
                .as_array()
                .unwrap()
                .iter()
                .map(|rule| rule["id"].as_str().unwrap().to_owned()),
        );
        let Some(link) = page.header("link") else { break };
        next = link.trim_start_matches('<').split('>').next().unwrap().to_owned();
    }
    let all: Vec<String> = (0..1_000).map(|n| format!("r{n:04}")).collect();
    assert_eq!(seen, all);
    assert_eq!(gateway.admin_get("/rules?key=k7").json()["rules"][0]["id"], "r0007");
}

/// Rules outlive the process and reloads; counters go on through a reload.
#[test]
fn rules_outlive_reloads_and_the_process() {
    let mut gateway = Gateway::start(FIVE);
    put(&gateway, "acme", &rule("k1", "50/366d"));
    in_force(&gateway, "k1", 50);
    assert_eq!(left(&gateway, "k1"), (50, 49));
    gateway.reload(&FIVE.replace("5/366d", "8/366d"));
    assert_eq!(left(&gateway, "k1"), (50, 48));
    assert_eq!(left(&gateway, "k2"), (8, 7));
    gateway.signal("KILL");
    gateway.ended(deadline());
    let gateway = gateway.again();
    in_force(&gateway, "k1", 50);
    assert_eq!(left(&gateway, "k1"), (50, 49));
}

/// A file that another gateway uses, or that is something else, is refused and not touched.
#[test]
fn foreign_files_are_refused() {
    let gateway = Gateway::start(FIVE);
    let file = gateway.path("rules.db").display().to_string();
    let folder = tempfile::TempDir::new().unwrap();
    let second = |name: &str, rules: &str| {
        let config = folder.path().join(name);
        let text = format!(
            "listen: [\"127.0.0.1:0\"]\nrules: {{file: {rules}}}\nroutes: [{{respond: {{status: 200}}}}]\n"
        );
        std::fs::write(&config, text).unwrap();
        let output = program().args(["run", config.to_str().unwrap()]).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let shown = second("a.yaml", &file);
    assert!(shown.contains("another gateway"), "{shown}");
    std::fs::write(folder.path().join("notes.txt"), "my notes, not a database").unwrap();
    let shown = second("b.yaml", "notes.txt");
    assert!(shown.contains("notes.txt"), "{shown}");
    assert_eq!(std::fs::read_to_string(folder.path().join("notes.txt")).unwrap(), "my notes, not a database");
    assert_eq!(left(&gateway, "k"), (5, 4), "the first one serves");
}

#[test]
fn a_command_says_that_its_token_is_missing_or_wrong() {
    let gateway = Gateway::start(FIVE);
    let refused = |token: &[&str]| {
        let mut command = program();
        command.env_remove("SLUICEGATE_ADMIN_TOKEN").args(["rules", "rm", "acme"]).args(token);
        let output = command.args(["--admin", &gateway.admin.to_string()]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let address = gateway.admin;
    let variable = "--token, or the variable SLUICEGATE_ADMIN_TOKEN";
    let missing =
        format!("sluicegate: the admin API at http://{address} needs a token for this: {variable}\n");
    assert_eq!(refused(&[]), (Some(1), missing));
    let wrong =
        format!("sluicegate: the admin API at http://{address} does not know this token ({variable})\n");
    assert_eq!(refused(&["--token", "other"]), (Some(1), wrong));
}

/// The command does what the API does.
#[test]
fn the_command() {
    let gateway = Gateway::start(FIVE);
    let folder = tempfile::TempDir::new().unwrap();
    let admin = gateway.admin.to_string();
    let run = |arguments: &[&str]| {
        let mut command = program();
        command.env("SLUICEGATE_ADMIN_TOKEN", TOKEN).current_dir(folder.path());
        let output = command.arg("rules").args(arguments).args(["--admin", &admin]).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, shown) = run(&[
        "set",
        "acme",
        "--limit",
        "per-key",
        "--key",
        "k1",
        "--rate",
        "50/366d",
        "--note",
        "they asked",
    ]);
    assert!(code == 0 && shown.contains("they asked"), "{shown}");
    in_force(&gateway, "k1", 50);
    assert_eq!(run(&["list"]), (0, "acme\tper-key\tk1\trate 50/366d\tversion 1\n".to_owned()));
    let (code, shown) = run(&["set", "bad", "--limit", "per-key", "--key", "k1", "--rate", "50"]);
    assert!(code == 1 && shown.contains("expected a rate"), "{shown}");
    let (_, exported) = run(&["export"]);
    std::fs::write(folder.path().join("rules.ndjson"), exported.replace("k1", "k9")).unwrap();
    assert_eq!(
        run(&["import", "rules.ndjson", "--dry-run"]),
        (0, "1 rules would be changed; nothing was written\n".to_owned())
    );
    assert_eq!(left(&gateway, "k9").0, 5);
    assert_eq!(run(&["import", "rules.ndjson"]), (0, "1 rules changed\n".to_owned()));
    in_force(&gateway, "k9", 50);
    in_force(&gateway, "k1", 5); // the rule has another key
    let many: String = (0..7)
        .map(|number| {
            format!("{{\"id\":\"m{number}\",\"limit\":\"per-key\",\"key\":\"m{number}\",\"exempt\":true}}\n")
        })
        .collect();
    std::fs::write(folder.path().join("many.ndjson"), many.replace("m6\",\"limit", "m 6\",\"limit")).unwrap();
    let (code, shown) = run(&["import", "many.ndjson", "--batch", "3"]);
    assert!(
        code == 1 && shown.contains("line 7: id: ") && shown.contains("lines 1 to 6 are written"),
        "{shown}"
    );
    std::fs::write(folder.path().join("many.ndjson"), many).unwrap();
    assert_eq!(run(&["import", "many.ndjson", "--batch", "7"]), (0, "1 rules changed\n".to_owned()));
    assert_eq!(run(&["import", "many.ndjson", "--batch", "4"]), (0, "0 rules changed\n".to_owned()));
    std::fs::write(folder.path().join("many.ndjson"), "").unwrap();
    assert_eq!(run(&["import", "many.ndjson"]), (0, "0 rules changed\n".to_owned()));
    let (code, shown) = run(&["rm", "acme", "--dry-run"]);
    assert!(code == 0 && shown.contains("\"dry_run\": true"), "{shown}");
    let (code, shown) = run(&["patch", "acme", "{\"rate\": \"60/366d\"}", "--if-match", "2"]);
    assert!(code == 0 && shown.contains("60/366d") && shown.contains("they asked"), "{shown}");
    in_force(&gateway, "k9", 60);
    let (_, listed) = run(&["list", "--key", "k9"]);
    let version = listed.trim().rsplit(' ').next().unwrap();
    assert_eq!(run(&["rm", "acme", "--if-match", "2"]).0, 1, "it has another version");
    assert_eq!(run(&["rm", "acme", "--if-match", version]).0, 0);
    in_force(&gateway, "k9", 5);
    let (code, shown) = run(&["get", "acme"]);
    assert!(code == 1 && shown.contains("there is no rule `acme`"), "{shown}");
    let changes = gateway.admin_get("/rules:changes?since=1").text();
    assert_eq!(changes.lines().count(), 10, "{changes}");
}

/// A new process takes over with the rules, and can change them; a process that asks and goes away changes nothing.
#[test]
fn a_successor_takes_the_rules_over() {
    let gateway = Setup::default().handover().start(FIVE);
    put(&gateway, "acme", &rule("k1", "50/366d"));
    drop(std::os::unix::net::UnixStream::connect(gateway.handover()).unwrap());
    until("the rules can be changed again", || {
        (put(&gateway, "acme", &rule("k1", "60/366d")).status == 200).then_some(())
    });
    in_force(&gateway, "k1", 60);
    let successor = gateway.successor();
    in_force(&successor, "k1", 60);
    assert_eq!(put(&successor, "acme", &rule("k1", "70/366d")).status, 200);
    in_force(&successor, "k1", 70);
}

/// If the new process ends early, the old one has what was changed in it, and can change the rules again.
#[test]
fn rules_come_back_from_a_successor_that_ends() {
    let gateway = Setup::default().handover_confirmed_after("1h").start(FIVE);
    put(&gateway, "acme", &rule("k1", "50/366d"));
    in_force(&gateway, "k1", 50);
    let mut successor = gateway.successor();
    assert_eq!(put(&successor, "acme", &rule("k1", "70/366d")).status, 200);
    in_force(&successor, "k1", 70);
    successor.signal("KILL");
    successor.ended(deadline());
    in_force(&gateway, "k1", 70);
    until("the rules can be changed again", || {
        (put(&gateway, "acme", &rule("k1", "80/366d")).status == 200).then_some(())
    });
    in_force(&gateway, "k1", 80);
}

/// A limit that is counted in Redis: a rule is exact there too, on what was spent.
#[test]
fn rules_of_a_shared_limit() {
    let redis = RedisServer::start();
    let gateway = Setup::default().workers(3).start(&(redis.store() + FIVE));
    until("the store is up", || (gateway.metric("sluicegate_store_up", &[]) == 1.0).then_some(()));
    assert_eq!(left(&gateway, "k1"), (5, 4));
    assert_eq!(put(&gateway, "acme", &rule("k1", "50/366d")).status, 201);
    in_force(&gateway, "k1", 50);
    assert_eq!(left(&gateway, "k1"), (50, 39));
    assert_eq!(gateway.remaining("per-key", "k1"), 39);
    assert_eq!(put(&gateway, "bulk", &rule("k2", "70/366d")).status, 201);
    in_force(&gateway, "k2", 70);
    let gateways = [gateway];
    assert_eq!(admitted(&Load::on(&gateways, 32).keys(&["k2"]).send(300)), 70);
    assert_eq!(gateways[0].remaining("per-key", "k2"), 0);
    assert_eq!(put(&gateways[0], "bulk", &rule("k2", "700/366d")).status, 200);
    in_force(&gateways[0], "k2", 700);
    assert_eq!(left(&gateways[0], "k2").1, 0, "what was used up is used up");
    assert_eq!(gateways[0].metric("sluicegate_store_disagreements_total", &[]), 0.0);
}

/// More patterns than a limit can have are refused when they are written.
#[test]
fn patterns_are_bounded() {
    let gateway = Gateway::start(FIVE);
    let line = |number: usize| json!({"id": format!("s{number}"), "limit": "per-key", "key": format!("q*{number}x"), "exempt": true});
    let lines = |count: usize| (0..count).map(|number| format!("{}\n", line(number))).collect::<String>();
    let refused = ask(&gateway, "POST", "/rules:batch", &[], &lines(1_001));
    assert!(refused.status == 422 && refused.text().contains("at most 1000"), "{}", refused.text());
    assert_eq!(ask(&gateway, "POST", "/rules:batch", &[], &lines(1_000)).status, 200);
    assert_eq!(put(&gateway, "s7", &line(7)).status, 200, "one of them may change");
    assert_eq!(put(&gateway, "more", &rule("z*z", "50/366d")).status, 422);
    assert_eq!(put(&gateway, "prefix", &rule("merchant-*", "50/366d")).status, 201);
    in_force(&gateway, "merchant-1", 50);
    let both = "{\"id\":\"a\",\"limit\":\"per-key\",\"key\":\"k\",\"delete\":\"s1\"}\n";
    assert_eq!(ask(&gateway, "POST", "/rules:batch", &[], both).status, 422);
}

/// A reload that changes how long rules are remembered forgets none.
#[test]
fn a_reload_forgets_no_rule() {
    let gateway = Gateway::start(FIVE);
    put(&gateway, "acme", &rule("k1", "50/366d"));
    in_force(&gateway, "k1", 50);
    let cached = || gateway.admin_get("/status").json()["rules"]["cached"].as_u64();
    assert_eq!(cached(), Some(1));
    gateway.reload(&FIVE.replace("wait: 1s", "wait: 500ms, ttl: 1min"));
    assert_eq!((cached(), left(&gateway, "k1").0), (Some(1), 50));
}
