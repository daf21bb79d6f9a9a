//! Limits that delay requests or count those in flight: the leaky bucket releases in time and in order, concurrency
//! frees its places however a request ends, and clients that leave free theirs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::harness::{Client, Exchange, Gate, Gateway, Setup, Stopwatch, Upstream, patience, until};

/// One limit `l` before an upstream.
fn before(upstream: &Upstream, limit: &str) -> Gateway {
    Setup::default().upstream(upstream).start(&format!(
        "limits:\n  l: {{{limit}}}\nupstreams:\n  \
         api: {{servers: [\"http://{{upstream}}\"], timeouts: {{response: 60s}}}}\nroutes:\n  \
         - {{name: api, match: {{path: /*}}, upstream: api, limits: [l]}}\n"
    ))
}

fn admitted(gateway: &Gateway) -> f64 {
    gateway.metric("sluicegate_limit_decisions_total", &[("limit", "l"), ("outcome", "admitted")])
}

/// Sends a request and waits until it has been decided on, so that the next one comes after it.
fn send_in_order(gateway: &Gateway, target: &str) -> Client {
    let before = admitted(gateway);
    let mut client = gateway.client();
    client.request("GET", target, &[]);
    until("the request is admitted", || (admitted(gateway) > before).then_some(()));
    client
}

/// Five that come together are released a turn after each other, in the order in which they came.
#[test]
fn a_queue_releases_requests_at_the_rate_and_in_order() {
    for (rate, turn) in [("5/s", 200), ("2/s", 500), ("1/s", 1_000)] {
        let turn = Duration::from_millis(turn);
        let (clock, arrivals) = (Stopwatch::start(), Arc::new(Mutex::new(Vec::new())));
        let known = Arc::clone(&arrivals);
        let upstream = Upstream::scripted(move |exchange| {
            known.lock().unwrap().push((clock.elapsed(), exchange.seen.target.clone()));
            exchange.answer(200, &[], b"done");
        });
        let gateway =
            before(&upstream, &format!("key: global, rate: {rate}, burst: 5, algorithm: leaky_bucket"));
        let watch = Stopwatch::start();
        let clients: Vec<Client> = (0..5).map(|at| send_in_order(&gateway, &format!("/{at}"))).collect();
        for mut client in clients {
            assert_eq!(client.response().status, 200);
        }
        let took = watch.elapsed();
        assert!(took >= turn * 4, "the last came {took:?} after the first was sent");
        assert!(took < turn * 4 + patience(3), "{took:?}");
        let (times, order): (Vec<Duration>, Vec<String>) = arrivals.lock().unwrap().drain(..).unzip();
        assert!((0..5).all(|at| times[at as usize] >= turn * at), "nobody is early: {times:?}");
        if order == ["/0", "/1", "/2", "/3", "/4"] {
            return;
        }
        // On a machine that delayed one of them by a turn, the next one may have overtaken it on its way.
        let is_regular = |pair: &[Duration]| (turn / 2..turn * 3 / 2).contains(&(pair[1] - pair[0]));
        assert!(!times.windows(2).all(is_regular), "{order:?} at {times:?}");
    }
    panic!("the machine delays requests by a second and more");
}

/// The queue holds its places and no more; who finds it full is told when there is room.
#[test]
fn a_full_queue_refuses() {
    let upstream = Upstream::answering("done");
    let gateway = before(&upstream, "key: global, rate: 1/h, burst: 3, algorithm: leaky_bucket");
    let _waiting: Vec<Client> = (0..3).map(|_| send_in_order(&gateway, "/")).collect();
    let refused = gateway.get("/");
    assert_eq!(refused.status, 429);
    let wait = refused.number("retry-after");
    assert!((3_500..=3_600).contains(&wait), "{wait}");
    upstream.wait_for(1);
    assert_eq!(upstream.seen().len(), 1, "only the first has been released");
}

/// `max_delay` refuses whoever would have to wait longer.
#[test]
fn a_longer_wait_than_max_delay_is_refused() {
    let upstream = Upstream::answering("done");
    let limit = "key: global, rate: 1/h, burst: 10, max_delay: 90min, algorithm: leaky_bucket";
    let gateway = before(&upstream, limit);
    let _waiting: Vec<Client> = (0..2).map(|_| send_in_order(&gateway, "/")).collect();
    assert_eq!(gateway.get("/").status, 429);
}

