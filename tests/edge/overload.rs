//! An upstream that can handle only so many requests: who enters, who waits, who is refused, and what they are told.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::harness::{Client, Gateway, Load, RedisServer, Setup, Stopwatch, Upstream, until};

/// An upstream that answers a request each time it is told to.
fn held() -> (Upstream, Sender<()>) {
    let (go, wait) = channel();
    let wait = Mutex::new(wait);
    let upstream = Upstream::scripted(move |exchange| {
        let _ = wait.lock().unwrap().recv_timeout(Duration::from_secs(30));
        exchange.answer(200, &[], b"done");
    });
    (upstream, go)
}

fn before(upstream: &Upstream, overload: &str, more: &str) -> Gateway {
    Setup::default().workers(2).upstream(upstream).start(&text(overload, more))
}

fn text(overload: &str, more: &str) -> String {
    format!(
        "{more}upstreams:\n  api:\n    servers: [\"http://{{upstream}}\"]\n    overload: {{{overload}}}\nroutes:\n  \
         - {{name: pay, match: {{path: /pay}}, upstream: api, priority: critical}}\n  \
         - {{name: report, match: {{path: /report}}, upstream: api, priority: sheddable}}\n  \
         - {{name: rest, upstream: api}}\n"
    )
}

fn queued(gateway: &Gateway, priority: &str) -> f64 {
    gateway.metric("sluicegate_upstream_queued", &[("upstream", "api"), ("priority", priority)])
}

fn in_flight(gateway: &Gateway) -> f64 {
    gateway.metric("sluicegate_upstream_in_flight", &[("upstream", "api")])
}

fn ask(gateway: &Gateway, target: &str, headers: &[(&str, &str)]) -> Client {
    let mut client = gateway.client();
    client.request("GET", target, headers);
    client
}

/// Fills the two places.
fn full(gateway: &Gateway) -> Vec<Client> {
    let clients = (0..2).map(|_| ask(gateway, "/", &[])).collect();
    until("both places are taken", || (in_flight(gateway) == 2.0).then_some(()));
    clients
}

const TWO: &str =
    "adaptive: false, max_in_flight: 2, queue: {size: 2, deadline: 60s}, reserve: {critical: 0%}";

/// A gateway whose two places are taken, with one request that waits.
fn one_waits() -> (Upstream, Sender<()>, Gateway, Vec<Client>, Client) {
    let (upstream, go) = held();
    let gateway = before(&upstream, TWO, "");
    let first = full(&gateway);
    let waits = ask(&gateway, "/waits", &[]);
    until("one waits", || (queued(&gateway, "default") == 1.0).then_some(()));
    (upstream, go, gateway, first, waits)
}

/// Those that wait go in by priority, and whoever is more important takes the place of one that waits.
#[test]
fn important_requests_go_first() {
    let (upstream, go, gateway, first, mut usual) = one_waits();
    let mut report = ask(&gateway, "/report", &[]);
    until("two wait", || (queued(&gateway, "sheddable") == 1.0).then_some(()));
    let mut pay = ask(&gateway, "/pay", &[]);
    // The queue is full: the least important one has to go.
    let refused = report.response();
    assert_eq!(refused.status, 503);
    assert!((1..=3).contains(&refused.number("retry-after")), "{}", refused.number("retry-after"));
    let problem = refused.json();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    assert_eq!(problem["reason"], "shed");
    // One more of the same importance finds no room.
    assert_eq!(gateway.get("/other").status, 503);
    until("the critical one waits", || (queued(&gateway, "critical") == 1.0).then_some(()));
    go.send(()).unwrap();
    until("the critical one is in", || (upstream.seen().len() == 3).then_some(()));
    assert_eq!(upstream.last().target, "/pay");
    (0..3).for_each(|_| go.send(()).unwrap());
    assert_eq!((pay.response().status, usual.response().status), (200, 200));
    first.into_iter().for_each(|mut client| assert_eq!(client.response().status, 200));
    until("all have ended", || (in_flight(&gateway) == 0.0).then_some(()));
    let shed = |priority| {
        gateway.metric("sluicegate_upstream_shed_total", &[("upstream", "api"), ("priority", priority)])
    };
    assert_eq!((shed("critical"), shed("default"), shed("sheddable")), (0.0, 1.0, 1.0));
    assert_eq!(gateway.metric("sluicegate_refusals_total", &[("route", "report"), ("reason", "shed")]), 1.0);
}

