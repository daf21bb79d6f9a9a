//! Limits: exactly as many requests pass as configured, several limits are one decision, and modes, costs and
//! exemptions work as configured.

use std::time::Duration;

use crate::harness::{Client, Gateway, Upstream, in_parallel, measure, patience, sleep, until};

/// One route that answers by itself, under the limits named.
fn route(limits: &str, text: &str) -> String {
    format!(
        "limits:\n{text}\nroutes:\n  - name: all\n    match: {{path: /*}}\n    \
         respond: {{status: 200, body: \"here\\n\"}}\n    limits: [{limits}]\n"
    )
}

/// Sends `count` requests over `connections` at once and counts those that pass; all others have to be 429.
fn passed(gateway: &Gateway, connections: usize, count: usize, headers: &[(&str, &str)]) -> usize {
    let shares = in_parallel(connections, |index| {
        let mut client = gateway.client();
        let share = count / connections + usize::from(index < count % connections);
        let statuses = (0..share).map(|_| client.ask("GET", "/", headers).status);
        statuses.fold((0, 0), |(passed, all), status| {
            assert!(status == 200 || status == 429, "neither passed nor refused: {status}");
            (passed + usize::from(status == 200), all + 1)
        })
    });
    assert_eq!(shares.iter().map(|(_, all)| all).sum::<usize>(), count);
    shares.iter().map(|(passed, _)| passed).sum()
}

/// Of 10,000 requests over 64 connections exactly the limit's 100 pass, whatever the algorithm.
#[test]
fn exactly_the_limit_of_ten_thousand_concurrent_requests_passes() {
    for algorithm in ["token_bucket", "fixed_window", "sliding_log", "sliding_window"] {
        let limit = format!("  l: {{key: api_key, rate: 100/366d, algorithm: {algorithm}}}");
        let gateway = Gateway::start(&route("l", &limit));
        assert_eq!(passed(&gateway, 64, 10_000, &[("x-api-key", "k")]), 100, "{algorithm}");
        assert_eq!(gateway.remaining("l", "k"), 0);
        assert_eq!(gateway.get("/").status, 200, "others are not concerned");
        assert_eq!(
            gateway.metric("sluicegate_limit_decisions_total", &[("limit", "l"), ("outcome", "refused")]),
            9_900.0
        );
    }
}

/// The same when the requests are forwarded: a refused one never reaches the API.
#[test]
fn the_api_sees_exactly_what_was_admitted() {
    let upstream = Upstream::answering("from the API");
    let gateway = Gateway::before(
        &upstream,
        "limits: {l: {key: global, rate: 100/day}}\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api, limits: [l]}]\n",
    );
    assert_eq!(passed(&gateway, 64, 2_000, &[]), 100);
    assert_eq!(upstream.seen().len(), 100);
}

/// A refusal by one limit takes nothing from the other, in either order.
#[test]
fn a_refusal_by_one_limit_costs_nothing_elsewhere() {
    for order in ["narrow, wide", "wide, narrow"] {
        let limits = "  narrow: {key: api_key, rate: 2/day}\n  wide: {key: global, rate: 10/day}";
        let gateway = Gateway::start(&route(order, limits));
        assert_eq!(gateway.statuses(5, "/", &[("x-api-key", "k")]), [200, 200, 429, 429, 429]);
        assert_eq!(gateway.remaining("narrow", "k"), 0);
        assert_eq!(gateway.remaining("wide", "any"), 8, "{order}: the three refused took nothing");
    }
}

/// All or nothing also holds when everything comes at once.
#[test]
fn several_limits_stay_one_decision_under_load() {
    let limits = "  narrow: {key: api_key, rate: 50/day}\n  wide: {key: global, rate: 100/day, algorithm: sliding_log}\n  \
                  window: {key: ip, rate: 1000/366d, algorithm: fixed_window}";
    let gateway = Gateway::start(&route("wide, narrow, window", limits));
    assert_eq!(passed(&gateway, 32, 2_000, &[("x-api-key", "k")]), 50);
    assert_eq!(gateway.remaining("wide", "any"), 50);
    assert_eq!(gateway.remaining("window", "127.0.0.1"), 950);
    assert_eq!(passed(&gateway, 32, 2_000, &[("x-api-key", "other")]), 50);
    assert_eq!(passed(&gateway, 32, 500, &[("x-api-key", "third")]), 0, "the wide limit is used up");
    assert_eq!(gateway.remaining("narrow", "third"), 50, "and its refusals took nothing from the third");
}

/// Coming back after Retry-After is admitted, also where it was rounded up.
#[test]
fn coming_back_after_retry_after_is_admitted() {
    for algorithm in ["token_bucket", "fixed_window", "sliding_log", "sliding_window"] {
        let limit = format!("  l: {{key: ip, rate: 1/2s, algorithm: {algorithm}}}");
        let gateway = Gateway::start(&route("l", &limit));
        let refused = until("a refusal with more than a second to wait", || {
            let mut client = gateway.client();
            let answers = [client.get("/"), client.get("/")];
            answers.into_iter().find(|answer| answer.status == 429 && answer.number("retry-after") == 2)
        });
        sleep(Duration::from_secs(refused.number("retry-after")));
        assert_eq!(gateway.get("/").status, 200, "{algorithm}");
    }
}

