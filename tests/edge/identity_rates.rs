//! Rates and costs that the identity of a request names: in a claim, in the metadata of a consumer, or in the answer of the
//! external check. None is above `max_rate`.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::issuer::{Signer, jwks, soon};
use crate::harness::load::admitted;
use crate::harness::{
    Client, Exchange, Fleet, Folder, Gateway, Load, RedisServer, Response, Setup, TOKEN, Upstream, until,
};

const BY_CLAIM: &str = "
auth: {jwt: {jwks: {file: jwks.json}}}
limits:
  per-user: {key: user | ip, rate: 'jwt:tier.limit', max_rate: 100/366d, default_rate: 5/366d}
routes: [{name: api, respond: {status: 200}, limits: [per-user]}]
";

/// A gateway that verifies the tokens of an issuer.
struct ByClaim {
    gateway: Gateway,
    issuer: Signer,
}

impl ByClaim {
    fn start(yaml: &str) -> Self {
        let issuer = Signer::es256("one");
        let gateway = Setup::default().workers(3).file("jwks.json", &jwks(&[&issuer])).start(yaml);
        Self { gateway, issuer }
    }

    /// A token of this user, whose claim names a limit.
    fn token(&self, user: &str, limit: &Value) -> String {
        let claims = json!({ "sub": user, "exp": soon(), "tier": { "limit": limit } });
        format!("Bearer {}", self.issuer.token(&claims))
    }

    fn ask(&self, user: &str, limit: impl Into<Value>) -> Response {
        self.gateway.ask("GET", "/", &[("authorization", &self.token(user, &limit.into()))])
    }

    /// The limit of a user and what is left, after one more request.
    #[track_caller]
    fn left(&self, user: &str, limit: impl Into<Value>) -> (u64, u64) {
        left(&self.ask(user, limit))
    }
}

#[track_caller]
fn left(response: &Response) -> (u64, u64) {
    (response.number("x-ratelimit-limit"), response.number("x-ratelimit-remaining"))
}

/// A consumer whose key is its name.
fn consumer(name: &str, metadata: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, name.as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("- {{name: {name}, key: 'sha256:{hex}', metadata: {{{metadata}}}}}\n")
}

#[test]
fn a_claim_names_the_rate_within_the_bound() {
    let house = ByClaim::start(BY_CLAIM);
    let response = house.ask("ada", "50/366d");
    assert_eq!(left(&response), (50, 49));
    assert!(response.header("ratelimit-policy").unwrap().starts_with("\"per-user\";q=50;"), "{response:?}");
    assert_eq!(house.left("bob", 20), (20, 19), "a number is per the period of max_rate");
    assert_eq!(house.left("cas", 101), (100, 99));
    assert_eq!(house.left("dan", "1/s"), (100, 99));
    assert_eq!(house.left("eve", "5/day"), (100, 99), "above the bound over time");
    assert_eq!(house.left("fay", "100/366d"), (100, 99));
    let bad =
        [json!(0), json!(-1), json!("fast"), json!(1.5), json!(true), json!(null), json!([7]), json!("7/")];
    for (number, claim) in bad.into_iter().enumerate() {
        assert_eq!(house.left(&format!("bad{number}"), claim), (5, 4));
    }
    assert_eq!(left(&house.gateway.get("/")), (5, 4), "without a token");
    assert_eq!(house.ask("ada", "50/366d").header("x-ratelimit-limit"), Some("50"));
}

#[test]
fn a_changed_claim_applies_to_what_is_owed() {
    let house = ByClaim::start(BY_CLAIM);
    assert_eq!(house.left("ada", 10), (10, 9));
    assert_eq!(house.left("ada", 50), (50, 44), "a tenth was spent, and one more");
    assert_eq!(house.left("ada", 5), (5, 3), "0.6 and 1 are spent");
    for _ in 0..3 {
        assert_eq!(house.ask("ada", 5).status, 200);
    }
    let refused = house.ask("ada", 5);
    assert_eq!((refused.status, refused.number("x-ratelimit-limit")), (429, 5));
    assert_eq!(house.left("ada", 100), (100, 7), "92 of 100, and one more");
    assert_eq!(house.ask("bob", 100).status, 200);
}

#[test]
fn a_rate_by_claim_is_exact() {
    for redis in [None, Some(RedisServer::start())] {
        let store = redis.as_ref().map_or_else(String::new, RedisServer::store);
        let house = ByClaim::start(&(store + BY_CLAIM));
        if redis.is_some() {
            until("the store is up", || {
                (house.gateway.metric("sluicegate_store_up", &[]) == 1.0).then_some(())
            });
        }
        let token = house.token("ada", &json!(70));
        let gateways = [house.gateway];
        let sent = Load::on(&gateways, 32).header("authorization", &token).send(300);
        assert_eq!(admitted(&sent), 70);
        assert_eq!(gateways[0].remaining("per-user", "ada"), 0);
        assert_eq!(gateways[0].metric("sluicegate_store_disagreements_total", &[]), 0.0);
    }
}

