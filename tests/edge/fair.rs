//! Fair shares of a limit: a greedy consumer takes only what the others leave.

use std::time::Duration;

use serde_json::Value;

use crate::harness::folder::Folder;
use crate::harness::{Client, Fleet, Gateway, RedisServer, Setup, Stopwatch, Upstream, patience, until};

/// The rate of the limit, in requests per second: so low that also a slow machine sends more than twice as many.
const RATE: f64 = 20.0;
/// Shares follow what is asked for. After a longer pause, because the machine was busy, they have to be found again.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// The time that they have for it.
const WARM_UP: Duration = Duration::from_secs(1);
/// The time between two requests of a modest sender.
const MODEST: Duration = Duration::from_millis(200);

/// The keys are those of acme (pro) and beta (free).
const CONSUMERS: &str = "- {name: acme, key: sha256:afacab3575137afa4e00d9cbcafcb14c9ae25f779d964eb0ea5b2c4eb5dfd163, plan: pro}\n\
                         - {name: beta, key: sha256:7a3d637bc601f7000cc2c33141c8c8a7554e02e319fa8b293a0c88c613b77620, plan: free}\n";

fn text(fair: &str) -> String {
    format!(
        "auth: {{api_key: {{consumers: consumers.yaml}}}}\n\
         limits: {{all: {{key: global, rate: 20/s, fair: {fair}}}, free: {{key: global, rate: 1000000/s}}}}\n\
         routes: [{{name: all, respond: {{status: 200}}, limits: [all, free]}}]\n"
    )
}

/// The requests that are counted, by their answers.
#[derive(Clone, Debug, Default)]
struct Got {
    admitted: u32,
    refused: u32,
}

struct Sender<'a> {
    clients: Vec<Client>,
    headers: [(&'a str, &'a str); 1],
    path: &'a str,
    sent: usize,
    /// The least time between two requests.
    pause: Duration,
    last: Option<Stopwatch>,
}

impl<'a> Sender<'a> {
    fn new(gateways: &[Gateway], header: (&'a str, &'a str)) -> Self {
        let clients = gateways.iter().map(Gateway::client).collect();
        Self { clients, headers: [header], path: "/", sent: 0, pause: Duration::ZERO, last: None }
    }

    fn modest(self) -> Self {
        Self { pause: MODEST, ..self }
    }

    fn is_due(&self) -> bool {
        self.last.as_ref().is_none_or(|last| last.elapsed() >= self.pause)
    }

    /// One request, to each gateway in turn. Returns whether it is admitted.
    fn send(&mut self) -> bool {
        let at = self.sent % self.clients.len();
        self.sent += 1;
        self.last = Some(Stopwatch::start());
        let answer = self.clients[at].ask("GET", self.path, &self.headers);
        match answer.status {
            200 => true,
            429 => {
                assert!((1..=2).contains(&answer.number("retry-after")), "{answer:?}");
                false
            }
            other => panic!("{other}"),
        }
    }
}

/// What is counted of the requests of all senders.
struct Measured {
    got: Vec<Got>,
    time: Duration,
    /// The stretches of time without a pause.
    stretches: u32,
}

/// Sends until the requests of `time` are counted, and more until they are enough. Those of the first second do not count,
/// nor those of the second after a pause.
fn run(mut senders: Vec<Sender<'_>>, time: Duration, is_enough: impl Fn(&[Got]) -> bool) -> Measured {
    let mut all = Measured { got: vec![Got::default(); senders.len()], time: Duration::ZERO, stretches: 0 };
    let (whole, mut begun, mut last) = (Stopwatch::start(), Stopwatch::start(), Stopwatch::start());
    let mut counted = None;
    loop {
        let is_late = whole.elapsed() > patience(30);
        if last.elapsed() > LONGEST_PAUSE && !is_late {
            all.time += counted.take().unwrap_or_default();
            begun = Stopwatch::start();
        }
        last = Stopwatch::start();
        let now = begun.elapsed().checked_sub(WARM_UP);
        all.stretches += u32::from(now.is_some() && counted.is_none());
        counted = now;
        let so_far = all.time + counted.unwrap_or_default();
        if so_far >= time && (is_late || is_enough(&all.got)) {
            return Measured { time: so_far, ..all };
        }
        for (sender, got) in senders.iter_mut().zip(&mut all.got) {
            if sender.is_due() {
                let count = if sender.send() { &mut got.admitted } else { &mut got.refused };
                *count += u32::from(counted.is_some());
            }
        }
    }
}