/// A token bucket admits its burst at an instant and then what its rate gives, no more.
#[test]
fn a_burst_passes_and_then_the_rate() {
    let gateway = Gateway::start(&route("l", "  l: {key: ip, rate: 20/s, burst: 5}"));
    let mut client = gateway.client();
    let (passed, took) = measure(|| {
        let mut passed = 0;
        until("twelve pass", || {
            passed += usize::from(client.get("/").status == 200);
            (passed == 12).then_some(())
        });
        passed
    });
    assert!(took >= Duration::from_millis(340), "{passed} passed in {took:?}: seven tokens take 350 ms");
}

/// A cost in the file is what every request spends.
#[test]
fn a_request_costs_what_the_file_says() {
    let gateway = Gateway::start(&route("l", "  l: {key: ip, rate: 10/day, cost: 3}"));
    assert_eq!(gateway.statuses(5, "/", &[]), [200, 200, 200, 429, 429]);
    assert_eq!(gateway.remaining("l", "127.0.0.1"), 1);
}

/// A cost in a header is what this request spends; without the header, or with junk in it, one.
#[test]
fn a_request_costs_what_its_header_says() {
    let gateway = Gateway::start(&route("l", "  l: {key: ip, rate: 100/day, cost: \"header:X-Cost\"}"));
    for (cost, left) in [("4", 96), ("0", 95), ("junk", 94), ("-7", 93), ("93", 0)] {
        assert_eq!(gateway.ask("GET", "/", &[("x-cost", cost)]).status, 200, "{cost}");
        assert_eq!(gateway.remaining("l", "127.0.0.1"), left, "after a cost of {cost}");
    }
    assert_eq!(gateway.get("/").status, 429, "without the header it costs one");
}

/// A cost that the limit can never hold is refused without Retry-After, and the answer says why.
#[test]
fn a_cost_above_the_bucket_is_refused_without_retry_after() {
    let gateway = Gateway::start(&route("l", "  l: {key: ip, rate: 10/day, cost: \"header:X-Cost\"}"));
    for cost in ["11", "18446744073709551615", "18446744073709551616", "99999999999999999999999999"] {
        let refused = gateway.ask("GET", "/", &[("x-cost", cost)]);
        assert_eq!(refused.status, 429, "{cost}");
        assert_eq!((refused.header("retry-after"), refused.header("x-ratelimit-retry-after")), (None, None));
        let problem = refused.problem();
        assert!(problem["detail"].as_str().unwrap().contains("costs more"), "{problem}");
    }
    assert_eq!(gateway.remaining("l", "127.0.0.1"), 10, "none of them took anything");
}

/// A limit in shadow mode refuses nobody and shows what it would have done.
#[test]
fn a_shadow_limit_refuses_nobody_and_shows_in_the_metrics() {
    let gateway = Gateway::start(&route("l", "  l: {key: ip, rate: 2/day, mode: shadow}"));
    assert_eq!(gateway.statuses(5, "/", &[]), [200; 5]);
    let count =
        |outcome| gateway.metric("sluicegate_limit_decisions_total", &[("limit", "l"), ("outcome", outcome)]);
    assert_eq!((count("admitted"), count("shadow_refused"), count("refused")), (2.0, 3.0, 0.0));
    let answer = gateway.get("/");
    assert_eq!(
        (answer.header("x-ratelimit-limit"), answer.header("ratelimit")),
        (None, None),
        "nobody is told"
    );
}

/// A limit in shadow mode beside an enforced one counts what the enforced one admits, and only that.
#[test]
fn a_shadow_limit_changes_nothing_for_the_others() {
    let limits = "  shadow: {key: ip, rate: 1/day, mode: shadow}\n  real: {key: ip, rate: 3/day}";
    let gateway = Gateway::start(&route("shadow, real", limits));
    assert_eq!(gateway.statuses(5, "/", &[]), [200, 200, 200, 429, 429]);
    let refused = gateway.get("/");
    assert_eq!(refused.problem()["violated-policies"], serde_json::json!(["real"]));
}

/// A leaky bucket in shadow mode holds nobody either.
#[test]
fn a_shadow_queue_delays_nobody() {
    let limit = "  l: {key: ip, rate: 1/min, burst: 3, algorithm: leaky_bucket, mode: shadow}";
    let gateway = Gateway::start(&route("l", limit));
    let (statuses, took) = measure(|| gateway.statuses(5, "/", &[]));
    assert_eq!(statuses, [200; 5]);
    assert!(took < patience(5), "{took:?}");
}

/// A limit that is off counts nothing and tells nothing.
#[test]
fn a_limit_that_is_off_does_nothing() {
    let gateway = Gateway::start(&route("l", "  l: {key: ip, rate: 1/day, mode: off}"));
    assert_eq!(gateway.statuses(4, "/", &[]), [200; 4]);
    assert_eq!(gateway.get("/").header("ratelimit-policy"), None);
    assert_eq!(gateway.remaining("l", "127.0.0.1"), 1);
}

