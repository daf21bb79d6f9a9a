//! Costs that are known only with the answer let no more pass than was in flight: debt is paid back, and refusals say
//! how long that takes.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::harness::{
    Client, Fleet, Gate, Gateway, RedisServer, Response, Setup, Stopwatch, Upstream, deadline, in_parallel,
    sleep, until, within,
};

/// Runs a test over local counters and over Redis, at the same time.
fn on_both(test: impl Fn(Option<&RedisServer>) + Sync) {
    in_parallel(2, |index| {
        let store = (index == 1).then(RedisServer::start);
        test(store.as_ref());
    });
}

/// What a request for `/N` or `/slow/N` costs. The slow ones wait for the gate.
fn priced() -> (Upstream, Gate) {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::scripted(move |exchange| {
        let target = exchange.seen.target.clone();
        if target.starts_with("/slow") {
            waits.wait();
        }
        let cost = target.rsplit('/').next().unwrap();
        let length = cost.parse().unwrap();
        exchange.answer(200, &[("X-Cost", cost)], "x".repeat(length).as_bytes());
    });
    (upstream, gate)
}

/// The file of a gateway with one limit `l` by API key.
fn text(store: Option<&RedisServer>, limit: &str) -> String {
    store.map_or_else(String::new, RedisServer::store)
        + &format!(
            "limits: {{l: {{key: api_key, {limit}}}}}\nupstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}}}\n\
             routes: [{{name: api, match: {{path: /*}}, upstream: api, limits: [l]}}]\n"
        )
}

/// A gateway before this upstream, with this limit and an empty store.
fn start(store: Option<&RedisServer>, upstream: &Upstream, limit: &str) -> Gateway {
    store.iter().for_each(|store| store.run(&["FLUSHALL"]));
    let gateway = Setup::default().upstream(upstream).start(&text(store, limit));
    if store.is_some() {
        Fleet::up_of(&gateway);
    }
    gateway
}

const KEY: [(&str, &str); 1] = [("x-api-key", "k")];
const COST: u64 = 300;
const COSTS: [&str; 2] = ["{response_header: X-Cost}", "{bytes: response}"];

fn ask(client: &mut Client) -> Response {
    client.ask("GET", &format!("/{COST}"), &KEY)
}

/// Asks over one connection until a request is refused: how many were admitted before, and the refusal.
#[track_caller]
fn until_refused(client: &mut Client, most: usize) -> (usize, Response) {
    for admitted in 0..=most {
        let answer = ask(client);
        if answer.status != 200 {
            assert_eq!(answer.status, 429);
            return (admitted, answer);
        }
    }
    panic!("more than {most} requests were admitted");
}

/// A number of the state of a key. The gateway asks the store for it, but not for longer than a second.
#[track_caller]
fn state(gateway: &Gateway, key: &str, name: &str) -> f64 {
    until("the state of a key", || gateway.admin_get(&format!("/limits/l/keys/{key}")).json()[name].as_f64())
}

/// Waits until a debt is written down, which is done behind the answer: so many seconds until the bucket is full.
#[track_caller]
fn owes(gateway: &Gateway, seconds: f64) {
    let near = |reset: f64| (seconds - 10.0..=seconds).contains(&reset);
    let seen = within(deadline(), || near(state(gateway, "k", "reset")).then_some(()));
    assert!(seen.is_some(), "full in {} s instead of {seconds}", state(gateway, "k", "reset"));
}

/// A client that goes on and on has no more units than the rate allows, the bucket, and its one request in flight.
#[test]
fn a_debt_is_paid_at_the_rate() {
    on_both(|store| {
        for cost in COSTS {
            let (upstream, _gate) = priced();
            let gateway = start(store, &upstream, &format!("rate: 1000/s, cost: {cost}"));
            let (mut client, watch, mut units) = (gateway.client(), Stopwatch::start(), 0);
            while units < 3_500 {
                let answer = ask(&mut client);
                match answer.status {
                    200 => units += COST,
                    _ => {
                        assert_eq!((answer.status, answer.number("x-ratelimit-remaining")), (429, 0));
                        assert_eq!(answer.number("retry-after"), 1, "{cost}: at most {COST} units are owed");
                    }
                }
                let allowed = 1_000 + watch.elapsed().as_millis() as u64 + COST;
                assert!(units <= allowed, "{cost}: {units} units of {allowed} after {:?}", watch.elapsed());
                assert!(watch.elapsed() < deadline(), "{cost}: only {units} units in {:?}", watch.elapsed());
                sleep(Duration::from_millis(3));
            }
        }
    });
}

