//! Health checks and failures take servers out, never for good and never all of them.

use crate::harness::{Behavior, Gateway, Server, until};

/// Two servers, and what else the upstream has.
fn two(fields: &str) -> String {
    format!(
        "upstreams: {{api: {{servers: [\"http://{{0}}\", \"http://{{1}}\"], {fields}}}}}\n\
         routes: [{{name: api, match: {{path: /*}}, upstream: api}}]\n"
    )
}

/// Servers are asked all the time.
const ASKED: &str =
    "health: {path: \"/healthz?x=1\", host: h.test, every: 100ms, timeout: 9s, healthy: 2, unhealthy: 2}";

fn healthy(gateway: &Gateway, server: &Server) -> bool {
    let name = server.address().to_string();
    let value = gateway.metric("sluicegate_upstream_healthy", &[("upstream", "api"), ("server", &name)]);
    let status = gateway.admin_get("/status").json();
    let servers = status["upstreams"][0]["servers"].as_array().unwrap().clone();
    let told = servers.iter().find(|told| told["server"] == name.as_str()).unwrap();
    (value == 1.0) && told["healthy"] == true
}

/// How many of some requests each of both servers gets; all have to be answered.
fn spread(gateway: &Gateway, servers: &[Server], count: usize) -> [usize; 2] {
    let before = [servers[0].requests(), servers[1].requests()];
    let statuses = gateway.statuses(count, "/", &[]);
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    [servers[0].requests() - before[0], servers[1].requests() - before[1]]
}

/// A server that fails its health check gets no requests until it passes it again.
#[test]
fn servers_are_health_checked() {
    let (servers, setup) = Server::several(2);
    let gateway = setup.workers(2).start(&two(ASKED));
    until("all are asked", || servers.iter().all(|server| server.health_checks() > 2).then_some(()));
    assert!(servers.iter().all(|server| healthy(&gateway, server)));
    let asked = servers[0].upstream.seen().into_iter().find(|seen| seen.target == "/healthz?x=1").unwrap();
    assert_eq!((asked.method.as_str(), asked.head.one("host")), ("GET", Some("h.test")));

    servers[1].behave(Behavior::Unhealthy);
    until("it is out", || (!healthy(&gateway, &servers[1])).then_some(()));
    assert_eq!(spread(&gateway, &servers, 20), [20, 0]);
    assert_eq!(gateway.times_logged("failed its health check: status 503"), 1, "{}", gateway.log());

    servers[1].behave(Behavior::Answers);
    until("it is back", || healthy(&gateway, &servers[1]).then_some(()));
    assert!(spread(&gateway, &servers, 20).iter().all(|got| *got > 5));
}

/// Who is out stays out over a reload that changes something else, and comes back with one that asks no more.
#[test]
fn a_reload_keeps_servers_out() {
    let (servers, setup) = Server::several(2);
    let gateway = setup.workers(1).start(&two(ASKED));
    servers[0].behave(Behavior::Unhealthy);
    until("it is out", || (!healthy(&gateway, &servers[0])).then_some(()));
    gateway.reload(&two(&format!("{ASKED}, balance: random, timeouts: {{response: 9s}}")));
    assert_eq!(spread(&gateway, &servers, 10), [0, 10]);
    gateway.reload(&two("balance: round_robin"));
    assert_eq!(spread(&gateway, &servers, 10), [5, 5]);
}

/// If nobody is well, all get requests: answers of the sick are better than none.
#[test]
fn unhealthy_servers_are_used_when_all_are() {
    let (servers, setup) = Server::several(2);
    let gateway = setup.workers(1).start(&two(ASKED));
    servers.iter().for_each(|server| server.behave(Behavior::Unhealthy));
    until("both are out", || servers.iter().all(|server| !healthy(&gateway, server)).then_some(()));
    assert_eq!(spread(&gateway, &servers, 20), [10, 10]);
    assert_eq!(gateway.metric("sluicegate_upstream_panics_total", &[("upstream", "api")]), 20.0);
}

/// Failures in a row take a server out, for longer each time; then it is tried again, and back when it serves.
#[test]
fn failures_take_a_server_out() {
    let (servers, setup) = Server::several(2);
    let gateway = setup.workers(2).start(&two("ejection: {failures: 3, for: 500ms, max: 30s}"));
    servers[1].behave(Behavior::Disconnects);
    // Whatever it breaks is tried on the other, so nobody notices.
    while healthy(&gateway, &servers[1]) {
        spread(&gateway, &servers, 2);
    }
    assert!(servers[1].requests() >= 3);
    // It may have been tried again, and failed again, before anybody looked.
    let ejections = || gateway.metric("sluicegate_upstream_ejections_total", &[("upstream", "api")]) as usize;
    assert!(ejections() >= 1);
    until("it is tried again", || healthy(&gateway, &servers[1]).then_some(()));
    let (failed, before) = (servers[1].requests(), ejections());
    until("one failure is enough now", || {
        spread(&gateway, &servers, 2);
        (!healthy(&gateway, &servers[1])).then_some(())
    });
    let more = ejections() - before;
    assert!(servers[1].requests() <= failed + 2 * more, "{} and {failed}, {more}", servers[1].requests());
    servers[1].behave(Behavior::Answers);
    until("it serves again", || (spread(&gateway, &servers, 4)[1] == 2).then_some(()));
    assert!(healthy(&gateway, &servers[1]));
}

/// The last one is never out, however it fails; nor are more than the share that may be.
#[test]
fn the_last_server_is_not_ejected() {
    let (servers, setup) = Server::several(2);
    let gateway = setup.workers(1).start(&two("ejection: {failures: 1, for: 60s, share: 100%}, retries: 0"));
    servers.iter().for_each(|server| server.behave(Behavior::Disconnects));
    assert_eq!(gateway.statuses(10, "/", &[]), [502; 10]);
    assert_eq!(servers.iter().filter(|server| healthy(&gateway, server)).count(), 1);
}

/// Statuses count as failures where the file says so, and nowhere else.
#[test]
fn statuses_may_be_failures() {
    let (servers, setup) = Server::several(2);
    servers[0].behave(Behavior::Overloaded);
    let gateway = setup.workers(1).start(&two("ejection: {failures: 2, for: 60s}"));
    let mut statuses = gateway.statuses(20, "/", &[]);
    statuses.sort_unstable();
    assert_eq!(statuses, [[200; 10], [503; 10]].concat());
    gateway.reload(&two("ejection: {failures: 2, for: 60s, status: [503]}"));
    let statuses = gateway.statuses(20, "/", &[]);
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 2);
    assert!(!healthy(&gateway, &servers[0]));
    // With ejections off it is back at once.
    gateway.reload(&two("ejection: off"));
    until("it is back", || healthy(&gateway, &servers[0]).then_some(()));
}
