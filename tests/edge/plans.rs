//! Limits that depend on the client and the request: plans, exemptions, conditions, and candidate rates.

use serde_json::{Value, json};

use crate::harness::{Fleet, Gateway, RedisServer, Setup, program, until};

/// Consumers and their plans; one is on none.
const CONSUMERS: [(&str, &str); 3] = [("ann", "pro"), ("bob", "free"), ("cat", "")];

/// The SHA-256 of a key, as consumers.yaml has it.
fn digest(key: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A gateway with the consumers ann (pro), bob (free) and cat (no plan), whose keys are their names.
fn start(store: &str, limits: &str) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("consumers.yaml");
    let entry = |(name, plan): (&str, &str)| {
        let plan = if plan.is_empty() { String::new() } else { format!(", plan: {plan}") };
        format!("- {{name: {name}, key: \"sha256:{}\"{plan}}}\n", digest(name))
    };
    std::fs::write(&file, CONSUMERS.map(entry).concat()).unwrap();
    let text = format!(
        "{store}auth: {{api_key: {{consumers: {}}}}}\nlimits:\n{limits}\nroutes:\n  \
         - {{name: all, match: {{path: /*}}, respond: {{status: 200, body: here}}, limits: [l]}}\n",
        file.display()
    );
    let gateway = Setup::default().start(&text);
    drop(folder.keep()); // it lives as long as the gateway reads it
    gateway
}

fn passed(gateway: &Gateway, count: usize, headers: &[(&str, &str)]) -> usize {
    gateway.statuses(count, "/", headers).iter().filter(|status| **status == 200).count()
}

/// Each plan has its own rate, and its own figures in the headers; whoever is on none has the limit's.
#[test]
fn a_plan_has_its_own_rate() {
    let limits =
        "  l: {key: consumer | ip, rate: 3/366d, plans: {free: 5/366d, pro: {rate: 7/366d, burst: 9}}}";
    for store in [None, Some(RedisServer::start())] {
        let gateway = start(&store.as_ref().map_or_else(String::new, RedisServer::store), limits);
        if store.is_some() {
            Fleet::up_of(&gateway);
        }
        let first = gateway.ask("GET", "/", &[("x-api-key", "ann")]);
        assert_eq!((first.number("x-ratelimit-limit"), first.number("x-ratelimit-remaining")), (9, 8));
        assert_eq!(first.header("ratelimit-policy"), Some("\"l\";q=9;w=40657372"));
        assert_eq!(passed(&gateway, 12, &[("x-api-key", "ann")]), 8);
        assert_eq!(passed(&gateway, 12, &[("x-api-key", "bob")]), 5);
        assert_eq!(passed(&gateway, 12, &[("x-api-key", "cat")]), 3);
        assert_eq!(passed(&gateway, 12, &[]), 3, "by address");
        let refused = gateway.ask("GET", "/", &[("x-api-key", "bob")]);
        assert_eq!((refused.status, refused.number("x-ratelimit-limit")), (429, 5));
        assert_eq!(refused.header("ratelimit-policy"), Some("\"l\";q=5;w=31622400"));
    }
}

/// The numbers of a key are those of its plan, also where a store counts, which is asked by a gateway that has seen no request.
#[test]
fn a_key_is_shown_with_its_plan() {
    let limits = "  l: {key: consumer | ip, rate: 60/366d, plans: {free: 20/366d, pro: 600/366d}}";
    for store in [None, Some(RedisServer::start())] {
        let gateway = start(&store.as_ref().map_or_else(String::new, RedisServer::store), limits);
        if store.is_some() {
            Fleet::up_of(&gateway);
        }
        assert_eq!(passed(&gateway, 30, &[("x-api-key", "bob")]), 20);
        assert_eq!(passed(&gateway, 7, &[("x-api-key", "cat")]), 7);
        let other = store.as_ref().map(|store| start(&store.store(), limits));
        other.iter().for_each(Fleet::up_of);
        let asked = other.as_ref().unwrap_or(&gateway);
        let key = |key: &str| asked.admin_get(&format!("/limits/l/keys/{key}")).json();
        let numbers = |shown: &Value| (shown["capacity"].as_u64(), shown["remaining"].as_u64());
        let bob = key("bob");
        assert_eq!((numbers(&bob), &bob["plan"]), ((Some(20), Some(0)), &json!("free")), "{bob}");
        let cat = key("consumer:cat");
        assert_eq!((numbers(&cat), &cat["plan"]), ((Some(60), Some(53)), &Value::Null), "{cat}");
        assert_eq!(numbers(&key("ann")), (Some(600), Some(600)));
    }
}