/// The refusal, its headers and the admin API tell of one debt, to the second.
#[test]
fn a_refusal_shows_the_debt() {
    on_both(|store| {
        for cost in COSTS {
            let (upstream, _gate) = priced();
            let gateway = start(store, &upstream, &format!("rate: 1000/min, cost: {cost}"));
            let watch = Stopwatch::start();
            let (admitted, refusal) = until_refused(&mut gateway.client(), 10);
            let refilled = watch.elapsed().as_secs_f64() / 0.06;
            // 3 of 300 leave 100, the fourth leaves 200 owed; 1 more has to fit.
            let (most, least) = (201.0, 201.0 - refilled);
            let after = refusal.number("retry-after");
            assert_eq!((admitted, refusal.number("x-ratelimit-remaining")), (4, 0), "{cost}");
            assert!((seconds(least)..=seconds(most)).contains(&after), "{cost}: Retry-After is {after}");
            assert_eq!(state(&gateway, "k", "remaining"), 0.0, "{cost}");
            owes(&gateway, 1_200.0 * 0.06);
        }
    });
}

/// The seconds in which so many units come at 1000 a minute, as headers tell them.
fn seconds(units: f64) -> u64 {
    (units * 0.06).ceil() as u64
}

/// A request is admitted when the first refusal said so, within its second, and not before.
#[test]
fn retry_after_is_exact() {
    on_both(|store| {
        let (upstream, _gate) = priced();
        let gateway = start(store, &upstream, "rate: 100/s, burst: 10, cost: {response_header: X-Cost}");
        let (mut client, watch) = (gateway.client(), Stopwatch::start());
        let mut refusals = Vec::new();
        assert_eq!(ask(&mut client).status, 200);
        let admitted = until("a request is admitted again", || {
            let sent = watch.elapsed();
            let answer = ask(&mut client);
            let heard = watch.elapsed();
            if answer.status == 200 {
                return Some(heard);
            }
            refusals.push((sent, heard, Duration::from_secs(answer.number("retry-after"))));
            None
        });
        // 290 are owed, and 1 has to fit: 2.91 s.
        assert!(admitted >= Duration::from_millis(2_909), "admitted again after {admitted:?}");
        let (last, ..) = *refusals.last().expect("some requests are refused");
        for (sent, heard, after) in refusals {
            assert!(last <= heard + after, "refused {last:?}, though at {heard:?} {after:?} were told");
            assert!(admitted + Duration::from_secs(1) >= sent + after, "{after:?} were told at {sent:?}");
        }
    });
}

/// `overdraft` is the most that is owed below empty; what goes beyond is forgiven.
#[test]
fn an_overdraft_caps_the_debt() {
    const UNIT: f64 = 366.0 * 86_400.0 / 1_000.0;
    on_both(|store| {
        for (overdraft, owed) in
            [("", 200), ("overdraft: 0, ", 0), ("overdraft: 100, ", 100), ("overdraft: 1000, ", 200)]
        {
            let (upstream, _gate) = priced();
            let limit = format!("rate: 1000/366d, {overdraft}cost: {{response_header: X-Cost}}");
            let gateway = start(store, &upstream, &limit);
            let (admitted, refusal) = until_refused(&mut gateway.client(), 10);
            let expected = (f64::from(owed + 1) * UNIT).ceil();
            let wait = refusal.number("retry-after") as f64;
            assert_eq!(admitted, 4, "{overdraft}");
            assert!((expected - 10.0..=expected).contains(&wait), "{overdraft}{wait} instead of {expected}");
            owes(&gateway, f64::from(1_000 + owed) * UNIT);
        }
    });
}

/// Sends so many slow requests on a connection each and waits until all are under way.
fn under_way(gateway: &Gateway, upstream: &Upstream, count: usize, target: &str) -> Vec<Client> {
    let send = |_| {
        let mut client = gateway.client();
        client.request("GET", target, &KEY);
        client
    };
    let clients = (0..count).map(send).collect();
    until("all are under way", || {
        let slow = upstream.seen().iter().filter(|seen| seen.target == target).count();
        (slow == count).then_some(())
    });
    clients
}

