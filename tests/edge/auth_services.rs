//! What services that say who asks have in common: one client's answers and the load of many change nothing for others.

use crate::harness::{Exchange, Gate, Gateway, Setup, Upstream, in_parallel, until};

const SERVICES: [(&str, &str); 2] = [
    ("check", "check: {url: 'http://{service}/', MORE}"),
    (
        "introspection",
        "introspection: {url: 'http://{service}/', client_id: a, client_secret: b, ttl: 0s, stale: 0s, MORE}",
    ),
];

/// Writes an answer that cannot be used.
type Provoke = fn(&mut Exchange<'_>);

fn start(service: &Upstream, auth: &str, more: &str) -> Gateway {
    let rules = "auth: {AUTH}\nlimits: {per-user: {key: KEY, rate: 1000/h}}\n\
                 routes: [{respond: {status: 200}, limits: [per-user]}]\n";
    let key = if auth.starts_with("check") { "consumer | ip" } else { "user | ip" };
    let text = rules.replace("KEY", key).replace("AUTH", auth).replace("MORE", more);
    Setup::default().value("service", service.address).start(&text)
}

fn ask(gateway: &Gateway, token: &str) -> u16 {
    gateway.ask("GET", "/", &[("authorization", &format!("Bearer {token}"))]).status
}

/// Answers that either service understands: the request is admitted, and its token is active.
fn admit(exchange: &mut Exchange<'_>) {
    exchange.answer(200, &[], br#"{"active": true, "sub": "ada"}"#);
}

/// An answer that cannot be used is a matter of one request, and does not make the service away for others.
#[test]
fn what_one_client_provokes_concerns_nobody_else() {
    let both: [(&str, Provoke); 3] = [
        ("400", |exchange| exchange.answer(400, &[], b"")),
        ("500", |exchange| exchange.answer(500, &[], b"")),
        ("no HTTP", |exchange| {
            exchange.write("HTTP/1.1 2OO\r\n\r\n");
            exchange.close();
        }),
    ];
    let check: [(&str, Provoke); 3] = [
        ("a space in a name", |exchange| exchange.answer(200, &[("x-sluicegate-consumer", "a b")], b"")),
        ("a plan twice", |exchange| {
            exchange.answer(200, &[("x-sluicegate-plan", "a"), ("x-sluicegate-plan", "b")], b"");
        }),
        ("a time that is none", |exchange| exchange.answer(200, &[("x-sluicegate-cache", "soon")], b"")),
    ];
    let introspection: [(&str, Provoke); 2] = [
        ("70 KiB", |exchange| exchange.answer(200, &[], &[b' '; 70 << 10])),
        ("no JSON", |exchange| exchange.answer(200, &[], b"<html>")),
    ];
    for ((name, auth), own) in SERVICES.into_iter().zip([&check[..], &introspection[..]]) {
        for &(case, provoke) in both.iter().chain(own) {
            let service = Upstream::scripted(move |exchange: &mut Exchange<'_>| {
                let body = exchange.body().unwrap();
                let header = exchange.seen.head.one("authorization");
                match header.is_some_and(|token| token.contains("odd")) || body.starts_with(b"token=odd") {
                    true => provoke(exchange),
                    false => admit(exchange),
                }
            });
            let gateway = start(&service, auth, "timeout: 9s");
            for token in 0..10 {
                assert_eq!(ask(&gateway, &format!("odd{token}")), 503, "{name}: {case}");
            }
            let trouble = || gateway.admin_get("/status").json()[name]["trouble"].clone();
            assert!(trouble().is_string(), "{name}: {case}");
            assert_eq!(gateway.times_logged("an answer cannot be used"), 1, "{name}: {case}");
            assert!(!gateway.log().contains("does not say who asks"), "{name}: {case}");
            assert_eq!(ask(&gateway, "even"), 200, "{name}: {case}");
            assert!(trouble().is_null(), "{name}: {case}");
            assert_eq!(service.seen().len(), 11, "{name}: {case}: each was asked about");
        }
    }
}

#[test]
fn requests_wait_for_their_turn() {
    for (name, auth) in SERVICES {
        for policy in ["refuse", "anonymous"] {
            let gate = Gate::default();
            let waits = gate.clone();
            let service = Upstream::scripted(move |exchange: &mut Exchange<'_>| {
                let _ = exchange.body();
                waits.wait();
                admit(exchange);
            });
            let more = format!("timeout: 9s, max_in_flight: 2, on_failure: {policy}");
            let gateway = start(&service, auth, &more);
            let statuses = std::thread::scope(|scope| {
                let asking = scope.spawn(|| in_parallel(10, |number| ask(&gateway, &format!("t{number}"))));
                service.wait_for(2);
                until("all requests wait", || {
                    let open = gateway.admin_get("/status").json()["connections"].as_u64();
                    (open >= Some(10)).then_some(())
                });
                assert_eq!(service.seen().len(), 2, "{name}, {policy}");
                gate.open();
                asking.join().unwrap()
            });
            assert_eq!((statuses, service.seen().len()), (vec![200; 10], 10), "{name}, {policy}");
        }
    }
}

/// A request whose turn does not come is refused, whatever `on_failure` says of a service that is away.
#[test]
fn nobody_passes_because_of_others() {
    for (name, auth) in SERVICES {
        let service = Upstream::scripted(|exchange| exchange.silence());
        let gateway = start(&service, auth, "timeout: 1s, max_in_flight: 1, on_failure: anonymous");
        // Fewer than the failures in a row after which nobody is asked.
        let statuses = in_parallel(4, |number| ask(&gateway, &format!("t{number}")));
        let passed = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(passed, service.seen().len(), "{name}: those without an answer passed: {statuses:?}");
        assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{name}: {statuses:?}");
    }
}
