//! Fair shares of a limit: a greedy consumer takes only what the others leave.

use std::time::Duration;

use crate::harness::{Client, Gateway, RedisServer, Setup, Stopwatch};

/// 200 requests a second for all. The keys are those of acme (pro) and beta (free).
const CONSUMERS: &str = "- {name: acme, key: sha256:afacab3575137afa4e00d9cbcafcb14c9ae25f779d964eb0ea5b2c4eb5dfd163, plan: pro}\n\
                         - {name: beta, key: sha256:7a3d637bc601f7000cc2c33141c8c8a7554e02e319fa8b293a0c88c613b77620, plan: free}\n";

fn text(fair: &str) -> String {
    format!(
        "auth: {{api_key: {{consumers: consumers.yaml}}}}\n\
         limits: {{all: {{key: global, rate: 200/s, fair: {fair}}}, free: {{key: global, rate: 1000000/s}}}}\n\
         routes: [{{name: all, respond: {{status: 200}}, limits: [all, free]}}]\n"
    )
}

/// Requests of one sender by their answers.
#[derive(Debug, Default)]
struct Got {
    admitted: u32,
    refused: u32,
}

struct Sender<'a> {
    clients: Vec<Client>,
    headers: Vec<(&'a str, &'a str)>,
    /// Those of the second half.
    got: Got,
}

impl<'a> Sender<'a> {
    fn new(gateways: &[Gateway], header: (&'a str, &'a str)) -> Self {
        let clients = gateways.iter().map(Gateway::client).collect();
        Self { clients, headers: vec![header], got: Got::default() }
    }

    /// One request to each gateway.
    fn send(&mut self, counts: bool) {
        for client in &mut self.clients {
            client.request("GET", "/", &self.headers);
            let answer = client.response();
            let count = match answer.status {
                200 => &mut self.got.admitted,
                429 => {
                    assert!((1..=2).contains(&answer.number("retry-after")), "{answer:?}");
                    &mut self.got.refused
                }
                other => panic!("{other}"),
            };
            *count += u32::from(counts);
        }
    }
}