/// What requests that are under way at the same time cost together is owed together, less than which nothing passes.
#[test]
fn costs_of_requests_in_flight_become_debt() {
    const UNIT: f64 = 366.0 * 86_400.0 / 100.0;
    on_both(|store| {
        for cost in COSTS {
            let (upstream, gate) = priced();
            let gateway = start(store, &upstream, &format!("rate: 100/366d, cost: {cost}"));
            let clients = under_way(&gateway, &upstream, 8, "/slow/300");
            assert_eq!(state(&gateway, "k", "remaining"), 92.0, "{cost}: a unit each is reserved");
            gate.open();
            clients.into_iter().for_each(|mut client| assert_eq!(client.response().status, 200));
            owes(&gateway, 2_400.0 * UNIT);
            let refusal = gateway.ask("GET", "/1", &KEY);
            let (after, expected) = (refusal.number("retry-after") as f64, 2_301.0 * UNIT);
            assert_eq!(refusal.status, 429, "{cost}");
            assert!((expected - 10.0..=expected.ceil()).contains(&after), "{cost}: {after}, not {expected}");
        }
    });
}

/// A reserve holds back those at the same time for whom it is not there.
#[test]
fn a_reserve_bounds_what_is_in_flight() {
    on_both(|store| {
        let (upstream, gate) = priced();
        let cost = "cost: {response_header: X-Cost, reserve: 40}";
        let gateway = start(store, &upstream, &format!("rate: 100/366d, {cost}"));
        let clients = under_way(&gateway, &upstream, 2, "/slow/50");
        assert_eq!(gateway.ask("GET", "/slow/50", &KEY).status, 429, "40 of 20 are not there");
        gate.open();
        clients.into_iter().for_each(|mut client| assert_eq!(client.response().status, 200));
        owes(&gateway, 366.0 * 86_400.0);
        assert_eq!(state(&gateway, "k", "remaining"), 0.0);
    });
}

const PERIOD: Duration = Duration::from_secs(3);

/// A window is passed by no more than was in flight in it; then it admits nothing until that has left it, so long after
/// the beginning of the next.
#[track_caller]
fn passed_by_what_was_in_flight(algorithm: &str, free: Duration) {
    let since_epoch = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let into_window = |now: Duration| Duration::from_nanos((now.as_nanos() % PERIOD.as_nanos()) as u64);
    let scenario = |store: Option<&RedisServer>| {
        let (upstream, gate) = priced();
        let limit = format!("rate: 100/3s, algorithm: {algorithm}, cost: {{response_header: X-Cost}}");
        let gateway = start(store, &upstream, &limit);
        let window = until("a window begins", || {
            let now = since_epoch();
            (into_window(now) < Duration::from_millis(300)).then(|| now - into_window(now))
        });
        let is_over = || since_epoch() >= window + PERIOD;
        let mut clients = under_way(&gateway, &upstream, 4, "/slow/50");
        let opened = since_epoch();
        gate.open();
        clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
        until("the window is full", || (state(&gateway, "k", "remaining") == 0.0 || is_over()).then_some(()));
        // One more of each connection, so that the one before it is settled for sure.
        let refused = clients.iter_mut().all(|client| client.ask("GET", "/1", &KEY).status == 429);
        let settled = since_epoch();
        if is_over() {
            return false; // some may have cost something in the next window: nothing is tested
        }
        assert!(refused, "a full window admits nothing");
        let (mut client, mut last) = (gateway.client(), settled);
        let admitted = until("a request is admitted again", || {
            let sent = since_epoch();
            if client.ask("GET", "/1", &KEY).status == 200 {
                return Some(since_epoch());
            }
            last = sent;
            None
        });
        let [from, to] = if algorithm == "sliding_log" { [opened, settled] } else { [window; 2] };
        let [least, most] = [from, to].map(|begun| begun + PERIOD + free);
        assert!(admitted >= least, "{:?} too early", least.saturating_sub(admitted));
        // When the last refused request was sent, and not when the next one came.
        assert!(last < most + Duration::from_secs(1), "{:?} late", last.saturating_sub(most));
        true
    };
    on_both(|store| assert!((0..5).any(|_| scenario(store)), "the machine is too slow for this test"));
}

#[test]
fn a_fixed_window_is_exceeded_by_requests_in_flight_only() {
    passed_by_what_was_in_flight("fixed_window", Duration::ZERO);
}

/// Of 200 in the window before, 100 weigh on the middle of the next.
#[test]
fn a_sliding_window_is_exceeded_by_requests_in_flight_only() {
    passed_by_what_was_in_flight("sliding_window", PERIOD / 2);
}

#[test]
fn a_sliding_log_is_exceeded_by_requests_in_flight_only() {
    passed_by_what_was_in_flight("sliding_log", Duration::ZERO);
}

/// The costs of requests that are under way while the file is reloaded: less than the 5 that are reserved, and more.
const SLOW: [u64; 3] = [0, 2, 8];

