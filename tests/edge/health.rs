//! Health checks and failures take servers out, never for good and never all of them.

use serde_json::{Value, json};

use crate::harness::{Behavior, Gateway, ReservedPort, Server, Setup, until};

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

/// What /status tells of a server.
fn status_of(gateway: &Gateway, server: &Server) -> Value {
    let name = server.address().to_string();
    let status = gateway.admin_get("/status").json();
    let mut servers = status["upstreams"][0]["servers"].as_array().unwrap().iter();
    servers.find(|shown| shown["server"] == name.as_str()).unwrap().clone()
}

/// Whether a server is up, in the metrics and in /status.
fn healthy(gateway: &Gateway, server: &Server) -> bool {
    let name = server.address().to_string();
    let value = gateway.metric("sluicegate_upstream_healthy", &[("upstream", "api"), ("server", &name)]);
    (value == 1.0) && status_of(gateway, server)["healthy"] == true
}

/// Whether a server gets requests.
fn in_use(gateway: &Gateway, server: &Server) -> bool {
    status_of(gateway, server)["in_use"] == true
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
    let server = status_of(&gateway, &servers[1]);
    assert_eq!((&server["state"], &server["in_use"]), (&json!("down"), &json!(false)));
    let (address, check) = (&server["addresses"][0], &server["addresses"][0]["last_check"]);
    assert_eq!((&address["state"], &address["answers"]), (&json!("down"), &json!(false)));
    assert_eq!(address["trouble"], "health check failed: status 503");
    assert_eq!(
        (&check["ok"], &check["status"], &check["error"]),
        (&json!(false), &json!(503), &json!("status 503"))
    );
    assert!(check["at"].as_str().unwrap().starts_with("20") && check["seconds"].as_f64().unwrap() > 0.0);
    assert!(address["failing_seconds"].as_u64().is_some());
    assert_eq!(gateway.times_logged("is down: its health check failed: status 503"), 1, "{}", gateway.log());

    servers[1].behave(Behavior::Answers);
    until("it is back", || healthy(&gateway, &servers[1]).then_some(()));
    assert!(spread(&gateway, &servers, 20).iter().all(|got| *got > 5));
    let address = &status_of(&gateway, &servers[1])["addresses"][0];
    assert_eq!((&address["trouble"], &address["failing_seconds"]), (&Value::Null, &Value::Null));
    assert_eq!((&address["last_check"]["ok"], &address["last_check"]["status"]), (&json!(true), &json!(200)));
}

/// A single server gets all requests even if nothing listens there; it is down all the same, everywhere.
#[test]
fn a_dead_single_server_is_down() {
    let dead = ReservedPort::new();
    let gateway = Setup::default().value("dead", dead.address).workers(1).start(
        "upstreams: {api: {servers: [\"http://{dead}\"], health: {path: /healthz, every: 100ms, unhealthy: 1}}}\n\
         routes: [{name: api, upstream: api}]\n",
    );
    let server = || gateway.admin_get("/status").json()["upstreams"][0]["servers"][0].clone();
    until("the check tells", || (server()["state"] == "down").then_some(()));
    let name = dead.address.to_string();
    let metric = || gateway.metric("sluicegate_upstream_healthy", &[("upstream", "api"), ("server", &name)]);
    assert_eq!((&server()["healthy"], &server()["in_use"], metric()), (&json!(false), &json!(true), 0.0));
    let address = server()["addresses"][0].clone();
    assert!(address["trouble"].as_str().unwrap().starts_with("health check failed: "), "{address}");
    assert!(address["last_check"]["error"].as_str().unwrap().contains("refused"), "{address}");
    assert_eq!(address["last_check"]["status"], Value::Null);

    // Without health checks, its requests tell.
    gateway
        .reload("upstreams: {api: {servers: [\"http://{dead}\"]}}\nroutes: [{name: api, upstream: api}]\n");
    assert_eq!((&server()["state"], &server()["addresses"][0]["last_check"]), (&json!("up"), &Value::Null));
    assert_eq!(gateway.get("/").status, 502);
    assert_eq!(
        (&server()["state"], &server()["healthy"], &server()["in_use"], metric()),
        (&json!("down"), &json!(false), &json!(true), 0.0)
    );
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
    assert!(servers.iter().all(|server| in_use(&gateway, server)));
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
    while in_use(&gateway, &servers[1]) {
        spread(&gateway, &servers, 2);
    }
    assert!(servers[1].requests() >= 3);
    // It may have been tried again, and failed again, before anybody looked.
    let ejections = || gateway.metric("sluicegate_upstream_ejections_total", &[("upstream", "api")]) as usize;
    assert!(ejections() >= 1);
    until("it is tried again", || in_use(&gateway, &servers[1]).then_some(()));
    assert!(!healthy(&gateway, &servers[1]), "it has not answered yet");
    let (failed, before) = (servers[1].requests(), ejections());
    until("one failure is enough now", || {
        spread(&gateway, &servers, 2);
        (!in_use(&gateway, &servers[1])).then_some(())
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
    assert_eq!(servers.iter().filter(|server| in_use(&gateway, server)).count(), 1);
    assert!(!servers.iter().any(|server| healthy(&gateway, server)));
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
