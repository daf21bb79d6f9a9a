//! Editing the file is enough: a change is in force within a second, counters stay, no request or connection is lost,
//! and an invalid file changes nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::client::refuses;
use crate::harness::{
    Client, Gate, Gateway, ReservedPort, Setup, Stopwatch, Upstream, in_parallel, patience, until,
};

/// A limit `l` of this rate on every path.
fn limit(text: &str) -> String {
    format!(
        "limits: {{l: {{key: api_key, {text}}}}}\nroutes: [{{name: all, respond: {{status: 200}}, limits: [l]}}]\n"
    )
}

const KEY: [(&str, &str); 1] = [("x-api-key", "k")];

/// Waits until the policy of this quota is told. Returns how long that took.
#[track_caller]
fn in_force(gateway: &Gateway, quota: u64) -> Duration {
    let watch = Stopwatch::start();
    let wanted = format!("\"l\";q={quota};w=86400");
    let mut client = gateway.client();
    until("the new rate is in force", || {
        let answer = client.ask("GET", "/", &[("x-api-key", "watcher")]);
        (answer.header("ratelimit-policy") == Some(&wanted)).then_some(())
    });
    watch.elapsed()
}

/// Asserts that changes are in force within a second. A busy machine may delay some of them, but not all.
#[track_caller]
fn within_a_second(took: [Duration; 3]) {
    assert!(took.iter().any(|took| *took < patience(1)), "{took:?}");
}

/// A rate that is written into the file is enforced within a second.
#[test]
fn a_change_that_is_written_is_in_force_within_a_second() {
    let gateway = Gateway::start(&limit("rate: 1000/day"));
    within_a_second([2_000, 3_000, 500].map(|quota| {
        gateway.write(&limit(&format!("rate: {quota}/day")));
        in_force(&gateway, quota)
    }));
    gateway.write(&limit("rate: 3/day"));
    in_force(&gateway, 3);
    assert_eq!(gateway.statuses(5, "/", &KEY), [200, 200, 200, 429, 429]);
}

/// Editors write another file and rename it over the old one.
#[test]
fn a_change_by_rename_is_in_force_within_a_second() {
    let gateway = Gateway::start(&limit("rate: 1000/day"));
    within_a_second([2_000, 3_000, 500].map(|quota| {
        gateway.rename_over(&limit(&format!("rate: {quota}/day")));
        in_force(&gateway, quota)
    }));
}

/// Kubernetes swaps a symbolic link beside the file.
#[test]
fn a_change_of_a_config_map_is_in_force_within_a_second() {
    let mut gateway = Setup::default().kubernetes().start(&limit("rate: 1000/day"));
    within_a_second([2_000, 3_000, 500].map(|quota| {
        gateway.swap(&limit(&format!("rate: {quota}/day")));
        in_force(&gateway, quota)
    }));
}

/// SIGHUP and POST /reload load the file, also if it is the same.
#[test]
fn a_reload_can_be_asked_for() {
    let gateway = Setup::default().env("RUST_LOG", "sluicegate=debug").start(&limit("rate: 1000/day"));
    let before = gateway.generation();
    gateway.signal("HUP");
    until("SIGHUP loads the file", || (gateway.generation() == before + 1).then_some(()));
    gateway.write(&limit("rate: 2000/day"));
    gateway.signal("HUP");
    in_force(&gateway, 2_000);
    // The change itself may have been noticed before the signal.
    until("the second SIGHUP has loaded the file", || {
        let log = gateway.log();
        let loaded = |line: &&str| line.contains("reload finished") && line.contains("SIGHUP");
        (log.lines().filter(loaded).count() == 2).then_some(())
    });

    let before = gateway.generation();
    let answer = gateway.admin_change("POST", "/reload");
    assert_eq!((answer.status, answer.json()["generation"].as_u64()), (200, Some(before + 1)));
    gateway.write(&limit("rate: 3000/day"));
    assert_eq!(gateway.admin_change("POST", "/reload").status, 200);
    let shown = gateway.ask("GET", "/", &KEY);
    assert_eq!(shown.header("ratelimit-policy"), Some("\"l\";q=3000;w=86400"), "in force when it answers");
}