/// Whoever leaves while waiting is forgotten, and nobody else waits because of it.
#[test]
fn clients_that_leave_take_no_place() {
    let (upstream, go) = held();
    let gateway = before(&upstream, TWO, "");
    let first = full(&gateway);
    // Critical ones: of others, those behind one that has waited for long may be refused.
    let waiting = || queued(&gateway, "critical");
    let leaving = ask(&gateway, "/pay?leaves", &[]);
    until("one waits", || (waiting() == 1.0).then_some(()));
    let mut stays = ask(&gateway, "/pay?stays", &[]);
    until("two wait", || (waiting() == 2.0).then_some(()));
    drop(leaving);
    until("it is forgotten", || (waiting() == 1.0).then_some(()));
    let mut third = ask(&gateway, "/pay?third", &[]);
    until("there is room in the queue", || (waiting() == 2.0).then_some(()));
    go.send(()).unwrap();
    until("the next is in", || (upstream.seen().len() == 3).then_some(()));
    assert_eq!(upstream.last().target, "/pay?stays");
    (0..3).for_each(|_| go.send(()).unwrap());
    assert_eq!((stays.response().status, third.response().status), (200, 200));
    first.into_iter().for_each(|mut client| assert_eq!(client.response().status, 200));
    until("all have ended", || (in_flight(&gateway) == 0.0).then_some(()));
}

/// A critical request waits as long as the deadline says, others half of that.
#[test]
fn nobody_waits_longer_than_the_deadline() {
    let (upstream, go) = held();
    let gateway =
        before(&upstream, "adaptive: false, max_in_flight: 2, queue: {size: 9, deadline: 1500ms}", "");
    let first = full(&gateway);
    let watch = Stopwatch::start();
    let (mut pay, mut usual) = (ask(&gateway, "/pay", &[]), ask(&gateway, "/", &[]));
    assert_eq!(usual.response().status, 503);
    let took = watch.elapsed();
    assert!(took >= Duration::from_millis(750), "{took:?}");
    assert_eq!(pay.response().status, 503);
    assert!(watch.elapsed() >= Duration::from_millis(1_500), "{:?}", watch.elapsed());
    (0..2).for_each(|_| go.send(()).unwrap());
    first.into_iter().for_each(|mut client| assert_eq!(client.response().status, 200));
}

/// A consumer, its plan, or a trusted proxy can make a request more or less important than its route; the upstream may be told.
#[test]
fn priorities_come_from_proxies_consumers_plans_and_routes() {
    let upstream = Upstream::answering("done");
    let consumers = "- {name: acme, key: sha256:0b131655124822cb1cf254042086d2bf26a4f1c6cd82727aab583e915346aca3, plan: pro}\n- {name: beta, key: sha256:3b6424f5938ab57d09f708b7e81994276b9ea3be655baffd5dbd3ca06433c3c6, plan: free}\n\
                     - {name: delta, key: sha256:e23b02d7ea3d741ed308206a66ec57e7e30ad7daedc467621c6aade6e6b12a07, plan: free, priority: critical}\n\
                     - {name: gamma, key: sha256:513b9aae14dcf903d503bccf2bfa3bf6eddc650b41c1ccf4be4037a3a65d395a, plan: free}\n";
    let gateway = Setup::default().file("consumers.yaml", consumers).upstream(&upstream).start(
        "client_ip: {trusted_proxies: [127.0.0.1]}\n\
         auth: {api_key: {consumers: consumers.yaml}}\n\
         limits: {l: {key: consumer, rate: 1000/s, plans: {pro: {rate: 2000/s}, free: {rate: 500/s}}}}\n\
         priorities: {plans: {pro: critical, free: sheddable}, consumers: {gamma: default}, header: X-Priority, forward: true}\n\
         upstreams: {api: {servers: [\"http://{upstream}\"], overload: {}}}\n\
         routes: [{name: pay, match: {path: /pay}, upstream: api, priority: critical, limits: [l]}, \
         {name: rest, upstream: api, limits: [l]}]\n",
    );
    for (target, headers, expected) in [
        ("/", &[][..], "default"),
        ("/pay", &[], "critical"),
        ("/pay", &[("x-api-key", "k-beta")], "sheddable"),
        ("/", &[("x-api-key", "k-acme")], "critical"),
        ("/pay", &[("x-api-key", "k-gamma")], "default"),
        ("/pay", &[("x-api-key", "k-acme"), ("x-priority", "sheddable")], "sheddable"),
        ("/", &[("x-api-key", "k-delta")], "critical"),
        ("/pay", &[("x-priority", "urgent")], "critical"),
    ] {
        assert_eq!(gateway.ask("GET", target, headers).status, 200);
        assert_eq!(upstream.last().head.one("x-priority"), Some(expected), "{target} {headers:?}");
    }
}

/// Who is not trusted cannot make a request important.
#[test]
fn clients_cannot_choose_their_priority() {
    let upstream = Upstream::answering("done");
    let gateway = before(&upstream, "", "priorities: {header: X-Priority}\n");
    assert_eq!(gateway.ask("GET", "/report", &[("x-priority", "critical")]).status, 200);
    assert!(upstream.last().head.one("x-priority").is_none());
}