impl Measured {
    /// The rate of the limit was used, and not more than that and its bucket.
    fn is_used(&self) {
        let all = f64::from(self.got.iter().map(|got| got.admitted).sum::<u32>());
        let rated = self.time.as_secs_f64() * RATE;
        let most = rated + f64::from(self.stretches) * (RATE + 1.0);
        assert!((0.75 * rated..=most).contains(&all), "{all} of {rated}: {:?}", self.got);
    }
}

const BY_HEADER: &str = "limits: {all: {key: global, rate: 20/s, fair: {by: 'header:X-Who'}}}\n\
                         routes: [{name: all, respond: {status: 200}, limits: [all]}]\n";

#[track_caller]
fn modest_loses_none(measured: &Measured) {
    let got = &measured.got;
    assert_eq!(got[1].refused, 0, "{got:?}");
    assert!(got[1].admitted > 0 && got[0].refused > 0, "{got:?}");
    measured.is_used();
}

/// One sender has many times the requests of another, who loses none.
#[test]
fn who_asks_for_little_gets_all_of_it() {
    let gateways = [Gateway::start(BY_HEADER)];
    let sender = |name| Sender::new(&gateways, ("x-who", name));
    let senders = vec![sender("greedy"), sender("modest").modest()];
    let measured = run(senders, Duration::from_secs(2), |_| true);
    modest_loses_none(&measured);
    assert!(gateways[0].metric("sluicegate_limit_above_share_total", &[("limit", "all")]) > 0.0);
    let mut greedy = sender("greedy");
    let share = until("a share is less than the limit", || {
        (0..50).for_each(|_| _ = greedy.send()); // a scrape that comes late finds that nobody asks for anything
        Some(gateways[0].metric("sluicegate_limit_fair_share", &[("limit", "all")]))
            .filter(|share| *share < RATE)
    });
    assert!(share >= 0.3 * RATE, "{share}");
}

/// The same with four gateways, each of which sees a quarter of the requests.
#[test]
fn who_asks_four_gateways_for_little_gets_all_of_it() {
    let redis = RedisServer::start();
    let gateways = Fleet::start(4, &(redis.store() + BY_HEADER));
    let sender = |name| Sender::new(&gateways, ("x-who", name));
    let senders = vec![sender("greedy"), sender("modest").modest()];
    modest_loses_none(&run(senders, Duration::from_secs(3), |_| true));
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
    let senders = vec![sender("acme-key"), sender("beta-key")];
    let ratio = |got: &[Got]| f64::from(got[0].admitted) / f64::from(got[1].admitted);
    // The ratio of few requests varies. It approaches 3 as more are counted.
    let is_near = |got: &[Got]| (2.2..=4.5).contains(&ratio(got));
    let measured = run(senders, Duration::from_secs(3), is_near);
    measured.is_used();
    let got = measured.got;
    assert!(is_near(&got), "{}: {got:?}", ratio(&got));
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
    let text = redis.store() + &text("{weights: {pro: 3, free: 1}}");
    let setup = || Setup::default().file("consumers.yaml", CONSUMERS);
    let gateways = Fleet::of(vec![setup(), setup()], &text);
    gateways.up();
    weights(&gateways);
}

/// In shadow mode nobody is refused, and what would be refused is counted.
#[test]
fn shadow_mode_only_counts() {
    let gateways = [Gateway::start(
        "limits: {all: {key: global, rate: 4/s, mode: shadow, fair: {by: 'header:X-Who'}}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [all]}]\n",
    )];
    let sender = |name| Sender::new(&gateways, ("x-who", name));
    let senders = vec![sender("greedy"), sender("modest").modest()];
    let got = run(senders, Duration::from_secs(2), |_| true).got;
    assert_eq!((got[0].refused, got[1].refused), (0, 0));
    let outcome = |outcome| {
        gateways[0].metric("sluicegate_limit_decisions_total", &[("limit", "all"), ("outcome", outcome)])
    };
    assert!(outcome("shadow_refused") > outcome("admitted"));
}