const BY_METADATA: &str = "
auth: {api_key: {consumers: consumers.yaml}}
limits:
  per-consumer: {key: consumer | ip, rate: 'consumer:metadata.rate', max_rate: 100/366d, default_rate: 5/366d}
routes: [{name: api, respond: {status: 200}, limits: [per-consumer]}]
";

/// A changed file of consumers changes the rate, on what is owed, on a local limit and on one in Redis.
#[test]
fn the_metadata_of_a_consumer_names_the_rate() {
    for redis in [None, Some(RedisServer::start())] {
        let store = redis.as_ref().map_or_else(String::new, RedisServer::store);
        let consumers = consumer("ann", "rate: 50/366d") + &consumer("bob", "team: blue, rate: none");
        let gateway = Setup::default().file("consumers.yaml", &consumers).start(&(store + BY_METADATA));
        if redis.is_some() {
            until("the store is up", || (gateway.metric("sluicegate_store_up", &[]) == 1.0).then_some(()));
        }
        let ask = |name: &str| left(&gateway.ask("GET", "/", &[("x-api-key", name)]));
        for _ in 0..24 {
            ask("ann");
        }
        assert_eq!(ask("ann"), (50, 25));
        assert_eq!((ask("bob"), ask("nobody")), ((5, 4), (5, 4)));
        gateway.write_file("consumers.yaml", &consumer("ann", "rate: '10'"));
        until("the new file is in force", || {
            (gateway.admin_get("/status").json()["consumers"]["consumers"] == 1).then_some(())
        });
        assert_eq!(ask("ann"), (10, 4), "half was spent, and one more");
        gateway.write_file("consumers.yaml", &(consumer("ann", "rate: 100/366d") + &consumer("bob", "")));
        until("the new file is in force", || {
            (gateway.admin_get("/status").json()["consumers"]["consumers"] == 2).then_some(())
        });
        assert_eq!(ask("ann"), (100, 39), "six tenths were spent, and one more");
        assert_eq!(gateway.remaining("per-consumer", "ann") * 5, if redis.is_some() { 5 } else { 39 * 5 });
    }
}

/// The plan of a consumer is the default where its metadata names no rate. The burst of the limit stays.
#[test]
fn plans_and_bursts_beside_the_rate_of_an_identity() {
    let consumers = consumer("ann", "rate: 50/366d").replace("name: ann", "name: ann, plan: pro")
        + &consumer("bob", "").replace("name: bob", "name: bob, plan: pro")
        + &consumer("cat", "rate: 50/366d");
    let with = "default_rate: 5/366d, burst: 8, plans: {pro: 20/366d}";
    let yaml = BY_METADATA.replace("default_rate: 5/366d", with);
    let gateway = Setup::default().file("consumers.yaml", &consumers).start(&yaml);
    let limit = |name: &str| {
        let response = gateway.ask("GET", "/", &[("x-api-key", name)]);
        let policy = response.header("ratelimit-policy").unwrap().rsplit_once('=').unwrap().1;
        (left(&response).1, 31_622_400 / policy.parse::<u64>().unwrap())
    };
    assert_eq!(limit("ann"), (49, 1), "the burst of the plan is the count of its rate");
    assert_eq!(limit("bob"), (19, 1));
    assert_eq!(limit("cat"), (7, 1));
}

/// A rule of the key wins; one without a rate leaves that of the identity.
#[test]
fn a_rule_wins() {
    a_rule_wins_with("");
    a_rule_wins_with(&RedisServer::start().store());
}

fn a_rule_wins_with(store: &str) {
    let consumers = consumer("ann", "rate: 50/366d");
    let usage = "routes: [{name: usage, match: {path: /usage}, respond: usage, limits: [per-consumer]}, ";
    let yaml = format!("{store}rules: {{file: rules.db, wait: 1s}}{BY_METADATA}").replace("routes: [", usage);
    let gateway = Setup::default().file("consumers.yaml", &consumers).start(&yaml);
    if !store.is_empty() {
        Fleet::up_of(&gateway);
    }
    let put = |rule: &Value| {
        let (bearer, body) = (format!("Bearer {TOKEN}"), rule.to_string());
        let length = body.len().to_string();
        let mut client = Client::connect(gateway.admin);
        let headers = [("host", "localhost"), ("authorization", &bearer), ("content-length", &length)];
        client.request("PUT", "/rules/one", &headers).send(&body);
        assert!(client.response().status < 300);
    };
    let ask = || gateway.ask("GET", "/", &[("x-api-key", "ann")]);
    // Asks without spending anything: a request waits for the rule of its key, but not for longer than a second.
    let shown = |header: &str, numbers: RangeInclusive<u64>| {
        until("the rule is in force", || {
            let usage = gateway.ask("GET", "/usage", &[("x-api-key", "ann")]);
            numbers.contains(&usage.number(header)).then_some(())
        });
    };
    assert_eq!(left(&ask()), (50, 49));
    put(&json!({ "limit": "per-consumer", "key": "ann", "rate": "1000/366d" }));
    shown("x-ratelimit-limit", 1000..=1000);
    assert_eq!(left(&ask()), (1000, 979), "above max_rate, which is for what comes from outside");
    put(&json!({ "limit": "per-consumer", "key": "ann", "mode": "enforce" }));
    shown("x-ratelimit-limit", 50..=50);
    assert_eq!(left(&ask()).0, 50);
    put(&json!({ "limit": "per-consumer", "key": "ann", "burst": 3 }));
    shown("x-ratelimit-remaining", 0..=3);
    assert_eq!(left(&ask()), (50, 1), "of a burst of 3, a little was spent, and one more");
    put(&json!({ "limit": "per-consumer", "key": "ann", "exempt": true }));
    until("the key is exempt", || ask().header("x-ratelimit-limit").is_none().then_some(()));
}