/// Requests that are under way while `old` is replaced by `new` cost what they are worth under the new numbers, whether
/// other requests of the key came between the reload and the answer or not.
///
/// `left` is what would be left without the request under way, and then what each of [`SLOW`] takes of that. Before the
/// reload others have spent 10. `drained`: the reload comes after all that was owed has drained.
#[track_caller]
fn reloaded_under_way(old: &str, new: &str, drained: bool, (left, costs): (f64, [f64; 3])) {
    on_both(|store| {
        let (upstream, gate) = priced();
        let cost = "cost: {response_header: X-Cost, reserve: 5}";
        let gateway = start(store, &upstream, &format!("{old}, {cost}"));
        let names = ["untouched", "touched"].map(|name| SLOW.map(|slow| format!("{name}-{slow}")));
        let mut clients = Vec::new();
        for (key, slow) in names.iter().flat_map(|names| names.iter().zip(SLOW)) {
            let mut client = gateway.client();
            assert_eq!(client.ask("GET", "/5", &[("x-api-key", key)]).status, 200);
            client.request("GET", &format!("/slow/{slow}"), &[("x-api-key", key)]);
            assert_eq!(gateway.ask("GET", "/5", &[("x-api-key", key)]).status, 200);
            clients.push(client);
        }
        upstream.wait_for(3 * clients.len());
        if drained {
            names.iter().flatten().for_each(|key| {
                until("all has drained", || (state(&gateway, key, "reset") == 0.0).then_some(()));
            });
        }
        gateway.reload(&text(store, &format!("{new}, {cost}")));
        for key in &names[1] {
            assert_eq!(gateway.ask("GET", "/5", &[("x-api-key", key)]).status, 200, "{key}");
        }
        gate.open();
        for (at, (client, key)) in clients.iter_mut().zip(names.iter().flatten()).enumerate() {
            assert_eq!(client.response().status, 200);
            // One more of the same connection, so that the one before it is settled for sure.
            assert_eq!(client.ask("GET", "/1", &[("x-api-key", key)]).status, 200, "{key}");
            let touched = if at < SLOW.len() { 0.0 } else { 5.0 };
            let expected = (left - touched - costs[at % SLOW.len()] - 1.0).floor();
            let settled = || (state(&gateway, key, "remaining") == expected).then_some(());
            let left = || state(&gateway, key, "remaining");
            assert!(within(deadline(), settled).is_some(), "{key}: {} are left, not {expected}", left());
        }
    });
}

const WHOLE: [f64; 3] = [0.0, 2.0, 8.0];

/// Another rate of a bucket has another unit of its debt.
#[test]
fn the_rate_is_raised_while_a_request_is_in_flight() {
    reloaded_under_way("rate: 7/10h, burst: 40", "rate: 10/10h, burst: 40", false, (30.0, WHOLE));
}

/// What has drained is not given back.
#[test]
fn the_rate_is_lowered_when_the_bucket_is_full() {
    reloaded_under_way("rate: 7/s, burst: 40", "rate: 10/10h, burst: 40", true, (40.0, [0.0, 0.0, 3.0]));
}

/// A bucket at half stays at half, and so does the charge that is given back.
#[test]
fn the_bucket_shrinks_while_a_request_is_in_flight() {
    let left = (28.0 - 7.0, [0.0, 1.4, 3.5 + 3.0]);
    reloaded_under_way("rate: 40/600s", "rate: 28/900s", false, left);
}

#[test]
fn the_period_of_a_window_changes_while_a_request_is_in_flight() {
    for algorithm in ["fixed_window", "sliding_window", "sliding_window, slices: 10"] {
        let text = |days: u32| format!("rate: 40/{days}d, algorithm: {algorithm}");
        reloaded_under_way(&text(100), &text(200), false, (30.0, WHOLE));
    }
}

#[test]
fn the_period_of_a_log_changes_while_a_request_is_in_flight() {
    let text = |seconds: u32| format!("rate: 40/{seconds}s, algorithm: sliding_log");
    reloaded_under_way(&text(600), &text(1_200), false, (30.0, WHOLE));
}