/// A key says nothing of its plan if that is the plan of whoever sends the request: then the numbers on each are told.
#[test]
fn a_key_without_a_known_plan_is_shown_on_each() {
    let redis = RedisServer::start();
    let limits = "  l: {key: ip, rate: 60/366d, plans: {free: 20/366d, pro: 600/366d}}";
    let gateway = start(&redis.store(), limits);
    Fleet::up_of(&gateway);
    assert_eq!(passed(&gateway, 5, &[("x-api-key", "bob")]), 5);
    let key = |gateway: &Gateway| gateway.admin_get("/limits/l/keys/127.0.0.1").json();
    let other = start(&redis.store(), limits);
    Fleet::up_of(&other);
    for _ in 0..2 {
        let known = key(&gateway);
        assert_eq!(
            (&known["plan"], &known["remaining"]),
            (&json!("free"), &json!(15)),
            "it has counted the key: {known}"
        );
        let shown = key(&other);
        let variants = shown["variants"].as_array().unwrap_or_else(|| panic!("{shown}"));
        let plans: Vec<_> =
            variants.iter().map(|one| (one["plan"].clone(), one["capacity"].as_u64())).collect();
        assert_eq!(plans, [(Value::Null, Some(60)), ("free".into(), Some(20)), ("pro".into(), Some(600))]);
        assert_eq!(variants[1]["remaining"], 15, "{shown}");
    }
}

/// Nobody is on a plan by saying so.
#[test]
fn a_plan_needs_a_verified_key() {
    let limits = "  l: {key: ip, rate: 3/366d, plans: {free: 3/366d, pro: 1000/d}}";
    let gateway = start("", limits);
    let claims = [("x-consumer-plan", "pro"), ("x-plan", "pro"), ("x-api-key", "nobody")];
    assert_eq!(passed(&gateway, 10, &claims), 3);
}

/// Consumers and plans can be exempt.
#[test]
fn consumers_and_plans_can_be_exempt() {
    let gateway = start("", "  l: {key: ip, rate: 2/366d, exempt: ['consumer:cat', 'plan:pro']}");
    assert_eq!(passed(&gateway, 10, &[("x-api-key", "ann")]), 10);
    assert_eq!(passed(&gateway, 10, &[("x-api-key", "cat")]), 10);
    assert_eq!(passed(&gateway, 10, &[("x-api-key", "bob")]), 2);
    assert_eq!(
        gateway.metric("sluicegate_limit_decisions_total", &[("limit", "l"), ("outcome", "exempt")]),
        20.0
    );
}

/// A limit may be about some requests only; the others do not touch it.
#[test]
fn a_limit_may_have_a_condition() {
    let limits = "  l: {key: header:X-Who, rate: 2/366d, \
                  when: {methods: [GET], headers: {X-Kind: slow, X-Any: '*'}, key: [a, b]}}";
    let gateway = start("", limits);
    let fits = [("x-who", "a"), ("x-kind", "slow"), ("x-any", "1")];
    for other in [
        &[("x-who", "a"), ("x-kind", "fast"), ("x-any", "1")][..],
        &[("x-who", "a"), ("x-kind", "slow")][..],
        &[("x-who", "c"), ("x-kind", "slow"), ("x-any", "1")][..],
        &[("x-kind", "slow"), ("x-any", "1")][..],
    ] {
        assert_eq!(passed(&gateway, 5, other), 5, "{other:?}");
    }
    let posts: Vec<u16> = (0..5).map(|_| gateway.ask("POST", "/", &fits).status).collect();
    assert_eq!(posts, [200; 5]);
    assert_eq!(passed(&gateway, 5, &fits), 2);
}