/// The headers that the service outside answers.
type Said = Arc<Mutex<Vec<(&'static str, &'static str)>>>;

/// A gateway whose requests are checked, and what the service says.
fn checked(limit: &str) -> (Gateway, Upstream, Said) {
    let said = Said::default();
    let shown = Arc::clone(&said);
    let checker = Upstream::scripted(move |exchange: &mut Exchange<'_>| {
        let headers = shown.lock().unwrap().clone();
        exchange.answer(200, &headers, b"");
    });
    let yaml = format!(
        "auth: {{check: {{url: 'http://{{checker}}/', timeout: 9s}}}}\nlimits: {{l: {{{limit}}}}}\n\
         routes: [{{name: api, respond: {{status: 200}}, limits: [l]}}]\n"
    );
    (Setup::default().value("checker", checker.address).start(&yaml), checker, said)
}

#[test]
fn the_check_names_the_rate() {
    let (gateway, _checker, said) =
        checked("key: consumer | ip, rate: 'check:rate', max_rate: 100/366d, default_rate: 5/366d");
    for (name, rate, limit) in [
        ("a", "50/366d", 50),
        ("b", "7", 7),
        ("c", "1/s", 100),
        ("d", "0", 5),
        ("e", "-1", 5),
        ("f", "", 5),
        ("g", "x", 5),
    ] {
        *said.lock().unwrap() = vec![("X-Sluicegate-Consumer", name), ("X-Sluicegate-Rate", rate)];
        assert_eq!(left(&gateway.get("/")), (limit, limit - 1), "{rate}");
    }
    *said.lock().unwrap() = vec![("X-Sluicegate-Rate", "50"), ("x-sluicegate-rate", "60")];
    assert_eq!(left(&gateway.ask("GET", "/", &[("x-sluicegate-rate", "90")])), (5, 4), "two are none");
}

#[test]
fn the_check_names_the_cost() {
    for cost in ["'check:cost'", "{request: 'check:cost', status: 200}"] {
        let (gateway, _checker, said) = checked(&format!("key: ip, rate: 100/366d, cost: {cost}"));
        let mut spent = 0;
        for (said_cost, cost) in [("5", 5), ("1", 1), ("0", 1), ("-3", 1), ("much", 1), ("", 1)] {
            *said.lock().unwrap() = vec![("X-Sluicegate-Cost", said_cost)];
            assert_eq!(gateway.ask("GET", "/", &[("x-sluicegate-cost", "50")]).status, 200);
            spent += cost;
            until("it is charged", || (gateway.remaining("l", "127.0.0.1") == 100 - spent).then_some(()));
        }
        *said.lock().unwrap() = vec![];
        assert_eq!(gateway.get("/").status, 200);
        for more in ["101", "99999999999999999999999"] {
            *said.lock().unwrap() = vec![("X-Sluicegate-Cost", more)];
            let refused = gateway.get("/");
            assert_eq!(
                (refused.status, refused.header("retry-after")),
                (429, None),
                "it will never be admitted"
            );
        }
    }
}

/// A replay has no tokens: the default rate applies.
#[test]
fn a_replay_has_the_default_rate() {
    let log = "192.0.2.1 - - [03/Jul/2024:10:00:00 +0000] \"GET /v1/a HTTP/1.1\" 200 12 \"-\" \"curl/8\"\n"
        .repeat(7);
    let yaml = format!("listen: [127.0.0.1:18080]{BY_CLAIM}");
    let folder = Folder::with(&[("gateway.yaml", &yaml), ("jwks.json", &jwks(&[&Signer::es256("one")]))]);
    std::fs::write(folder.path("access.log"), log).unwrap();
    let output = folder.run(&["replay", "access.log", "--decisions", "out.jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let admitted = folder.read("out.jsonl").iter().filter(|row| row["outcome"] == "admitted").count();
    assert_eq!(admitted, 5);
}
