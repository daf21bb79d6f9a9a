//! SIGTERM: requests in flight are answered, new connections are refused, and the process ends within the configured
//! time.

use std::time::Duration;

use crate::harness::client::refuses;
use crate::harness::{Client, Gate, Gateway, Setup, Stopwatch, Upstream, deadline, patience, until};

const FILE: &str =
    "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, upstream: api}]\n";

/// An upstream whose answers to /slow and /half wait for the gate.
fn gated_upstream(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::scripted(move |exchange| match exchange.seen.target.as_str() {
        "/slow" => {
            gate.wait();
            exchange.answer(200, &[], b"done");
        }
        "/half" => {
            exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf");
            gate.wait();
            exchange.write("done");
        }
        _ => exchange.answer(200, &[], b"done"),
    })
}

/// A request in flight is answered whole, new connections are refused, idle ones closed, and the code is 0.
#[test]
fn requests_in_flight_are_answered_before_it_ends() {
    for signal in ["TERM", "INT"] {
        let gate = Gate::default();
        let upstream = gated_upstream(&gate);
        let mut gateway = Gateway::before(&upstream, FILE);
        let (mut idle, mut slow, mut half) = (gateway.client(), gateway.client(), gateway.client());
        assert_eq!(idle.get("/").status, 200);
        slow.request("GET", "/slow", &[]);
        half.request("GET", "/half", &[]);
        let head = half.reader.head().unwrap().unwrap();
        upstream.wait_for(3);

        gateway.signal(signal);
        refuses(gateway.edge);
        assert!(idle.is_closed(), "an idle connection is closed");
        assert_eq!(gateway.admin_get("/readyz").status, 503, "no balancer sends anybody any more");
        assert_eq!(gateway.admin_get("/healthz").status, 200, "and none restarts it");
        assert_eq!(gateway.admin_get("/status").json()["draining"], true);
        gate.open();
        assert_eq!(slow.response().text(), "done");
        assert!(slow.is_closed());
        assert_eq!(half.reader.body(&head, false).unwrap().0, b"halfdone");
        assert_eq!(gateway.ended(deadline()).code(), Some(0), "{signal}");
        refuses(gateway.admin);
    }
}

/// Twenty slow requests and a stream that runs are all answered whole.
#[test]
fn twenty_slow_requests_and_a_stream_complete() {
    let gate = Gate::default();
    let upstream = gated_upstream(&gate);
    let mut gateway = Gateway::before(&upstream, FILE);
    let mut slow: Vec<Client> = (0..20).map(|_| gateway.client()).collect();
    slow.iter_mut().for_each(|client| _ = client.request("GET", "/slow", &[]));
    let mut stream = gateway.client();
    stream.request("GET", "/half", &[]);
    let head = stream.reader.head().unwrap().unwrap();
    upstream.wait_for(21);
    gateway.signal("TERM");
    refuses(gateway.edge);
    gate.open();
    for client in &mut slow {
        let answer = client.response();
        assert_eq!((answer.text(), answer.header("connection")), ("done".to_owned(), Some("close")));
        assert!(client.is_closed());
    }
    assert_eq!(stream.reader.body(&head, false).unwrap().0, b"halfdone");
    assert_eq!(gateway.ended(deadline()).code(), Some(0));
}

/// During `delay` it says that it is not ready and takes in whoever comes all the same, so that balancers notice first.
#[test]
fn it_is_not_ready_before_it_refuses() {
    let upstream = Upstream::answering("done");
    let start = |delay: &str| {
        Gateway::before(&upstream, &format!("drain: {{delay: {delay}, deadline: 10min}}\n{FILE}"))
    };
    let gateway = start("1h");
    let mut kept = gateway.client();
    assert_eq!(kept.get("/").status, 200);
    gateway.signal("TERM");
    until("it is not ready", || (gateway.admin_get("/readyz").status == 503).then_some(()));
    let new = gateway.get("/");
    assert_eq!((new.status, new.header("connection")), (200, None), "served as ever");
    assert_eq!(kept.get("/").status, 200);

    let mut gateway = start("1s");
    let mut kept = gateway.client();
    assert_eq!(kept.get("/").status, 200);
    let watch = Stopwatch::start();
    gateway.signal("TERM");
    refuses(gateway.edge);
    assert!(watch.elapsed() >= Duration::from_secs(1), "{:?}", watch.elapsed());
    assert!(kept.is_closed());
    assert_eq!(gateway.ended(deadline()).code(), Some(0), "nobody was left");
}

/// Told again during `delay`, it waits for nobody.
#[test]
fn a_second_signal_ends_the_delay() {
    let mut gateway = Gateway::start("drain: {delay: 1h}\nroutes: [{name: all, respond: {status: 200}}]\n");
    gateway.signal("TERM");
    until("it is not ready", || (gateway.admin_get("/readyz").status == 503).then_some(()));
    gateway.signal("TERM");
    assert_eq!(gateway.ended(deadline()).code(), Some(0));
}