/// Places that refusals held do not come back once they are free: a client that failed and then waited can log in any
/// number of times, also after a reload.
#[test]
fn places_freed_by_refusals_stay_free() {
    let limit = |period: &str| {
        format!("rate: 5/{period}, algorithm: sliding_log, count_rejected: true, cost: {{status: [401]}}")
    };
    let scenario = |store: Option<&RedisServer>| {
        let upstream = Upstream::scripted(|exchange| {
            let status = if exchange.seen.target == "/bad" { 401 } else { 200 };
            exchange.answer(status, &[], b"");
        });
        let gateway = start(store, &upstream, &limit("4s"));
        let watch = Stopwatch::start();
        let [some, all] = ["some", "all"].map(|key| [("x-api-key", key)]);
        let first = [&some, &all].map(|headers| gateway.statuses(6, "/bad", headers));
        let more = gateway.statuses(20, "/bad", &all);
        sleep(Duration::from_secs(2).saturating_sub(watch.elapsed()));
        let late = gateway.statuses(1, "/bad", &some);
        if watch.elapsed() >= Duration::from_millis(3_900) {
            return false; // some places may be free already: nothing is tested
        }
        assert_eq!(first, [[401, 401, 401, 401, 401, 429]; 2]);
        assert_eq!((more, late), (vec![429; 20], vec![429]));
        // Four of the places of one key become free, and the last, which the late refusal holds, two seconds later.
        let is_over = || watch.elapsed() >= Duration::from_millis(5_900);
        until("four places are free", || {
            (state(&gateway, "some", "remaining") == 4.0 || is_over()).then_some(())
        });
        until("all places are free", || (state(&gateway, "all", "remaining") == 5.0).then_some(()));
        gateway.reload(&text(store, &limit("1h")));
        if is_over() {
            return false; // the last place may be free too: nothing is tested
        }
        for (headers, remaining) in [(&some, 4.0), (&all, 5.0)] {
            assert_eq!(gateway.statuses(40, "/good", headers), [200; 40], "{headers:?}");
            until("logins are settled", || {
                (state(&gateway, headers[0].1, "remaining") == remaining).then_some(())
            });
        }
        true
    };
    on_both(|store| assert!((0..5).any(|_| scenario(store)), "the machine is too slow for this test"));
}

/// What a status does not cost, its bytes do not cost either: for each kind of bytes and each algorithm with late costs.
#[test]
fn bytes_of_other_statuses_cost_nothing() {
    on_both(|store| {
        let upstream = Upstream::scripted(|exchange| {
            let _ = exchange.body();
            let status = if exchange.seen.target == "/missing" { 404 } else { 200 };
            exchange.answer(status, &[], &[b'x'; 900]);
        });
        for algorithm in ["token_bucket", "fixed_window", "sliding_window", "sliding_log"] {
            for (bytes, cost) in [("response", 901), ("request", 101), ("both", 1_001)] {
                let limit = format!(
                    "algorithm: {algorithm}, rate: 10000/30d, cost: {{status: [200], bytes: {bytes}, request: 1}}"
                );
                let gateway = start(store, &upstream, &limit);
                let mut client = gateway.client();
                let body = [b'y'; 100];
                assert_eq!(client.post("/missing", &KEY, &body).status, 404);
                until("nothing is charged", || (state(&gateway, "k", "remaining") == 10_000.0).then_some(()));
                assert_eq!(client.post("/found", &KEY, &body).status, 200);
                let left = 10_000.0 - f64::from(cost);
                until(&format!("{algorithm}, {bytes}"), || {
                    (state(&gateway, "k", "remaining") == left).then_some(())
                });
            }
        }
    });
}

/// Streams know their cost at their end: it may be in the trailers. What is not a whole number is counted, and costs nothing more.
#[test]
fn costs_in_trailers_count() {
    const CASES: [(&str, &str, u64, f64); 7] = [
        ("7", "", 8, 0.0),
        ("", "7", 8, 0.0),
        ("3", "7", 8, 0.0),
        ("9", "7", 10, 0.0),
        ("", "10.5", 1, 1.0),
        ("-3", "", 1, 2.0),
        ("4", "x", 5, 3.0),
    ];
    on_both(|store| {
        let upstream = Upstream::scripted(|exchange| {
            let at: usize = exchange.seen.target[1..].parse().unwrap();
            let line =
                |value: &str| if value.is_empty() { String::new() } else { format!("X-Cost: {value}\r\n") };
            let (head, trailer, ..) = CASES[at];
            let (head, trailer) = (line(head), line(trailer));
            exchange.write(format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{head}\r\n2\r\nhi\r\n0\r\n{trailer}\r\n"
            ));
        });
        let gateway = start(store, &upstream, "rate: 1000/366d, cost: {request: 1, response_header: X-Cost}");
        let mut left = 1_000;
        for (at, (head, trailer, cost, unreadable)) in CASES.into_iter().enumerate() {
            assert_eq!(gateway.ask("GET", &format!("/{at}"), &KEY).status, 200);
            left -= cost;
            until("it is charged", || (gateway.remaining("l", "k") == left).then_some(()));
            let counted = gateway.metric("sluicegate_limit_unreadable_costs_total", &[("limit", "l")]);
            assert_eq!(counted, unreadable, "{head:?}, {trailer:?}");
        }
    });
}