/// A client that goes away while it waits gives its place to those behind, who move up.
#[test]
fn a_waiting_client_that_leaves_gives_its_place_back() {
    let upstream = Upstream::answering("done");
    let gateway = before(&upstream, "key: global, rate: 1/5s, burst: 5, algorithm: leaky_bucket");
    let watch = Stopwatch::start();
    assert_eq!(gateway.get("/first").status, 200, "the first is released at once");
    let leave: Vec<Client> = (0..3).map(|_| send_in_order(&gateway, "/leaves")).collect();
    let mut stays = send_in_order(&gateway, "/stays");
    assert_eq!(gateway.get("/").status, 429, "the queue is full");
    drop(leave);
    until("there is room again", || (gateway.remaining("l", "any") > 0).then_some(()));
    assert_eq!(stays.response().status, 200);
    let took = watch.elapsed();
    assert!(took >= Duration::from_secs(5), "not before its turn: {took:?}");
    assert!(took < Duration::from_secs(20), "it moved up from 20 s to 5 s: {took:?}");
    let seen: Vec<String> = upstream.seen().iter().map(|seen| seen.target.clone()).collect();
    assert_eq!(seen, ["/first", "/stays"], "who left was never forwarded");
}

/// How long requests are held is in the metrics, and a request that is not held is not among them.
#[test]
fn the_wait_is_measured() {
    let upstream = Upstream::answering("done");
    let gateway = before(&upstream, "key: global, rate: 1/h, burst: 3, algorithm: leaky_bucket");
    assert_eq!(gateway.get("/").status, 200);
    let _waiting: Vec<Client> = (0..2).map(|_| send_in_order(&gateway, "/")).collect();
    assert_eq!(gateway.metric("sluicegate_limit_delay_seconds_count", &[("limit", "l")]), 2.0);
    let held = gateway.metric("sluicegate_limit_delay_seconds_sum", &[("limit", "l")]);
    assert!((10_000.0..=10_800.0).contains(&held), "an hour and two hours, not {held} s");
}

/// An upstream whose answers wait for the gate: /slow from the start, /half in the middle of the body.
fn gated_upstream(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::scripted(move |exchange: &mut Exchange<'_>| match exchange.seen.target.as_str() {
        "/slow" => {
            gate.wait();
            exchange.answer(200, &[], b"done");
        }
        "/half" => {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf");
            gate.wait();
            exchange.write("half");
        }
        "/breaks" => {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf");
            gate.wait();
            exchange.close();
        }
        "/silent" => exchange.silence(),
        "/reset" => exchange.reset(),
        _ => exchange.answer(200, &[], b"done"),
    })
}

const TWO: &str = "key: global, max: 2, algorithm: concurrency";

/// The statuses of two requests at once: whether both places are free.
fn both_free(gateway: &Gateway) {
    until("both places are free", || (gateway.remaining("l", "any") == 2).then_some(()));
}

/// Above `max` requests in flight the next is refused, and admitted when one has ended.
#[test]
fn no_more_are_in_flight_than_the_limit_says() {
    let gate = Gate::default();
    let upstream = gated_upstream(&gate);
    let gateway = before(&upstream, TWO);
    let mut first = send_in_order(&gateway, "/slow");
    let mut second = send_in_order(&gateway, "/slow");
    let refused = gateway.get("/");
    assert_eq!((refused.status, refused.number("retry-after")), (429, 1));
    assert_eq!((refused.number("x-ratelimit-limit"), refused.number("x-ratelimit-remaining")), (2, 0));
    gate.open();
    assert_eq!([first.response().status, second.response().status], [200, 200]);
    both_free(&gateway);
    assert_eq!(gateway.get("/").status, 200);
}

/// A place is taken until the last byte of the answer, not only until its head.
#[test]
fn a_place_is_taken_until_the_body_has_ended() {
    let gate = Gate::default();
    let upstream = gated_upstream(&gate);
    let gateway = before(&upstream, TWO);
    let mut clients: Vec<Client> = (0..2).map(|_| send_in_order(&gateway, "/half")).collect();
    let heads: Vec<_> = clients.iter_mut().map(|client| client.reader.head().unwrap().unwrap()).collect();
    assert_eq!(gateway.get("/").status, 429, "both have their heads and still hold their places");
    gate.open();
    for (client, head) in clients.iter_mut().zip(heads) {
        assert_eq!(client.reader.body(&head, false).unwrap().0, b"halfhalf");
    }
    both_free(&gateway);
}

/// A client that leaves frees its place, and the connection to the API with it.
#[test]
fn a_client_that_leaves_frees_its_place() {
    for target in ["/silent", "/half"] {
        let upstream = gated_upstream(&Gate::default());
        let gateway = before(&upstream, TWO);
        let clients: Vec<Client> = (0..2).map(|_| send_in_order(&gateway, target)).collect();
        upstream.wait_for(2);
        assert_eq!(gateway.get("/").status, 429);
        drop(clients);
        both_free(&gateway);
        assert_eq!(gateway.statuses(3, "/", &[]), [200; 3]);
    }
}

/// An API that fails frees the place, before its answer and in the middle of it.
#[test]
fn an_api_that_fails_frees_the_place() {
    let gate = Gate::default();
    let upstream = gated_upstream(&gate);
    let gateway = before(&upstream, TWO);
    for _ in 0..5 {
        assert_eq!(gateway.get("/reset").status, 502);
    }
    let mut clients: Vec<Client> = (0..2).map(|_| send_in_order(&gateway, "/breaks")).collect();
    upstream.wait_for(7);
    assert_eq!(gateway.get("/").status, 429);
    gate.open();
    for client in &mut clients {
        assert!(client.try_response().is_err(), "the answer breaks off");
    }
    both_free(&gateway);
}