/// SIGUSR1 is for log files: it ends nothing.
#[test]
fn sigusr1_ends_nothing() {
    let gateway = Gateway::start("routes: [{name: all, respond: {status: 200}}]\n");
    gateway.signal("USR1");
    let before = gateway.generation();
    gateway.signal("HUP"); // behind the other one: when this is seen, that was
    until("SIGHUP is seen", || (gateway.generation() > before).then_some(()));
    assert_eq!(gateway.get("/").status, 200);
}

/// Without anything in flight it ends at once.
#[test]
fn an_idle_gateway_ends_at_once() {
    let upstream = Upstream::answering("done");
    let slow = "drain: 10min\ntimeouts: {head: 10min, idle: 10min}\n";
    let mut gateway = Gateway::before(&upstream, &format!("{slow}{FILE}"));
    let mut clients: Vec<Client> = (0..10).map(|_| gateway.client()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
    let _silent: Vec<Client> = (0..3).map(|_| gateway.client()).collect();
    gateway.signal("TERM");
    assert_eq!(gateway.ended(deadline()).code(), Some(0));
}

/// A request that does not end is not waited for beyond the `drain` time.
#[test]
fn it_does_not_wait_longer_than_it_may() {
    let upstream = gated_upstream(&Gate::default());
    let mut gateway = Gateway::before(&upstream, &format!("drain: 1s\n{FILE}"));
    let mut slow = gateway.client();
    slow.request("GET", "/slow", &[]);
    upstream.wait_for(1);
    let watch = Stopwatch::start();
    gateway.signal("TERM");
    let status = gateway.ended(deadline());
    // Not the usual 30 s.
    assert!((Duration::from_millis(950)..patience(6)).contains(&watch.elapsed()), "{:?}", watch.elapsed());
    assert_eq!(status.code(), Some(0), "it ended by itself");
    assert_eq!(gateway.times_logged("1 connections did not end in time"), 1, "{}", gateway.log());
    assert!(slow.is_closed());
}

/// Told twice, it waits for nobody.
#[test]
fn a_second_signal_ends_it_at_once() {
    let upstream = gated_upstream(&Gate::default());
    let mut gateway = Gateway::before(&upstream, &format!("drain: 10min\n{FILE}"));
    let mut slow = gateway.client();
    slow.request("GET", "/slow", &[]);
    upstream.wait_for(1);
    gateway.signal("TERM");
    until("it drains", || (gateway.admin_get("/readyz").status == 503).then_some(()));
    gateway.signal("TERM");
    gateway.ended(deadline());
}

/// Requests that a leaky bucket holds have been admitted: they are released and answered.
#[test]
fn waiting_requests_are_answered_before_it_ends() {
    let upstream = Upstream::answering("done");
    // With two workers, one may read its clock earlier than the other and decide later; its request can then miss the
    // fifth place by that moment.
    let mut gateway = Setup::default().upstream(&upstream).workers(1).start(
        "limits: {l: {key: global, rate: 5/s, algorithm: leaky_bucket}}\n\
         upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{name: api, upstream: api, limits: [l]}]\n",
    );
    let mut clients: Vec<Client> = (0..5).map(|_| gateway.client()).collect();
    clients.iter_mut().for_each(|client| _ = client.request("GET", "/", &[]));
    until("all are admitted", || {
        let admitted =
            gateway.metric("sluicegate_limit_decisions_total", &[("limit", "l"), ("outcome", "admitted")]);
        (admitted == 5.0).then_some(())
    });
    gateway.signal("TERM");
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    assert_eq!(gateway.ended(deadline()).code(), Some(0));
}

/// Stops the gateway, sends requests on `clients`, tells it to end, lets it go on: all have to be answered.
fn all_are_answered(mut gateway: Gateway, mut clients: Vec<Client>) {
    gateway.signal("STOP");
    clients.iter_mut().for_each(|client| _ = client.request("GET", "/", &[]));
    gateway.signal("TERM");
    gateway.signal("CONT");
    for (at, client) in clients.iter_mut().enumerate() {
        let answer = client.try_response().map(|answer| answer.status);
        assert!(matches!(answer, Ok(200)), "client {at}: {answer:?}");
    }
    assert_eq!(gateway.ended(deadline()).code(), Some(0));
}

/// The first request of a connection that was sent before the signal is answered, also if the gateway had not
/// looked at it yet.
#[test]
fn a_first_request_that_was_sent_before_the_signal_is_answered() {
    let upstream = Upstream::answering("done");
    for _ in 0..10 {
        let gateway = Gateway::before(&upstream, FILE);
        let clients = (0..20).map(|_| gateway.client()).collect();
        all_are_answered(gateway, clients);
    }
}

/// So is a request on a connection that was kept.
#[test]
fn a_further_request_that_was_sent_before_the_signal_is_answered() {
    let upstream = Upstream::answering("done");
    for _ in 0..10 {
        let gateway = Gateway::before(&upstream, FILE);
        let mut clients: Vec<Client> = (0..20).map(|_| gateway.client()).collect();
        clients.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
        all_are_answered(gateway, clients);
    }
}