/// A reload keeps counters: what was spent stays spent, whatever else changes.
#[test]
fn counters_survive_a_reload() {
    for algorithm in ["token_bucket", "fixed_window", "sliding_log", "sliding_window"] {
        let text = format!("rate: 10/366d, algorithm: {algorithm}");
        let gateway = Gateway::start(&limit(&text));
        gateway.statuses(7, "/", &KEY);
        gateway.reload(&(limit(&text) + "drain: 7s\n"));
        assert_eq!(gateway.remaining("l", "k"), 3, "{algorithm}: another line changed");
        gateway.reload(&limit(&format!("{text}, mode: shadow, on_missing: deny")));
        assert_eq!(gateway.remaining("l", "k"), 3, "{algorithm}: another field changed");
        gateway.reload(&limit(&text).replace("name: all", "name: renamed"));
        assert_eq!(gateway.statuses(4, "/", &KEY), [200, 200, 200, 429], "{algorithm}");
    }
}

/// A changed rate or burst applies to what stands: a bucket at half stays at half.
#[test]
fn a_bucket_at_half_stays_at_half() {
    let gateway = Gateway::start(&limit("rate: 10/366d, burst: 10"));
    gateway.statuses(5, "/", &KEY);
    for (burst, half) in [(20, 10), (8, 4), (100, 50), (10, 5)] {
        gateway.reload(&limit(&format!("rate: 10/366d, burst: {burst}")));
        assert_eq!(gateway.remaining("l", "k"), half, "of {burst}");
    }
    gateway.reload(&limit("rate: 20/366d, burst: 10"));
    assert_eq!(gateway.remaining("l", "k"), 5, "at another rate");
    gateway.reload(&limit("rate: 20/366d, burst: 1"));
    assert_eq!(gateway.ask("GET", "/", &KEY).status, 429, "half of one is not one");
}

/// Another key or algorithm is another limit, which starts at zero.
#[test]
fn another_key_starts_with_empty_counters() {
    let gateway = Gateway::start(&limit("rate: 2/366d"));
    assert_eq!(gateway.statuses(3, "/", &KEY), [200, 200, 429]);
    gateway.reload(&limit("rate: 2/366d").replace("api_key", "\"header:X-Api-Key\""));
    assert_eq!(gateway.statuses(3, "/", &KEY), [200, 200, 429]);
    gateway.reload(&limit("rate: 2/366d, algorithm: sliding_log"));
    assert_eq!(gateway.statuses(3, "/", &KEY), [200, 200, 429]);
}

/// Requests in flight keep their places over a reload, and free them at their end.
#[test]
fn places_are_kept_over_a_reload() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::scripted(move |exchange| {
        waits.wait();
        exchange.answer(200, &[], b"done");
    });
    let config = |max: u64| {
        format!(
            "limits: {{l: {{key: global, algorithm: concurrency, max: {max}}}}}\n\
             upstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}}}\n\
             routes: [{{name: api, upstream: api, limits: [l]}}]\n"
        )
    };
    let gateway = Gateway::before(&upstream, &config(3));
    let mut clients: Vec<Client> = (0..2).map(|_| gateway.client()).collect();
    clients.iter_mut().for_each(|client| _ = client.request("GET", "/", &[]));
    upstream.wait_for(2);
    gateway.reload(&config(2));
    assert_eq!(gateway.get("/").status, 429, "both are still counted");
    gate.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    until("both places are free", || (gateway.remaining("l", "any") == 2).then_some(()));
}

/// Twenty reloads under load: no request fails, no connection is closed, no counter is lost.
#[test]
fn twenty_reloads_under_load_fail_no_request() {
    let upstream = Upstream::answering("done");
    let config = |turn: u64| {
        format!(
            "limits: {{l: {{key: global, rate: {}/366d}}}}\nupstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}}}\n\
             routes: [{{name: api, upstream: api, limits: [l]}}]\n",
            1_000_000 - turn % 2
        )
    };
    let gateway = Gateway::before(&upstream, &config(0));
    let over = AtomicBool::new(false);
    let counts = in_parallel(9, |index| {
        if index == 8 {
            (1..=20).for_each(|turn| gateway.reload(&config(turn)));
            over.store(true, Ordering::SeqCst);
            return 0;
        }
        let mut client = gateway.client(); // one for all requests: it panics if it is closed
        let mut count = 0;
        while !over.load(Ordering::SeqCst) {
            assert_eq!(client.get("/").status, 200, "request {count}");
            count += 1;
        }
        count
    });
    let sent: u64 = counts.iter().sum();
    assert_eq!(upstream.seen().len() as u64, sent);
    let left = gateway.remaining("l", "any");
    // Each change of the rate rounds what stands, in favour of the limit.
    assert!((1_000_000 - sent - 40..=1_000_000 - sent).contains(&left), "{sent} sent, {left} left");
    assert!(upstream.connections() <= 16, "the upstream's connections are kept: {}", upstream.connections());
}