/// A gRPC call that is refused gets UNAVAILABLE, and when to try again.
#[test]
fn a_grpc_call_is_told_when_to_try_again() {
    let (upstream, go) = held();
    let gateway = before(&upstream, "adaptive: false, max_in_flight: 2, queue: {size: 0}", "");
    let first = full(&gateway);
    let refused =
        gateway.ask("POST", "/svc/call", &[("content-type", "application/grpc"), ("content-length", "0")]);
    assert_eq!((refused.status, refused.header("grpc-status")), (200, Some("14")));
    let pushback = refused.number("grpc-retry-pushback-ms");
    assert!((1_000..=3_000).contains(&pushback), "{pushback}");
    (0..2).for_each(|_| go.send(()).unwrap());
    first.into_iter().for_each(|mut client| assert_eq!(client.response().status, 200));
}

/// A reload keeps those that wait and those in flight, under the new numbers.
#[test]
fn a_reload_lets_in_those_that_wait() {
    let (upstream, go, gateway, first, mut waits) = one_waits();
    gateway.reload(&text(&TWO.replace("max_in_flight: 2", "max_in_flight: 3"), ""));
    until("it is in", || (upstream.seen().len() == 3).then_some(()));
    (0..3).for_each(|_| go.send(()).unwrap());
    assert_eq!(waits.response().status, 200);
    first.into_iter().for_each(|mut client| assert_eq!(client.response().status, 200));
}

/// An answer that goes on for hours takes no place from others.
#[test]
fn streams_give_their_places_back() {
    let upstream = Upstream::scripted(|exchange| match exchange.seen.target.as_str() {
        "/events" => {
            exchange.write(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
            );
            exchange.write("5\r\ndata:\r\n");
            exchange.silence();
        }
        _ => exchange.answer(200, &[], b"done"),
    });
    let gateway = before(&upstream, "adaptive: false, max_in_flight: 2, queue: {size: 0}", "");
    let _streams: Vec<Client> = (0..4)
        .map(|at| {
            let client = ask(&gateway, "/events", &[]);
            until("the stream has begun", || (upstream.seen().len() == at + 1).then_some(()));
            until("its place is free", || (in_flight(&gateway) == 0.0).then_some(()));
            client
        })
        .collect();
    assert_eq!(gateway.get("/").status, 200);
}

/// Clients that send or read slowly take no place from others: the upstream has nothing to do meanwhile.
#[test]
fn slow_clients_take_no_place() {
    let large = vec![b'x'; 20 << 20];
    let upstream = Upstream::scripted(move |exchange| {
        if exchange.body().is_err() {
            return exchange.close();
        }
        match exchange.seen.target.as_str() {
            "/large" => exchange.answer(200, &[], &large),
            _ => exchange.answer(200, &[], b"done"),
        }
    });
    let gateway = before(&upstream, "adaptive: false, max_in_flight: 2, queue: {size: 0}", "");
    let mut uploads: Vec<Client> = (1..=3)
        .map(|count| {
            let mut client = gateway.client();
            client.request("POST", "/", &[("content-length", "10")]).send("12345");
            upstream.wait_for(count);
            until("its place is free", || (in_flight(&gateway) == 0.0).then_some(()));
            client
        })
        .collect();
    let _downloads: Vec<Client> = (4..=6)
        .map(|count| {
            let client = ask(&gateway, "/large", &[]);
            upstream.wait_for(count);
            until("its place is free", || (in_flight(&gateway) == 0.0).then_some(()));
            client
        })
        .collect();
    assert_eq!(gateway.get("/").status, 200);
    for client in &mut uploads {
        assert_eq!(client.send("67890").response().status, 200);
    }
    until("all places are free", || (in_flight(&gateway) == 0.0).then_some(()));
}

/// The header of priorities is removed from requests in each form in which a server may read it.
#[test]
fn clients_cannot_tell_the_upstream_a_priority() {
    let upstream = Upstream::scripted(|exchange| {
        let Ok(body) = exchange.body() else { return exchange.close() };
        exchange.answer(200, &[], &body);
    });
    let more = "underscores: forwarded\npriorities: {header: X-Prio, forward: true}\n";
    let gateway = before(&upstream, TWO, more);
    let head = [
        ("x-prio", "critical"),
        ("x_prio", "critical"),
        ("transfer-encoding", "chunked"),
        ("te", "trailers"),
        ("trailer", "X-Prio, X_Prio, X-Sum"),
    ];
    let mut client = gateway.client();
    let trailers = "X-Prio: critical\r\nX_Prio: critical\r\nX-Sum: 1\r\n\r\n";
    client.request("POST", "/", &head).send(format!("1\r\na\r\n0\r\n{trailers}"));
    assert_eq!(client.response().status, 200);
    let seen = upstream.last().head;
    assert_eq!((seen.all("x-prio"), seen.all("x_prio")), (vec!["default"], vec![]));
    assert_eq!(seen.all("x-sum"), ["1"]);
}