/// A timeout frees the place.
#[test]
fn an_api_that_is_silent_frees_the_place() {
    let upstream = gated_upstream(&Gate::default());
    let gateway = Setup::default().upstream(&upstream).start(
        "limits: {l: {key: global, max: 1, algorithm: concurrency}}\n\
         upstreams:\n  quick: {servers: [\"http://{upstream}\"], timeouts: {response: 300ms}}\n  \
         api: {servers: [\"http://{upstream}\"]}\nroutes:\n  \
         - {name: silent, match: {path: /silent}, upstream: quick, limits: [l]}\n  \
         - {name: api, match: {path: /*}, upstream: api, limits: [l]}\n",
    );
    assert_eq!(gateway.get("/silent").status, 504);
    assert_eq!(gateway.statuses(3, "/", &[]), [200; 3]);
}

/// Answers without a body, and answers of the gateway itself, free their places too.
#[test]
fn every_kind_of_answer_frees_its_place() {
    let upstream = Upstream::scripted(|exchange| match exchange.seen.target.as_str() {
        "/204" | "/304" => {
            let status = &exchange.seen.target[1..];
            let head = format!("HTTP/1.1 {status} Word\r\n\r\n");
            _ = exchange.write(head);
        }
        _ => exchange.answer(200, &[], b"done"),
    });
    let gateway = Setup::default().upstream(&upstream).start(
        "limits: {l: {key: global, max: 1, algorithm: concurrency}}\n\
         upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes:\n  \
         - {name: own, match: {path: /own}, respond: {status: 200, body: own}, limits: [l]}\n  \
         - {name: api, match: {path: /*}, upstream: api, limits: [l]}\n",
    );
    let mut client = gateway.client();
    for _ in 0..3 {
        for (method, target, status) in [
            ("GET", "/", 200),
            ("HEAD", "/", 200),
            ("GET", "/204", 204),
            ("GET", "/304", 304),
            ("GET", "/own", 200),
        ] {
            assert_eq!(client.ask(method, target, &[]).status, status, "{method} {target}");
        }
        assert_eq!(client.post("/", &[], b"body").status, 200);
    }
    until("the place is free", || (gateway.remaining("l", "any") == 1).then_some(()));
}

/// Whoever has the whole answer can ask again at once, on any connection: the place is free by then.
#[test]
fn a_place_is_free_once_the_answer_has_arrived() {
    let upstream = Upstream::scripted(|exchange| match exchange.seen.target.as_str() {
        "/chunked" => {
            _ = exchange.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n")
        }
        _ => exchange.answer(200, &[], b"done"),
    });
    let gateway = before(&upstream, "key: global, max: 1, algorithm: concurrency");
    let mut clients: Vec<Client> = (0..8).map(|_| gateway.client()).collect();
    for round in 0..100 {
        for target in ["/", "/chunked"] {
            for client in &mut clients {
                assert_eq!(client.get(target).status, 200, "{target} in round {round}");
            }
        }
    }
}

/// Refused by another limit, a request takes no place and no turn.
#[test]
fn a_request_that_is_refused_elsewhere_takes_no_place() {
    let upstream = Upstream::answering("done");
    let gateway = Setup::default().upstream(&upstream).start(
        "limits:\n  place: {key: global, max: 5, algorithm: concurrency}\n  \
         turn: {key: global, rate: 1/h, burst: 9, algorithm: leaky_bucket}\n  few: {key: ip, rate: 1/day}\n\
         upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api, limits: [place, turn, few]}]\n",
    );
    assert_eq!(gateway.statuses(4, "/", &[]), [200, 429, 429, 429]);
    assert_eq!((gateway.remaining("place", "any"), gateway.remaining("turn", "any")), (5, 8));
}

/// A waiting request holds its place of a concurrency limit, and gives both back when its client leaves.
#[test]
fn a_queued_request_holds_its_place_until_its_client_leaves() {
    let upstream = Upstream::answering("done");
    let gateway = Setup::default().upstream(&upstream).start(
        "limits:\n  l: {key: global, rate: 1/h, burst: 9, algorithm: leaky_bucket}\n  \
         place: {key: global, max: 1, algorithm: concurrency}\n\
         upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api, limits: [l, place]}]\n",
    );
    assert_eq!(gateway.get("/").status, 200);
    let waiting = send_in_order(&gateway, "/");
    assert_eq!(gateway.get("/").status, 429);
    drop(waiting);
    let left = || (gateway.remaining("place", "any"), gateway.remaining("l", "any"));
    until("the place and the turn are free", || (left() == (1, 8)).then_some(()));
}