/// So many requests of each sender in turn; after the warm-up those of two seconds or more are counted. Returns the seconds too.
fn run(mut senders: Vec<(usize, Sender<'_>)>, warm_up: Duration) -> (Vec<Got>, f64) {
    let (watch, mut counted) = (Stopwatch::start(), None);
    while counted.as_ref().is_none_or(|counted: &Stopwatch| counted.elapsed() < Duration::from_secs(2)) {
        let counts = watch.elapsed() >= warm_up;
        if counts {
            counted.get_or_insert_with(Stopwatch::start);
        }
        for (times, sender) in &mut senders {
            (0..*times).for_each(|_| sender.send(counts));
        }
    }
    let seconds = counted.map_or(0.0, |counted| counted.elapsed().as_secs_f64());
    (senders.into_iter().map(|(_, sender)| sender.got).collect(), seconds)
}

/// The limit of 200 a second was used, and not more than that and its bucket.
fn is_used(got: &[Got], seconds: f64) {
    let all = f64::from(got.iter().map(|got| got.admitted).sum::<u32>());
    assert!((seconds * 150.0..=seconds * 200.0 + 201.0).contains(&all), "{got:?} in {seconds} s");
}

const BY_HEADER: &str = "limits: {all: {key: global, rate: 200/s, fair: {by: 'header:X-Who'}}}\n\
                         routes: [{name: all, respond: {status: 200}, limits: [all]}]\n";

/// One sender has many times the requests of another, who loses none.
#[test]
fn who_asks_for_little_gets_all_of_it() {
    let gateways = [Gateway::start(BY_HEADER)];
    let sender = |name| Sender::new(&gateways, ("x-who", name));
    let (got, seconds) = run(vec![(1_000, sender("greedy")), (1, sender("modest"))], Duration::from_secs(1));
    assert_eq!(got[1].refused, 0, "{got:?}");
    assert!(got[1].admitted > 0 && got[0].refused > 0, "{got:?}");
    is_used(&got, seconds);
    assert!(gateways[0].metric("sluicegate_limit_above_share_total", &[("limit", "all")]) > 0.0);
    let share = gateways[0].metric("sluicegate_limit_fair_share", &[("limit", "all")]);
    assert!((60.0..200.0).contains(&share), "{share}");
}

/// The same with four gateways, each of which sees a quarter of the requests.
#[test]
fn who_asks_four_gateways_for_little_gets_all_of_it() {
    let redis = RedisServer::start();
    let text = redis.store_within("2s") + BY_HEADER;
    let gateways: Vec<Gateway> = (0..4).map(|_| Gateway::start(&text)).collect();
    let sender = |name| Sender::new(&gateways, ("x-who", name));
    let (got, seconds) = run(vec![(100, sender("greedy")), (1, sender("modest"))], Duration::from_secs(2));
    assert_eq!(got[1].refused, 0, "{got:?}");
    assert!(got[1].admitted > 0 && got[0].refused > 0, "{got:?}");
    is_used(&got, seconds);
}

/// What a request takes of its share goes back if another limit refuses it, and a share above takes nothing of another limit.
#[test]
fn shares_and_limits_are_one_decision() {
    let gateway = Gateway::start(
        "limits: {all: {key: global, rate: 1000/s, burst: 1000, fair: {by: 'header:X-Who'}}, few: {key: global, rate: 5/d}}\n\
         routes: [{name: both, match: {path: /both}, respond: {status: 200}, limits: [all, few]}, \
         {name: all, respond: {status: 200}, limits: [all]}]\n",
    );
    let answers: Vec<u16> = (0..20).map(|_| gateway.get("/both").status).collect();
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 5);
    let decisions = |limit, outcome| {
        gateway.metric("sluicegate_limit_decisions_total", &[("limit", limit), ("outcome", outcome)])
    };
    assert_eq!((decisions("all", "admitted"), decisions("few", "refused")), (5.0, 15.0));
}

/// Plans have weights; the rest is lent to whoever wants it.
fn weights(gateways: &[Gateway]) {
    let sender = |key| Sender::new(gateways, ("x-api-key", key));
    let (got, seconds) = run(vec![(4, sender("acme-key")), (4, sender("beta-key"))], Duration::from_secs(2));
    is_used(&got, seconds);
    let ratio = f64::from(got[0].admitted) / f64::from(got[1].admitted);
    assert!((2.2..=4.5).contains(&ratio), "{ratio}: {got:?}");
    assert!(got[0].refused > 0 && got[1].refused > 0, "{got:?}");
}

#[test]
fn weights_of_plans_divide_a_limit() {
    let setup = Setup::default().file("consumers.yaml", CONSUMERS);
    weights(&[setup.start(&text("{weights: {pro: 3, free: 1}}"))]);
}

#[test]
fn two_gateways_share_fairly() {
    let redis = RedisServer::start();
    let text = redis.store_within("2s") + &text("{weights: {pro: 3, free: 1}}");
    let start = || Setup::default().file("consumers.yaml", CONSUMERS).start(&text);
    weights(&[start(), start()]);
}

/// In shadow mode nobody is refused, and what would be refused is counted.
#[test]
fn shadow_mode_only_counts() {
    let gateways = [Gateway::start(
        "limits: {all: {key: global, rate: 200/s, mode: shadow, fair: {by: 'header:X-Who'}}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [all]}]\n",
    )];
    let sender = |name| Sender::new(&gateways, ("x-who", name));
    let (got, _) = run(vec![(200, sender("greedy")), (1, sender("modest"))], Duration::from_secs(1));
    assert_eq!((got[0].refused, got[1].refused), (0, 0));
    let outcome = |outcome| {
        gateways[0].metric("sluicegate_limit_decisions_total", &[("limit", "all"), ("outcome", outcome)])
    };
    assert!(outcome("shadow_refused") > outcome("admitted"));
}