/// Costs that are known late count as well: one consumer has answers of 2,000 bytes, ten a second, and another one of 100. The limit of
/// 10,000 bytes a second is enough for the second one and half of the first.
#[test]
fn late_costs_count_for_the_shares() {
    for (scope, of) in [
        ("cost: {bytes: response, request: 1}", "bytes"),
        ("cost: {bytes: both}", "bytes"),
        ("cost: {bytes: request}", "bytes_in"),
        ("cost: {bytes: response, request: 50}", "bytes"),
    ] {
        let rules = format!(
            "listen: [127.0.0.1:18080]\nlimits: {{l: {{key: global, rate: 10k/s, fair: {{by: header:x-tenant}}, {scope}}}}}\n\
             routes: [{{name: all, respond: {{status: 200}}, limits: [l]}}]\n"
        );
        let line = |millis: u64, tenant: &str, bytes: u64| {
            format!(
                "{{\"time\": {}.{:03}, \"client_ip\": \"192.0.2.1\", \"method\": \"GET\", \"path\": \"/\", \"status\": 200, \
                 \"{of}\": {bytes}, \"headers\": {{\"x-tenant\": \"{tenant}\"}}}}\n",
                1_720_000_000 + millis / 1_000,
                millis % 1_000
            )
        };
        let mut log = String::new();
        for millis in (0..60_000).step_by(10) {
            if millis % 100 == 0 {
                log += &line(millis, "greedy", 2_000);
            }
            if millis % 50 == 30 {
                log += &line(millis, "modest", 100);
            }
        }
        let folder = Folder::with(&[("gateway.yaml", &rules), ("access.log", &log)]);
        let decisions = folder.decisions("access.log");
        assert_eq!(decisions.len(), 1_800);
        let (warm, lines) = (&decisions[300..], log.lines().collect::<Vec<_>>());
        let of = |tenant: &str, outcome: &str| {
            let line = |row: &Value| lines[row["line"].as_u64().unwrap() as usize - 1];
            let is = |row: &&Value| line(row).contains(tenant) && row["outcome"] == outcome;
            warm.iter().filter(is).count()
        };
        let (greedy, modest) = (of("greedy", "admitted"), of("modest", "refused"));
        assert!(modest <= 5, "{scope}: {modest} of 1,000 requests of the modest one are refused");
        assert!(
            (150..300).contains(&greedy),
            "{scope}: {greedy} of 500 requests of the greedy one are admitted"
        );
    }
}

/// The same with the number in a header of the answer: `/N` costs N. Of 20 tokens a second one sender asks for 32, in 8 requests, and
/// another one for 5.
#[test]
fn costs_in_headers_of_answers_count_for_the_shares() {
    let upstream = Upstream::scripted(|exchange| {
        let cost = exchange.seen.target.trim_start_matches('/').to_owned();
        exchange.answer(200, &[("X-Cost", &cost)], b"");
    });
    let text = "limits: {all: {key: global, rate: 20/s, fair: {by: 'header:X-Who'}, cost: {response_header: X-Cost, request: 0}}}\n\
                upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
                routes: [{name: all, match: {path: /*}, upstream: api, limits: [all]}]\n";
    let gateways = [Setup::default().upstream(&upstream).start(text)];
    let sender = |name, path| Sender { path, ..Sender::new(&gateways, ("x-who", name)) };
    let greedy = Sender { pause: Duration::from_millis(125), ..sender("greedy", "/4") };
    let senders = vec![greedy, sender("modest", "/1").modest()];
    let got = run(senders, Duration::from_secs(5), |_| true).got;
    // In the first seconds it is not known yet what the answers cost.
    assert!(got[1].admitted >= 4 * got[1].refused && got[1].admitted > 0, "{got:?}");
    assert!(got[0].admitted > 0 && got[0].refused > 0, "{got:?}");
}
