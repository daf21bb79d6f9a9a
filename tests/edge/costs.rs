//! Costs that are known only with the answer: by its status, by one of its headers, by its bytes. The charge is
//! corrected exactly.

use crate::harness::{Fleet, Gateway, RedisServer, Setup, Upstream, gated_upstream, until};

/// Each test runs over local counters and over Redis.
fn stores() -> [Option<RedisServer>; 2] {
    [None, Some(RedisServer::start())]
}

/// A gateway before an upstream with one limit `l` by API key of 1,000 a year, with this cost.
fn start(store: Option<&RedisServer>, upstream: &Upstream, limit: &str) -> Gateway {
    let text = store.map_or_else(String::new, RedisServer::store)
        + &format!(
            "limits: {{l: {{key: api_key, {limit}}}}}\nupstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}}}\n\
             routes: [{{name: api, match: {{path: /*}}, upstream: api, limits: [l]}}]\n"
        );
    let gateway = Setup::default().upstream(upstream).start(&text);
    if store.is_some() {
        Fleet::up_of(&gateway);
    }
    gateway
}

const KEY: [(&str, &str); 1] = [("x-api-key", "k")];

/// Waits until so much is left of the key: what is given back is given back behind the answer.
#[track_caller]
fn left(gateway: &Gateway, remaining: u64) {
    until(&format!("{remaining} are left"), || (gateway.remaining("l", "k") == remaining).then_some(()));
}

/// Five failed logins, then 429; those that succeed never count, and neither does what the gateway cannot answer.
#[test]
fn only_failed_logins_count() {
    for store in stores() {
        let upstream = Upstream::scripted(|exchange| {
            let status = match exchange.seen.target.as_str() {
                "/good" => 200,
                "/limited" => 403,
                _ => 401,
            };
            exchange.answer(status, &[], b"");
        });
        let gateway = start(
            store.as_ref(),
            &upstream,
            "rate: 5/366d, algorithm: sliding_log, cost: {status: [401, 403]}",
        );
        for _ in 0..20 {
            assert_eq!(gateway.ask("GET", "/good", &KEY).status, 200);
            left(&gateway, 5);
        }
        for (tried, target) in ["/bad", "/limited", "/bad", "/bad", "/limited"].into_iter().enumerate() {
            assert!([401, 403].contains(&gateway.ask("GET", target, &KEY).status));
            left(&gateway, 4 - tried as u64);
        }
        assert_eq!(gateway.statuses(3, "/good", &KEY), [429; 3], "not even with the right password");
    }
}

/// The answer says what it cost; less than was taken is given back, more is taken, up to what there is.
#[test]
fn the_answer_says_what_it_cost() {
    for store in stores() {
        let upstream = Upstream::scripted(|exchange| {
            let said = exchange.seen.target.trim_start_matches('/').to_owned();
            exchange.answer(200, &[("X-Cost", &said)], b"");
        });
        let cost = "cost: {response_header: X-Cost, reserve: 10}";
        let gateway =
            start(store.as_ref(), &upstream, &format!("rate: 100/366d, algorithm: fixed_window, {cost}"));
        for (said, remaining) in [("3", 97), ("10", 87), ("25", 62), ("nonsense", 62), ("0", 62), ("50", 12)]
        {
            assert_eq!(gateway.ask("GET", &format!("/{said}"), &KEY).status, 200);
            left(&gateway, remaining);
        }
        assert_eq!(gateway.ask("GET", "/1000000", &KEY).status, 200, "10 of the 12 are taken before");
        left(&gateway, 0);
        assert_eq!(gateway.ask("GET", "/1", &KEY).status, 429);
    }
}

/// Bytes are counted as they are sent, to the byte.
#[test]
fn bytes_are_counted_to_the_byte() {
    for store in stores() {
        let upstream = Upstream::scripted(|exchange| {
            let length: usize = exchange.seen.target.trim_start_matches('/').parse().unwrap();
            exchange.answer(200, &[], "x".repeat(length).as_bytes());
        });
        let gateway = start(store.as_ref(), &upstream, "rate: 1M/366d, cost: {bytes: response}");
        let mut remaining = 1_000_000;
        for length in [1, 1_000, 0, 65_537, 123_456, 300_000] {
            let answer = gateway.ask("GET", &format!("/{length}"), &KEY);
            assert_eq!((answer.status, answer.body.len()), (200, length));
            remaining -= length as u64;
            left(&gateway, remaining);
        }
        assert_eq!(gateway.ask("GET", "/600000", &KEY).status, 200);
        left(&gateway, 0);
        assert_eq!(gateway.ask("GET", "/1", &KEY).status, 429);
    }
}