/// A candidate is counted and reported, refuses nobody and shows in no header, here and in Redis.
#[test]
fn a_candidate_rate_refuses_nobody() {
    let limits = "  l: {key: api_key | ip, rate: 10/366d, candidate: 4/366d}";
    for store in [None, Some(RedisServer::start())] {
        let gateway = start(&store.as_ref().map_or_else(String::new, RedisServer::store), limits);
        if store.is_some() {
            Fleet::up_of(&gateway);
        }
        let first = gateway.ask("GET", "/", &[("x-api-key", "ann")]);
        assert_eq!((first.number("x-ratelimit-limit"), first.number("x-ratelimit-remaining")), (10, 9));
        assert_eq!(passed(&gateway, 12, &[("x-api-key", "ann")]), 9);
        let count = |outcome| {
            gateway.metric("sluicegate_limit_decisions_total", &[("limit", "l"), ("outcome", outcome)])
        };
        assert_eq!((count("admitted"), count("refused")), (10.0, 3.0));
        assert_eq!(count("candidate_refused"), 9.0, "all but the first four of thirteen");
    }
}

/// An entry for consumers.yaml; the key is the name.
fn entry(name: &str, plan: &str) -> String {
    format!("- {{name: {name}, key: \"sha256:{}\", plan: {plan}}}\n", digest(name))
}

/// A plan that no limit has is a mistake, wherever it comes from: a file that changes, `consumers add`, a limit that
/// loses the plan.
#[test]
fn a_plan_that_no_limit_has_is_a_mistake() {
    let rules = |plans: &str| {
        format!(
            "auth: {{api_key: {{consumers: consumers.yaml}}}}\n\
             limits: {{l: {{key: consumer, rate: 3/366d{plans}}}}}\n\
             routes: [{{respond: {{status: 200}}, limits: [l]}}]\n"
        )
    };
    let both = ", plans: {free: 3/366d, pro: 5/366d}";
    let gateway = Setup::default().file("consumers.yaml", &entry("ann", "pro")).start(&rules(both));
    let left = || gateway.ask("GET", "/", &[("x-api-key", "ann")]).number("x-ratelimit-remaining");
    assert_eq!(left(), 4);
    let status = || gateway.admin_get("/status").json();
    let file = gateway.path("consumers.yaml").display().to_string();

    gateway.write_file("consumers.yaml", &(entry("bob", "free") + &entry("ann", "prro")));
    let error = until("the file is refused", || {
        status()["consumers"]["last_reload_error"].as_str().map(str::to_owned)
    });
    assert!(
        error.contains(&format!("{file}:2: no limit has the plan `prro`; did you mean `pro`?")),
        "{error}"
    );
    assert_eq!(left(), 3, "as before");
    assert_eq!(gateway.ask("GET", "/", &[("x-api-key", "bob")]).number("x-ratelimit-remaining"), 2);

    gateway.write_file("consumers.yaml", &(entry("bob", "free") + &entry("ann", "pro")));
    until("a good file is in force", || status()["consumers"]["last_reload_error"].is_null().then_some(()));
    assert_eq!(left(), 2);

    gateway.write(&rules(", plans: {free: 3/366d}"));
    let error = until("the rules are refused", || status()["last_reload_error"].as_str().map(str::to_owned));
    assert!(error.contains(&format!("{file}:2: no limit has the plan `pro`; known: free")), "{error}");
    gateway.write(&rules(""));
    until("where no limit has plans they are only told", || {
        status()["last_reload_error"].is_null().then_some(())
    });

    gateway.reload(&rules(both));
    let add = |plan: &str| {
        let mut add = program();
        add.current_dir(gateway.path("")).args(["consumers", "add", &format!("of-{plan}"), "--plan", plan]);
        let output = add.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = add("frre");
    assert_eq!(code, Some(1));
    assert!(said.contains("no limit has the plan `frre`; did you mean `free`?"), "{said}");
    assert_eq!(add("free").0, Some(0));
}

/// A consumer that is exempt by its name is so under every key, also one that is made of several parts.
#[test]
fn an_exempt_consumer_is_exempt_under_every_key() {
    for key in ["consumer", "consumer | ip", "[consumer, path]", "[ip, consumer | api_key]", "path"] {
        let limits = format!("  l: {{key: {key}, rate: 2/366d, exempt: [\"consumer:ann\"]}}");
        let gateway = start("", &limits);
        assert_eq!(passed(&gateway, 5, &[("x-api-key", "ann")]), 5, "{key}");
        assert_eq!(passed(&gateway, 5, &[("x-api-key", "bob")]), 2, "{key}");
    }
}