const ONE: &str = "listen: [{name: edge, address: \"{edge}\"}]\n";
const BOTH: &str = "listen: [{name: edge, address: \"{edge}\"}, {name: second, address: \"{edge2}\"}]\n";

/// Listeners come with the file.
#[test]
fn a_listener_can_be_added() {
    let rest = "routes:\n  - {name: all, respond: {status: 200, body: here}}\n";
    let gateway = Gateway::start(&format!("{ONE}{rest}"));
    let mut kept = gateway.client();
    assert_eq!(kept.get("/").status, 200);
    refuses(gateway.edge2);
    gateway.reload(&format!(
        "{BOTH}{}",
        rest.replace(
            "- {name: all",
            "- {name: second, match: {listener: second}, respond: {status: 201}}\n  - {name: all"
        )
    ));
    let mut second = until("it listens", || {
        std::net::TcpStream::connect(gateway.edge2).ok().map(|_| Client::connect(gateway.edge2))
    });
    assert_eq!((second.get("/").status, kept.get("/").status), (201, 200));
}

/// Listeners go with the file: new connections are refused, idle ones are closed, and requests in flight end well.
#[test]
fn a_listener_can_be_removed() {
    let (upstream, gate) = crate::harness::gated_upstream();
    let rest = "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, upstream: api}]\n";
    let gateway = Gateway::before(&upstream, &format!("{BOTH}{rest}"));
    let (mut idle, mut slow) = (Client::connect(gateway.edge2), Client::connect(gateway.edge2));
    let mut kept = gateway.client();
    assert_eq!((idle.get("/").status, kept.get("/").status), (200, 200));
    slow.request("GET", "/slow", &[]);
    upstream.wait_for(3);
    gateway.reload(&format!("{ONE}{rest}"));
    refuses(gateway.edge2);
    assert!(idle.is_closed());
    gate.open();
    assert_eq!(slow.response().text(), "done", "the request in flight is answered");
    assert!(slow.is_closed());
    assert_eq!(kept.get("/").status, 200, "the other listener does not notice");
    gateway.reload(&format!("{BOTH}{rest}"));
    assert_eq!(Client::connect(gateway.edge2).get("/").status, 200, "and it can come back");
}

/// A listener that gets another name goes on: whoever connects meanwhile is served.
#[test]
fn a_listener_can_be_renamed_under_load() {
    let file = |name: &str| {
        format!(
            "listen: [{{name: {name}, address: \"{{edge}}\"}}]\nroutes: [{{name: all, respond: {{status: 200}}}}]\n"
        )
    };
    let gateway = Gateway::start(&file("name-0"));
    let over = AtomicBool::new(false);
    in_parallel(4, |index| {
        if index == 3 {
            (1..=20).for_each(|turn| gateway.reload(&file(&format!("name-{turn}"))));
            return over.store(true, Ordering::SeqCst);
        }
        while !over.load(Ordering::SeqCst) {
            assert_eq!(gateway.get("/").status, 200);
        }
    });
}

/// A request in flight ends as it began, also if the file no longer knows its route, limit and upstream.
#[test]
fn a_request_in_flight_outlives_its_route() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::scripted(move |exchange| {
        waits.wait();
        exchange.answer(200, &[], b"done");
    });
    let gateway = Gateway::before(
        &upstream,
        "limits: {l: {key: global, algorithm: concurrency, max: 9}}\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
         routes: [{name: api, upstream: api, limits: [l]}]\n",
    );
    let mut client = gateway.client();
    client.request("GET", "/", &[]);
    upstream.wait_for(1);
    gateway.reload("routes: [{name: other, respond: {status: 410}}]\n");
    assert_eq!(gateway.get("/").status, 410);
    gate.open();
    assert_eq!(client.response().text(), "done");
    assert_eq!(client.get("/").status, 410);
}