/// A consumer that asks for much more than the upstream can handle waits behind one that asks for little.
#[test]
fn consumers_have_fair_shares_of_an_upstream() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.pause(Duration::from_millis(10));
        exchange.answer(200, &[], b"done");
    });
    // The keys are acme-key and beta-key.
    let consumers = "- {name: acme, key: sha256:afacab3575137afa4e00d9cbcafcb14c9ae25f779d964eb0ea5b2c4eb5dfd163}\n\
                     - {name: beta, key: sha256:7a3d637bc601f7000cc2c33141c8c8a7554e02e319fa8b293a0c88c613b77620}\n";
    let gateway = Setup::default().file("consumers.yaml", consumers).upstream(&upstream).start(
        "auth: {api_key: {consumers: consumers.yaml}}\n\
         upstreams: {api: {servers: [\"http://{upstream}\"], fair: {}, \
         overload: {adaptive: false, max_in_flight: 4, queue: {size: 10, deadline: 60s}}}}\n\
         routes: [{name: all, upstream: api}]\n",
    );
    let above = || gateway.metric("sluicegate_upstream_above_share_total", &[("upstream", "api")]);
    let greedy = Load::at(gateway.edge, 60).header("x-api-key", "acme-key").start();
    until("it is above its share", || (above() >= 100.0).then_some(()));
    // Those that wait from before were not above it.
    let seen = upstream.seen().len();
    until("they have had their turns", || (upstream.seen().len() >= seen + 50).then_some(()));
    let mut modest = gateway.client();
    for request in 0..100 {
        modest.request("GET", "/", &[("x-api-key", "beta-key")]);
        assert_eq!(modest.response().status, 200, "request {request}");
    }
    until("the share is about what the upstream can handle", || {
        let share = gateway.metric("sluicegate_upstream_fair_share", &[("upstream", "api")]);
        (50.0..500.0).contains(&share).then_some(())
    });
    greedy.stop();
}

/// Two gateways with one store divide one limit; when one is gone, or the store, the other goes on alone.
#[test]
fn gateways_of_one_store_share_a_limit() {
    let mut redis = RedisServer::start();
    let upstream = Upstream::scripted(|exchange| {
        exchange.pause(Duration::from_millis(2));
        exchange.answer(200, &[], b"done");
    });
    // What nobody can read is ignored, and removed.
    for text in ["nonsense", "99999999999999 nonsense"] {
        redis.run::<()>(&["HSET", "sluicegate:{gateways}:overload:api", text, text]);
    }
    let file = redis.store_within("1s") + &text("max_in_flight: 60, queue: {size: 100, deadline: 5s}", "");
    let start = || Setup::default().upstream(&upstream).start(&file);
    let (first, second) = (start(), start());
    let overload =
        |gateway: &Gateway| gateway.admin_get("/status").json()["upstreams"][0]["overload"].clone();
    let is_pooled = |gateway: &Gateway| overload(gateway)["pooled"] == true;
    let loads = [&first, &second].map(|gateway| Load::at(gateway.edge, 40).start());
    until("both are pooled", || (is_pooled(&first) && is_pooled(&second)).then_some(()));
    until("they have parts of one limit", || {
        let parts = [&first, &second].map(|gateway| overload(gateway)["limit"].as_u64().unwrap());
        parts.iter().all(|part| (5..=55).contains(part)).then_some(())
    });
    let [of_first, of_second] = loads;
    of_second.stop();
    drop(second);
    until("the first is alone", || (!is_pooled(&first)).then_some(()));
    redis.kill();
    let answered = of_first.answered();
    until("it goes on", || (of_first.answered() > answered + 200).then_some(()));
    let samples = of_first.stop();
    assert!(samples.iter().all(|sample| [200, 503].contains(&sample.status)));
}

/// Errors of the upstream's own do not lower its limit; that it is too much does.
#[test]
fn only_overload_lowers_the_limit() {
    let upstream = Upstream::scripted(|exchange| match exchange.seen.target.as_str() {
        "/broken" => exchange.answer(500, &[], b""),
        _ => exchange.answer(503, &[], b""),
    });
    let gateway = before(&upstream, "min_in_flight: 2", "");
    let limit = || gateway.metric("sluicegate_upstream_in_flight_limit", &[("upstream", "api")]);
    Load::at(gateway.edge, 4).target("/broken").send(600);
    assert!(limit() >= 20.0, "{}", limit());
    let load = Load::at(gateway.edge, 4).target("/overloaded").start();
    until("the limit falls", || (limit() < 10.0).then_some(()));
    load.stop();
}