/// Exempt addresses and networks are left alone, and counted as exempt.
#[test]
fn exempt_addresses_are_not_limited() {
    let limits = "  l: {key: api_key, rate: 1/day, exempt: [192.0.2.7, 198.51.100.0/24, \"2001:db8::/32\"]}";
    let gateway =
        Gateway::start(&format!("client_ip: {{trusted_proxies: [127.0.0.1]}}\n{}", route("l", limits)));
    for client in ["192.0.2.7", "198.51.100.200", "2001:db8:1::9"] {
        let headers = [("x-forwarded-for", client), ("x-api-key", "k")];
        assert_eq!(gateway.statuses(3, "/", &headers), [200; 3], "{client}");
    }
    assert_eq!(gateway.statuses(2, "/", &[("x-forwarded-for", "192.0.2.8"), ("x-api-key", "k")]), [200, 429]);
    let exempt = gateway.metric("sluicegate_limit_decisions_total", &[("limit", "l"), ("outcome", "exempt")]);
    assert_eq!(exempt, 9.0);
}

/// A key whose value is exempt is left alone; a key that only begins like it is not.
#[test]
fn exempt_key_values_are_not_limited() {
    let gateway = Gateway::start(&route("l", "  l: {key: api_key, rate: 1/day, exempt: [partner]}"));
    assert_eq!(gateway.statuses(3, "/", &[("x-api-key", "partner")]), [200; 3]);
    assert_eq!(gateway.statuses(2, "/", &[("x-api-key", "partner2")]), [200, 429]);
}

/// An exemption from one limit is none from the others.
#[test]
fn an_exemption_holds_for_its_own_limit_only() {
    let limits = "  soft: {key: ip, rate: 1/day, exempt: [127.0.0.0/8]}\n  hard: {key: ip, rate: 3/day}";
    let gateway = Gateway::start(&route("soft, hard", limits));
    assert_eq!(gateway.statuses(4, "/", &[]), [200, 200, 200, 429]);
}

/// Rounded numbers never promise too much: what Remaining says is what still passes.
#[test]
fn remaining_is_what_still_passes() {
    for algorithm in ["token_bucket", "fixed_window", "sliding_log", "sliding_window"] {
        let limit = format!("  l: {{key: ip, rate: 7/366d, algorithm: {algorithm}}}");
        let gateway = Gateway::start(&route("l", &limit));
        let mut client = gateway.client();
        let mut left: Vec<u64> = Vec::new();
        while let Some(answer) = Some(client.get("/")).filter(|answer| answer.status == 200) {
            left.push(answer.number("x-ratelimit-remaining"));
        }
        assert_eq!(left, [6, 5, 4, 3, 2, 1, 0], "{algorithm}");
    }
}

/// Limits are counted in one place for all routes and listeners that name them.
#[test]
fn routes_share_a_limit() {
    let gateway = Gateway::start(
        "listen: [{name: edge, address: \"{edge}\"}, {name: second, address: \"{edge2}\"}]\n\
         limits: {l: {key: ip, rate: 3/day}}\n\
         routes:\n  - {name: a, match: {path: /a, listener: edge}, respond: {status: 200}, limits: [l]}\n  \
         - {name: b, match: {path: /b}, respond: {status: 200}, limits: [l]}\n",
    );
    assert_eq!([gateway.get("/a").status, gateway.get("/b").status], [200, 200]);
    let mut second = Client::connect(gateway.edge2);
    assert_eq!([second.get("/b").status, second.get("/b").status, second.get("/a").status], [200, 429, 404]);
}

/// A flood of random keys leaves memory bounded and whoever is limited limited.
#[test]
fn a_flood_of_keys_evicts_no_limited_key() {
    let limit = "  l: {key: api_key, rate: 2/day, max_keys: 1000}";
    let gateway = crate::harness::Setup::default().workers(2).start(&route("l", limit));
    assert_eq!(gateway.statuses(3, "/", &[("x-api-key", "victim")]), [200, 200, 429]);
    let before = gateway.peak_memory();
    in_parallel(8, |thread| {
        let mut client = gateway.client();
        for batch in 0..50 {
            let ask = |at| format!("GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: {thread}-{batch}-{at}\r\n\r\n");
            client.send((0..100).map(ask).collect::<String>());
            (0..100).for_each(|_| assert!(matches!(client.response().status, 200 | 429)));
        }
    });
    let grown = gateway.peak_memory().saturating_sub(before);
    // Up to 16,384 refused requests are remembered for an hour, of less than 1 kB each.
    assert!(grown < 24 << 20, "memory grew by {} kB", grown / 1024);
    let metric = |name| gateway.metric(name, &[("limit", "l")]);
    let (keys, overflow) = (metric("sluicegate_limit_keys"), metric("sluicegate_limit_overflow_total"));
    // Two workers may take the last place at the same moment.
    assert!((1_000.0..=1_001.0).contains(&keys), "{keys} keys are held");
    assert!((38_999.0..=39_001.0).contains(&overflow), "{overflow} requests shared a bucket");
    assert_eq!(gateway.statuses(2, "/", &[("x-api-key", "victim")]), [429, 429]);
}