/// A bad file changes nothing, is logged once, shown to operators, and the next good one is taken.
#[test]
fn a_bad_file_changes_nothing() {
    let gateway = Gateway::start(&limit("rate: 10/366d"));
    gateway.statuses(4, "/", &KEY);
    let good = gateway.generation();
    assert_eq!(gateway.metric("sluicegate_config_last_reload_successful", &[]), 1.0);
    gateway.rename_over(&limit("rate: ten/day, wibble: 1")); // in one step: an empty file would be noticed too
    until("the bad file is noticed", || {
        (gateway.metric("sluicegate_config_last_reload_successful", &[]) == 0.0).then_some(())
    });
    for _ in 0..3 {
        let answer = gateway.admin_change("POST", "/reload");
        assert_eq!(answer.status, 422);
        assert!(answer.json()["report"].as_str().unwrap().contains("wibble"), "{}", answer.text());
    }
    gateway.signal("HUP");
    let status = gateway.admin_get("/status").json();
    let shown = status["last_reload_error"].as_str().unwrap();
    assert!(shown.contains("wibble") && shown.contains("ten/day"), "all that is wrong is told: {shown}");
    assert_eq!((gateway.generation(), gateway.remaining("l", "k")), (good, 6));
    assert_eq!(gateway.admin_get("/readyz").status, 200);
    assert_eq!(gateway.statuses(2, "/", &KEY), [200, 200]);
    assert_eq!(gateway.times_logged("is not in force"), 1, "{}", gateway.log());

    gateway.reload(&limit("rate: 20/366d"));
    assert_eq!(gateway.metric("sluicegate_config_last_reload_successful", &[]), 1.0);
    assert!(gateway.admin_get("/status").json()["last_reload_error"].is_null());
    assert_eq!(gateway.remaining("l", "k"), 8, "four of ten are eight of twenty");
}

/// A file that is empty, no YAML, or gone changes nothing either.
#[test]
fn no_kind_of_broken_file_stops_the_gateway() {
    let gateway = Gateway::start(&limit("rate: 10/366d"));
    for broken in ["\u{0}", "listen: [", "- a\n- b\n", "limits: {}\n"] {
        gateway.write(broken);
        assert_eq!(gateway.admin_change("POST", "/reload").status, 422, "{broken:?}");
        assert_eq!(gateway.get("/").status, 200);
    }
    gateway.remove_file();
    assert_eq!(gateway.admin_change("POST", "/reload").status, 422);
    assert_eq!(gateway.get("/").status, 200);
    gateway.write(&limit("rate: 7/day"));
    in_force(&gateway, 7);
}

/// An address that cannot be had changes nothing: the file is refused as a whole.
#[test]
fn a_listener_that_cannot_be_opened_changes_nothing() {
    let port = ReservedPort::new();
    let address = port.address;
    let taken = std::net::TcpListener::bind(address).unwrap();
    let gateway = Setup::default().value("taken", address).start(&limit("rate: 10/day"));
    let two = "listen: [{name: edge, address: \"{edge}\"}, \"{taken}\"]\n";
    gateway.rename_over(&format!("{two}{}", limit("rate: 5/day")));
    until("the file is refused", || {
        (gateway.metric("sluicegate_config_last_reload_successful", &[]) == 0.0).then_some(())
    });
    let shown = gateway.admin_get("/status").json()["last_reload_error"].to_string();
    assert!(shown.contains(&address.to_string()), "{shown}");
    assert_eq!(gateway.get("/").header("ratelimit-policy"), Some("\"l\";q=10;w=86400"));
    drop(taken);
    until("the address is taken when it is free", || (gateway.generation() == 2).then_some(()));
    assert_eq!(Client::connect(address).get("/").header("ratelimit-policy"), Some("\"l\";q=5;w=86400"));
}

fn with_token(token: &str) -> String {
    format!("admin: {{address: \"{{admin}}\", token: {token}}}\n{}", limit("rate: 10/day"))
}

/// The admin token can change, and the API answers all the while.
#[test]
fn the_admin_token_can_change() {
    let gateway = Gateway::start(&with_token("one"));
    let change = |token: &str| {
        gateway.admin("POST", "/reload", &[("authorization", &format!("Bearer {token}"))]).status
    };
    assert_eq!((change("one"), change("two")), (200, 401));
    gateway.reload(&with_token("two"));
    until("the new token is in force", || (change("two") == 200).then_some(()));
    assert_eq!(change("one"), 401);
}

