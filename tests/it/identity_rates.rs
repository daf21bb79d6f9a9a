//! Rates and costs that the identity of a request names: in a claim, in the metadata of a consumer, or in the answer of the
//! external check. None is above `max_rate`.

use serde_json::{Value, json};

use crate::harness::issuer::{Signer, jwks, soon};
use crate::harness::load::admitted;
use crate::harness::{Gateway, Load, RedisServer, Response, Setup, until};

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
#[allow(dead_code)]
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