/// Bytes of uploads are counted as they come, whatever their framing, alone and beside those of answers.
#[test]
fn bytes_of_uploads_are_counted() {
    for (bytes, of_answers) in [("request", 0), ("both", 1)] {
        for store in stores() {
            let upstream = Upstream::scripted(|exchange| {
                let length = exchange.body().unwrap().len();
                exchange.answer(200, &[], "x".repeat(length / 2).as_bytes());
            });
            let gateway =
                start(store.as_ref(), &upstream, &format!("rate: 1M/366d, cost: {{bytes: {bytes}}}"));
            let mut remaining = 1_000_000;
            for length in [1, 0, 70_001, 123_456] {
                let body = "y".repeat(length);
                assert_eq!(gateway.client().post("/", &KEY, body.as_bytes()).status, 200);
                remaining -= (length + of_answers * (length / 2)) as u64;
                left(&gateway, remaining);
            }
            let mut client = gateway.client();
            client.send("POST / HTTP/1.1\r\nHost: a\r\nX-Api-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n");
            client.send("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
            assert_eq!(client.response().status, 200);
            left(&gateway, remaining - 11 - of_answers as u64 * 5);
        }
    }
}

/// A cost may depend on the route, which the gateway itself answers too.
#[test]
fn a_cost_by_route() {
    for store in stores() {
        let text = store.as_ref().map_or_else(String::new, RedisServer::store)
            + "limits: {l: {key: api_key, rate: 100/366d, cost: {routes: {report: 50, light: 2}, methods: {POST: 10}}}}\n\
               routes:\n\
               - {name: report, match: {path: /report}, respond: {status: 200}, limits: [l]}\n\
               - {name: light, match: {path: /light}, respond: {status: 200}, limits: [l]}\n\
               - {name: rest, respond: {status: 200}, limits: [l]}\n";
        let gateway = Setup::default().start(&text);
        if store.is_some() {
            Fleet::up_of(&gateway);
        }
        for (method, target, remaining) in
            [("GET", "/report", 50), ("POST", "/light", 48), ("POST", "/", 38), ("GET", "/", 37)]
        {
            let answer = gateway.ask(method, target, &KEY);
            assert_eq!((answer.status, answer.number("x-ratelimit-remaining")), (200, remaining), "{target}");
        }
        assert_eq!(gateway.ask("POST", "/report", &KEY).status, 429);
    }
}

/// An upstream that fails and a client that leaves cost nothing, and until then the estimate is taken.
#[test]
fn excess_charges_are_refunded() {
    for store in stores() {
        let (upstream, gate) = gated_upstream();
        let gateway =
            start(store.as_ref(), &upstream, "rate: 100/366d, cost: {bytes: response, reserve: 40}");
        let mut clients: Vec<_> = (0..2)
            .map(|_| {
                let mut client = gateway.client();
                client.request("GET", "/slow", &KEY);
                client
            })
            .collect();
        upstream.wait_for(2);
        left(&gateway, 20);
        assert_eq!(gateway.ask("GET", "/slow", &KEY).status, 429, "40 do not fit any more");
        drop(clients.pop());
        left(&gateway, 60);
        drop(clients);
        left(&gateway, 100);
        gate.open();
    }
    let gone = crate::harness::ReservedPort::new();
    let text = format!(
        "limits: {{l: {{key: api_key, rate: 100/366d, cost: {{status: [502], request: 7}}}}}}\n\
         upstreams: {{api: {{servers: [\"http://{}\"]}}}}\n\
         routes: [{{name: api, match: {{path: /*}}, upstream: api, limits: [l]}}]\n",
        gone.address
    );
    let gateway = Setup::default().start(&text);
    assert_eq!(gateway.ask("GET", "/", &KEY).status, 502, "which is the gateway's own");
    left(&gateway, 100);
}

/// A cost may depend on the method alone, and is then taken at once.
#[test]
fn a_cost_by_method() {
    for store in stores() {
        let upstream = Upstream::answering("done");
        let cost = "cost: {request: 1, methods: {POST: 10, delete: 50}}";
        let gateway = start(store.as_ref(), &upstream, &format!("rate: 100/366d, {cost}"));
        for (method, remaining) in [("GET", 99), ("POST", 89), ("DELETE", 39), ("PUT", 38)] {
            let answer = gateway.ask(method, "/", &KEY);
            assert_eq!((answer.status, answer.number("x-ratelimit-remaining")), (200, remaining), "{method}");
        }
        assert_eq!(gateway.ask("DELETE", "/", &KEY).status, 429);
        assert_eq!(gateway.ask("POST", "/", &KEY).status, 200);
    }
}

/// A replay settles by what the log says came of the request.
#[test]
fn a_replay_settles_by_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (folder.path().join("gateway.yaml"), folder.path().join("access.log"));
    let text = "listen: [127.0.0.1:0]\nlimits: {l: {key: ip, algorithm: sliding_log, rate: 2/min, cost: {status: [401]}}}\n\
                routes: [{name: all, match: {path: /*}, respond: {status: 200}, limits: [l]}]\n";
    std::fs::write(&file, text).unwrap();
    let line = |second: u32, status: u16| {
        format!(
            "203.0.113.9 - - [03/Jul/2024:12:00:{second:02} +0000] \"POST /login HTTP/1.1\" {status} 12 \"-\" \"-\"\n"
        )
    };
    let statuses = [200, 401, 200, 200, 401, 401, 200];
    let lines: String = (0..).zip(statuses).map(|(second, status)| line(second, status)).collect();
    std::fs::write(&log, lines).unwrap();
    let decisions = folder.path().join("decisions");
    let mut replay = crate::harness::program();
    replay.arg("replay").arg(&log).arg("--config").arg(&file).arg("--decisions").arg(&decisions);
    assert!(replay.output().unwrap().status.success());
    let outcome = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["outcome"].clone();
    let outcomes: Vec<_> = std::fs::read_to_string(&decisions).unwrap().lines().map(outcome).collect();
    let refused = outcomes.iter().map(|outcome| outcome == "refused").collect::<Vec<_>>();
    assert_eq!(
        refused,
        [false, false, false, false, false, true, true],
        "the third failure, and what follows"
    );
}
