//! A key has the same text wherever operators are shown it, and is found by that text, by its digest, by the name of its consumer and
//! by an address.

use aws_lc_rs::digest;
use serde_json::{Value, json};

use crate::harness::folder::text;
use crate::harness::{Gateway, Setup, program, until};

const LIMITS: [(&str, &str); 9] = [
    ("per-key", "key: api_key"),
    ("per-consumer", "key: consumer"),
    ("per-ip", "key: ip"),
    ("per-network", "key: 'ip/24'"),
    ("mixed", "key: api_key | ip"),
    ("pair", "key: [consumer, path]"),
    ("keyed-pair", "key: [api_key, ip]"),
    ("plans", "key: api_key, plans: {pro: 2/day}"),
    ("cookies", "key: 'cookie:sid'"),
];

/// The SHA-256 of a text in hexadecimal digits.
fn sha256(text: &str) -> String {
    digest::digest(&digest::SHA256, text.as_bytes())
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A secret as operators are shown it.
fn shown(name: &str, secret: &str) -> String {
    format!("{name}:sha256:{}", &sha256(secret)[..16])
}

fn start() -> Gateway {
    let consumers = format!(
        "- {{name: acme, keys: ['sha256:{}', 'sha256:{}'], plan: pro}}\n- {{name: beta, key: 'sha256:{}'}}\n",
        sha256("sk-one"),
        sha256("sk-two"),
        sha256("sk-beta"),
    );
    let limits = LIMITS.map(|(name, of)| format!("  {name}: {{{of}, rate: 1/day, ban: 1h}}\n")).concat();
    let route = |(name, _)| {
        format!(
            "  - {{name: {name}, match: {{path: /{name}}}, respond: {{status: 200}}, limits: [{name}]}}\n"
        )
    };
    Setup::default().workers(2).file("consumers.yaml", &consumers).start(&format!(
        "client_ip: {{trusted_proxies: [127.0.0.1]}}\nauth: {{api_key: {{consumers: consumers.yaml}}}}\n\
         access_log: {{path: access.log, fields: [request_id, key]}}\nlimits:\n{limits}routes:\n{}",
        LIMITS.map(route).concat()
    ))
}

/// What is sent in a path or a query.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Requests of a client until its key is banned; the id of the last one.
fn banned(gateway: &Gateway, limit: &str, headers: &[(&str, &str)]) -> String {
    let refused = |_| Some(gateway.ask("GET", &format!("/{limit}"), headers)).filter(|one| one.status == 429);
    let refused = (0..5).find_map(refused).unwrap_or_else(|| panic!("{limit} refuses"));
    refused.header("x-request-id").unwrap().to_owned()
}

/// All texts of the key of a client: in `top`, the bans, the access log, and both explanations.
fn texts(gateway: &Gateway, limit: &str, headers: &[(&str, &str)], id: &str) -> [Value; 6] {
    let read = |target: &str| gateway.admin_get(target).json();
    let first = |target: &str| read(&format!("/limits/{limit}/{target}"))["keys"][0]["key"].clone();
    let log = until("the line of the request is written", || {
        let log = std::fs::read_to_string(gateway.path("access.log")).ok()?;
        let line = log.lines().find(|line| line.contains(id))?;
        serde_json::from_str::<Value>(line).ok()
    });
    let fields =
        headers.iter().map(|(name, value)| format!("&header={}", encoded(&format!("{name}: {value}"))));
    let now = read(&format!("/explain?url=/{limit}{}", fields.collect::<String>()));
    let refused = read(&format!("/explain?request={id}"));
    [
        first("top?by=requests"),
        first("top?by=refused"),
        first("bans"),
        log["key"].clone(),
        now["limits"][0]["key"].clone(),
        refused["limits"][0]["key"].clone(),
    ]
}

/// A limit, the headers of its client, the text of the key, and what else finds it.
type Row = (&'static str, &'static [(&'static str, &'static str)], String, Vec<String>);

fn table() -> Vec<Row> {
    const ONE: &[(&str, &str)] = &[("x-api-key", "sk-one")];
    const V6: &[(&str, &str)] = &[("x-forwarded-for", "2001:db8:1:2::7")];
    const BOTH: &[(&str, &str)] = &[("x-api-key", "sk-one"), ("x-forwarded-for", "192.0.2.7")];
    let key = shown("api_key", "sk-one");
    let short = key.trim_start_matches("api_key:").to_owned();
    let bare = short.trim_start_matches("sha256:").to_owned();
    let full = format!("sha256:{}", sha256("sk-one"));
    let all = |more: &[&str]| -> Vec<String> {
        let own = ["sk-one", "api_key:sk-one", "acme", "consumer:acme", &short, &bare, &full];
        own.iter().chain(more).map(|one| (*one).to_owned()).collect()
    };
    let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    let sid = shown("sid", "c1");
    vec![
        ("per-key", ONE, key.clone(), all(&[])),
        ("per-consumer", ONE, "consumer:acme".to_owned(), all(&[&key])),
        (
            "per-ip",
            V6,
            "ip:2001:db8:1:2::".to_owned(),
            texts(&["2001:db8:1:2::7", "ip:2001:db8:1:2:3::", "2001:db8:1:2::"]),
        ),
        (
            "per-network",
            BOTH,
            "ip:192.0.2.0".to_owned(),
            texts(&["192.0.2.7", "192.0.2.0", "::ffff:192.0.2.9"]),
        ),
        ("mixed", BOTH, key.clone(), all(&[])),
        ("mixed", V6, "ip:2001:db8:1:2::".to_owned(), texts(&["2001:db8:1:2::7"])),
        (
            "pair",
            ONE,
            "consumer:acme,path:/pair".to_owned(),
            texts(&["acme,/pair", "sk-one,/pair", &format!("{short},/pair"), "acme,path:/pair"]),
        ),
        (
            "keyed-pair",
            BOTH,
            format!("{key},ip:192.0.2.7"),
            texts(&["acme,192.0.2.7", "sk-one,192.0.2.7", &format!("{bare},192.0.2.7")]),
        ),
        ("plans", ONE, key.clone(), all(&[])),
        (
            "cookies",
            &[("cookie", "sid=c1")],
            sid.clone(),
            texts(&["c1", "sid:c1", sid.trim_start_matches("sid:")]),
        ),
    ]
}

/// Each form finds the key, and pardons it.
#[test]
fn a_key_has_one_text_and_is_found_by_each_form() {
    for (limit, headers, shown, forms) in table() {
        let gateway = start();
        let id = banned(&gateway, limit, headers);
        for found in texts(&gateway, limit, headers, &id) {
            assert_eq!(found, *shown, "{limit}");
        }
        for form in std::iter::once(&shown).chain(&forms) {
            let target = format!("/limits/{limit}/keys/{}", encoded(form));
            let state = gateway.admin_get(&target).json();
            let seen = (&state["shown"], &state["known"], &state["remaining"]);
            assert_eq!(seen, (&json!(shown), &json!(true), &json!(0)), "{limit}: {form}: {state}");
            assert!(state["banned_for"].as_f64().unwrap() > 3_500.0, "{limit}: {form}: {state}");
            let top = gateway.admin_get(&format!("/limits/{limit}/top?key={}", encoded(form))).json();
            assert_eq!(
                (&top["keys"][0]["key"], &top["keys"][1]),
                (&json!(shown), &Value::Null),
                "{form}: {top}"
            );
            let pardon = gateway.admin_change("DELETE", &target).json();
            assert_eq!(pardon["pardoned"], true, "{limit}: {form}: {pardon}");
            banned(&gateway, limit, headers);
        }
    }
}

/// Where an API key is shown as a digest, its consumer is named beside it.
#[test]
fn the_consumer_of_a_key_is_named() {
    let gateway = start();
    banned(&gateway, "per-key", &[("x-api-key", "sk-one")]);
    for target in ["per-key/top", "per-key/bans"] {
        assert_eq!(gateway.admin_get(&format!("/limits/{target}")).json()["keys"][0]["consumer"], "acme");
    }
    assert_eq!(gateway.admin_get("/limits/plans/keys/sk-one").json()["consumer"], "acme");
    assert_eq!(gateway.admin_get("/limits/plans/keys/sk-one").json()["plan"], "pro");
    let admin = gateway.admin.to_string();
    let top = |more: &[&str]| {
        let arguments = [&["top", "--once", "--admin", &admin, "--limit", "per-key"], more].concat();
        text(&program().args(arguments).output().unwrap())
    };
    let line = format!("1  {} (acme)", shown("api_key", "sk-one"));
    assert!(top(&[]).contains(&line) && top(&["--key", "acme"]).contains(&line), "{}", top(&[]));
    assert!(!top(&["--key", "sk-two"]).contains("api_key:"), "only that key");
}

/// A consumer has several API keys: each that requests had is told, and pardoned.
#[test]
fn a_consumer_finds_all_its_keys() {
    let gateway = start();
    let (one, two) = (shown("api_key", "sk-one"), shown("api_key", "sk-two"));
    banned(&gateway, "per-key", &[("x-api-key", "sk-one")]);
    let state = gateway.admin_get("/limits/per-key/keys/acme").json();
    assert_eq!(state["shown"], json!(one), "{state}");
    assert!(state["note"].as_str().unwrap().contains("had 1 key of the limit"), "of two: {state}");
    banned(&gateway, "per-key", &[("x-api-key", "sk-two")]);
    banned(&gateway, "per-key", &[("x-api-key", "sk-beta")]);
    let sorted = |keys: &Value, member: &str| {
        let keys = keys.as_array().unwrap_or_else(|| panic!("{keys}")).iter();
        let mut all: Vec<String> =
            keys.map(|one| one.get(member).unwrap_or(one).as_str().unwrap().to_owned()).collect();
        all.sort();
        all
    };
    let mut both = vec![one, two];
    both.sort();
    let state = gateway.admin_get("/limits/per-key/keys/acme").json();
    assert_eq!((&state["key"], sorted(&state["keys"], "shown")), (&json!("acme"), both.clone()), "{state}");
    assert!(state["note"].as_str().unwrap().contains("`acme` has 2 API keys"), "{state}");
    let top = gateway.admin_get("/limits/per-key/top?key=acme").json();
    assert_eq!(sorted(&top["keys"], "key"), both);
    let pardon = gateway.admin_change("DELETE", "/limits/per-key/keys/acme").json();
    assert_eq!((&pardon["pardoned"], sorted(&pardon["keys"], "shown")), (&json!(true), both), "{pardon}");
    assert_eq!(gateway.admin_get("/limits/per-key/bans").json()["banned"], 1, "beta still is");
}

/// Where nothing is found, the answer says what can be written.
#[test]
fn what_is_not_found_says_which_form_works() {
    let gateway = start();
    let both = [("x-api-key", "sk-one"), ("x-forwarded-for", "192.0.2.7")];
    banned(&gateway, "keyed-pair", &both);
    let cases = [
        ("per-ip", "acme", 400, "write an address"),
        ("per-key", "nobody", 400, "write an API key, its digest or the name of its consumer"),
        ("per-key", "acme", 404, "no API key of `acme` is among the busiest keys of `per-key`"),
        (
            "per-key",
            "api_key:sha256:0123456789abcdef",
            404,
            "no key with the digest `sha256:0123456789abcdef`",
        ),
        ("cookies", "sha256:0123456789abcdef", 404, "write the key itself"),
        ("pair", "acme", 400, "2 values joined by commas: the name of a consumer"),
        ("keyed-pair", "acme", 400, "keys with such a value: `api_key:sha256:"),
        ("keyed-pair", "192.0.2.7", 400, "keys with such a value: `api_key:sha256:"),
    ];
    for (limit, text, status, why) in cases {
        for method in ["GET", "DELETE"] {
            let answer = gateway.admin_change(method, &format!("/limits/{limit}/keys/{}", encoded(text)));
            assert_eq!(answer.status, status, "{limit}: {text}: {}", answer.text());
            assert!(answer.json()["detail"].as_str().unwrap().contains(why), "{limit}: {}", answer.text());
        }
    }
    assert_eq!(gateway.admin_get("/limits/per-ip/top?key=acme").status, 400);
    let elsewhere = gateway.admin_get(&format!("/limits/per-key/top?key={}", shown("api_key", "sk-one")));
    assert_eq!(elsewhere.json()["keys"], json!([]), "another gateway may know it");
}

/// Where no consumers are known, names mean nothing, and any API key can be asked for before it was seen.
#[test]
fn without_consumers_a_text_is_an_api_key() {
    let gateway = Gateway::start(
        "limits: {l: {key: api_key, rate: 1/day, ban: 1h}}\nroutes: [{name: l, respond: {status: 200}, limits: [l]}]\n",
    );
    let state = gateway.admin_get("/limits/l/keys/acme").json();
    assert_eq!((&state["known"], &state["shown"]), (&json!(false), &json!(shown("api_key", "acme"))));
    banned(&gateway, "l", &[("x-api-key", "acme")]);
    let page = gateway.admin_get("/limits/l/top").json()["keys"][0]["key"].as_str().unwrap().to_owned();
    let pardon = gateway.admin_change("DELETE", &format!("/limits/l/keys/{}", encoded(&page))).json();
    assert_eq!(pardon["pardoned"], true, "by the text of `top`: {pardon}");
}

/// `top` of a limit with `fair` ranks those who share it; the limit itself has one key.
#[test]
fn top_of_a_fair_limit_ranks_who_shares_it() {
    for (by, acme, beta) in [
        ("consumer", "consumer:acme".to_owned(), "consumer:beta".to_owned()),
        ("api_key", shown("api_key", "sk-one"), shown("api_key", "sk-beta")),
    ] {
        let consumers = format!(
            "- {{name: acme, key: 'sha256:{}'}}\n- {{name: beta, key: 'sha256:{}'}}\n",
            sha256("sk-one"),
            sha256("sk-beta")
        );
        let gateway = Setup::default().workers(2).file("consumers.yaml", &consumers).start(&format!(
            "auth: {{api_key: {{consumers: consumers.yaml}}}}\n\
             limits: {{all: {{key: global, rate: 3/day, fair: {{by: {by}}}}}, free: {{key: global, rate: 1000/day}}}}\n\
             routes: [{{name: all, respond: {{status: 200}}, limits: [free, all]}}]\n"
        ));
        gateway.statuses(6, "/", &[("x-api-key", "sk-one")]);
        gateway.statuses(2, "/", &[("x-api-key", "sk-beta")]);
        gateway.statuses(1, "/", &[]);
        let top = |query: &str| gateway.admin_get(&format!("/limits/all/top?{query}")).json();
        let counts = |query: &str| -> Vec<(Value, Value)> {
            let keys = top(query)["keys"].as_array().unwrap().clone();
            keys.into_iter().map(|one| (one["key"].clone(), one["count"].clone())).collect()
        };
        let expected = [(json!(acme), json!(6)), (json!(beta), json!(2)), (Value::Null, json!(1))];
        assert_eq!(counts("by=requests"), expected);
        assert_eq!(counts("by=refused")[0].0, json!(acme));
        assert_eq!(counts("by=requests&key=beta"), expected[1..2]);
        assert_eq!(top("")["fair_by"], by);
        let free = gateway.admin_get("/limits/free/top?by=requests").json();
        assert_eq!((&free["keys"][0]["key"], &free["fair_by"]), (&json!("global"), &Value::Null), "{free}");
        let once =
            ["top", "--once", "--by", "requests", "--limit", "all", "--admin", &gateway.admin.to_string()];
        let lines = text(&program().args(once).output().unwrap());
        assert!(lines.contains(&format!("all, by requests, shared by {by}")), "{lines}");

        let one = gateway.admin_change("DELETE", &format!("/limits/all/keys/{}", encoded(&acme)));
        assert_eq!(one.status, 400, "it would be a pardon of all: {}", one.text());
        let all = gateway.admin_change("DELETE", "/limits/all/keys/global").json();
        assert_eq!(all["pardoned"], true);
    }
}