/// Whoever asks for a reload gets an answer, also when the admin API itself changes.
#[test]
fn a_reload_that_changes_the_token_is_answered() {
    let gateway = Gateway::start(&with_token("one"));
    for (old, new) in [("one", "two"), ("two", "three"), ("three", "four")] {
        gateway.write(&with_token(new));
        let answer = gateway.admin("POST", "/reload", &[("authorization", &format!("Bearer {old}"))]);
        // The file may have been seen before the request was: then it is the old token that is refused.
        assert!(matches!(answer.status, 200 | 401), "{answer:?}");
    }
}

/// The admin API can move to another interface on the port that it has, and answers all the while.
#[test]
fn the_admin_api_can_move_on_its_port() {
    let file = |host: &str, port: u16| {
        format!("admin: {{address: \"{host}:{port}\", token: test-token}}\n{}", limit("rate: 10/day"))
    };
    let gateway = Gateway::start(&limit("rate: 10/day"));
    let port = gateway.admin.port();
    let elsewhere = std::net::SocketAddr::from(([127, 0, 0, 2], port));
    let over = AtomicBool::new(false);
    in_parallel(3, |index| {
        if index == 2 {
            for _ in 0..5 {
                gateway.reload(&file("0.0.0.0", port));
                until("it answers everywhere", || std::net::TcpStream::connect(elsewhere).ok());
                gateway.reload(&file("127.0.0.1", port));
                refuses(elsewhere);
            }
            return over.store(true, Ordering::SeqCst);
        }
        while !over.load(Ordering::SeqCst) {
            assert_eq!(gateway.admin_get("/readyz").status, 200);
        }
    });
}

/// A listener and the admin API cannot change places at once: nobody's request may reach the other. Nothing changes.
#[test]
fn the_admin_api_does_not_take_the_place_of_a_listener() {
    let gateway = Gateway::start(&limit("rate: 10/day"));
    let before = gateway.generation();
    gateway.write(&format!(
        "listen: [\"{{admin}}\"]\nadmin: {{address: \"{{edge}}\"}}\n{}",
        limit("rate: 10/day")
    ));
    let answer = gateway.admin_change("POST", "/reload");
    assert_eq!(answer.status, 422);
    assert!(answer.json()["report"].as_str().unwrap().contains("cannot listen on"), "{}", answer.text());
    assert_eq!((gateway.generation(), gateway.get("/").status), (before, 200));
}

/// A listener that moves to another interface on its port goes on serving who comes to both.
#[test]
fn a_listener_can_move_on_its_port_under_load() {
    let file = |host: &str, port: u16| {
        format!("listen: [\"{host}:{port}\"]\nroutes: [{{name: all, respond: {{status: 200}}}}]\n")
    };
    let gateway = Gateway::start(&limit("rate: 10/day"));
    let port = gateway.edge.port();
    gateway.reload(&file("127.0.0.1", port));
    let load =
        crate::harness::Load::on(std::slice::from_ref(&gateway), 4).pause(Duration::from_millis(8)).start();
    for host in ["0.0.0.0", "127.0.0.1", "0.0.0.0", "127.0.0.1"] {
        gateway.reload(&file(host, port));
        let before = load.answered();
        until("some requests", || (load.answered() > before + 100).then_some(()));
    }
    let lost: Vec<_> = load.stop().into_iter().filter(|sample| sample.status != 200).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// Listeners come and go at 500 requests a second on another: no request fails, no connection is closed.
#[test]
fn listeners_change_beside_a_load() {
    let rest = "routes: [{name: all, respond: {status: 200}}]\n";
    let gateway = Gateway::start(&format!("{ONE}{rest}"));
    let load =
        crate::harness::Load::on(std::slice::from_ref(&gateway), 8).pause(Duration::from_millis(16)).start();
    for turn in 0..10 {
        gateway.reload(&format!("{BOTH}{rest}"));
        assert_eq!(Client::connect(gateway.edge2).get("/").status, 200, "turn {turn}");
        gateway.reload(&format!("{ONE}{rest}"));
        refuses(gateway.edge2);
    }
    until("a second's worth of requests", || (load.answered() > 500).then_some(()));
    let lost: Vec<_> = load.stop().into_iter().filter(|sample| sample.status != 200).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// The admin API can move to another address.
#[test]
fn the_admin_api_can_move() {
    let gateway = Gateway::start(&limit("rate: 10/day"));
    gateway.write(&format!("admin: {{address: \"{{edge2}}\"}}\n{}", limit("rate: 10/day")));
    refuses(gateway.admin);
    assert_eq!(Client::connect(gateway.edge2).ask("GET", "/readyz", &[("host", "localhost")]).status, 200);
}
