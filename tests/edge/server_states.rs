//! Servers that an operator drains or puts into maintenance.

use serde_json::{Value, json};

use crate::harness::{Behavior, Client, Gateway, Server, until};

/// The servers `{0}` and `{1}`, and what else the upstream has.
fn two(fields: &str) -> String {
    format!(
        "upstreams:\n  api: {{timeouts: {{connect: 1h, response: 1h}}, servers: [\"http://{{0}}\", \"http://{{1}}\"], {fields}}}\n\
         routes: [{{name: api, match: {{path: /*}}, upstream: api}}]\n"
    )
}

fn path(server: &Server) -> String {
    format!("/upstreams/api/servers/{}/state", server.address())
}

#[track_caller]
fn set(gateway: &Gateway, server: &Server, state: &str) -> Value {
    let answer = gateway.admin_put(&path(server), &json!({ "state": state }).to_string());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let shown = answer.json();
    assert_eq!((&shown["upstream"], &shown["state"]), (&json!("api"), &json!(state)));
    shown
}

/// What /status tells of a server.
fn status_of(gateway: &Gateway, server: &Server) -> Value {
    let name = server.address().to_string();
    let status = gateway.admin_get("/status").json();
    let mut servers = status["upstreams"][0]["servers"].as_array().unwrap().iter();
    servers.find(|shown| shown["server"] == name.as_str()).unwrap().clone()
}

fn ask(gateway: &Gateway, target: &str) -> Client {
    let mut client = gateway.client();
    client.request("GET", target, &[]);
    client
}

fn pending(gateway: &Gateway, count: usize) {
    let waiting = || gateway.metric("sluicegate_upstream_pending", &[("upstream", "api")]);
    until("so many wait", || (waiting() == count as f64).then_some(()));
}

/// How many of some requests each server gets; all have to be answered.
#[track_caller]
fn spread(gateway: &Gateway, servers: &[Server], count: usize) -> Vec<usize> {
    let before: Vec<_> = servers.iter().map(Server::requests).collect();
    let statuses = gateway.statuses(count, "/", &[]);
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    servers.iter().zip(before).map(|(server, before)| server.requests() - before).collect()
}

/// A drained server gets no new requests, whatever the balancing; those in flight end as usual.
#[test]
fn a_drained_server_finishes_its_requests_and_gets_no_others() {
    for balance in ["round_robin", "least_requests", "random", "{hash: ip}"] {
        let (servers, setup) = Server::several(2);
        let gateway = setup.workers(2).start(&two(&format!("balance: {balance}")));
        let held: Vec<Client> = (0..2).map(|_| ask(&gateway, "/slow")).collect();
        let busy =
            until("a request is in flight", || servers.iter().position(|server| server.requests() > 0));
        let (drained, other) = (&servers[busy], &servers[1 - busy]);
        let before = drained.requests();
        let in_flight = set(&gateway, drained, "drain")["in_flight"].as_u64().unwrap();
        assert!(in_flight >= 1, "{balance}");
        let metric = |name: &str| {
            let server = drained.address().to_string();
            gateway.metric(name, &[("upstream", "api"), ("server", &server)])
        };
        assert_eq!(gateway.statuses(10, "/", &[]), [200; 10]);
        // The second slow request may have been on its way when the first was seen.
        assert!(drained.requests() <= before + 1 && other.requests() >= 10, "{balance}");
        let server = status_of(&gateway, drained);
        assert_eq!(
            (&server["state"], &server["healthy"], &server["in_use"]),
            (&json!("drain"), &json!(false), &json!(false))
        );
        assert_eq!(server["addresses"][0]["state"], "drain");
        assert_eq!(
            (metric("sluicegate_upstream_healthy"), metric("sluicegate_upstream_server_ready")),
            (0.0, 0.0)
        );

        servers.iter().for_each(|server| server.gate.open());
        for mut client in held {
            assert_eq!(client.response().status, 200, "{balance}");
        }
        let in_flight = || gateway.admin_get(&path(drained)).json()["in_flight"].as_u64();
        until("it has no request left", || (in_flight() == Some(0)).then_some(()));

        set(&gateway, drained, "ready");
        assert_eq!(
            (status_of(&gateway, drained)["state"].clone(), metric("sluicegate_upstream_server_ready")),
            (json!("up"), 1.0)
        );
        if balance != "{hash: ip}" {
            let before = drained.requests();
            assert_eq!(gateway.statuses(40, "/", &[]), [200; 40]);
            assert!(drained.requests() > before, "{balance}");
        }
    }
}

/// Requests that wait get a server that becomes ready, and none that is drained.
#[test]
fn waiting_requests_follow_the_states() {
    let (servers, setup) = Server::several(2);
    let gateway = setup.workers(1).start(&two("max_connections: 1"));
    set(&gateway, &servers[1], "maintenance");
    let _first = ask(&gateway, "/slow");
    servers[0].upstream.wait_for(1);
    let mut waits = ask(&gateway, "/slow");
    pending(&gateway, 1);
    set(&gateway, &servers[1], "ready");
    servers[1].upstream.wait_for(1);

    // Both have a request in flight. The place that becomes free on the drained one is not used.
    let mut late = ask(&gateway, "/");
    pending(&gateway, 1);
    set(&gateway, &servers[0], "drain");
    servers[0].gate.open();
    let in_flight = || gateway.admin_get(&path(&servers[0])).json()["in_flight"].as_u64();
    until("its request has ended", || (in_flight() == Some(0)).then_some(()));
    pending(&gateway, 1);
    servers[1].gate.open();
    assert_eq!(waits.response().status, 200);
    assert_eq!(late.response().text(), "1");
    assert_eq!(servers[0].requests(), 1);
}

/// If no server is ready, requests are answered with 503 and a reason, also those that wait.
#[test]
fn without_a_ready_server_requests_are_refused() {
    let (servers, setup) = Server::several(2);
    let gateway = setup.workers(1).start(&two("max_connections: 1"));
    set(&gateway, &servers[1], "drain");
    let _held = ask(&gateway, "/slow");
    servers[0].upstream.wait_for(1);
    let mut waits = ask(&gateway, "/");
    pending(&gateway, 1);
    set(&gateway, &servers[0], "maintenance");
    let refused = [waits.response(), gateway.get("/")];
    for answer in &refused {
        let problem = answer.problem();
        assert_eq!((answer.status, &problem["reason"]), (503, &json!("upstream_drained")), "{problem}");
    }
    let outcome = [("upstream", "api"), ("outcome", "drained")];
    assert_eq!(gateway.metric("sluicegate_upstream_requests_total", &outcome), 2.0);
    assert_eq!(gateway.metric("sluicegate_upstream_panics_total", &[("upstream", "api")]), 0.0);
    let reason = [("route", "api"), ("reason", "upstream_drained")];
    assert_eq!(gateway.metric("sluicegate_refusals_total", &reason), 2.0);
    servers[0].gate.open();
}

/// A drained server is no other server for a retry, and the last ready one is neither ejected nor left out.
#[test]
fn retries_and_ejections_know_the_states() {
    let (servers, setup) = Server::several(2);
    let gateway = setup.workers(1).start(&two("retries: 3, ejection: {failures: 1, for: 1h, share: 100%}"));
    set(&gateway, &servers[1], "drain");
    servers[0].behave(Behavior::Disconnects);
    assert_eq!(gateway.statuses(3, "/", &[]), [502; 3]);
    assert_eq!(servers[1].requests(), 0);
    assert_eq!(status_of(&gateway, &servers[0])["in_use"], true);
    assert_eq!(gateway.metric("sluicegate_upstream_ejections_total", &[("upstream", "api")]), 0.0);
    servers[0].behave(Behavior::Answers);
    assert_eq!(spread(&gateway, &servers, 3), [3, 0]);

    // An ejected server that is drained and ready again has another chance.
    set(&gateway, &servers[1], "ready");
    servers[0].behave(Behavior::Disconnects);
    until("it is ejected", || {
        gateway.get("/");
        (status_of(&gateway, &servers[0])["state"] == "ejected").then_some(())
    });
    servers[0].behave(Behavior::Answers);
    set(&gateway, &servers[0], "drain");
    set(&gateway, &servers[0], "ready");
    let got = spread(&gateway, &servers, 10);
    assert!(got[0] > 0, "{got:?}");
}

/// With hash affinity only the keys of the drained server move, and come back.
#[test]
fn affinity_moves_only_the_keys_of_a_drained_server() {
    let (servers, setup) = Server::several(3);
    let gateway = setup.workers(1).start(
        "upstreams:\n  api: {servers: [\"http://{0}\", \"http://{1}\", \"http://{2}\"], balance: {hash: \"header:x-tenant\"}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api}]\n",
    );
    let places = || -> Vec<String> {
        (0..30).map(|key: u32| gateway.ask("GET", "/", &[("x-tenant", &key.to_string())]).text()).collect()
    };
    let before = places();
    assert!(["0", "1", "2"].iter().all(|server| before.iter().any(|place| place == server)), "{before:?}");
    set(&gateway, &servers[1], "drain");
    let meanwhile = places();
    for (was, is) in before.iter().zip(&meanwhile) {
        assert!(if was == "1" { is != "1" } else { was == is }, "{before:?} {meanwhile:?}");
    }
    set(&gateway, &servers[1], "ready");
    assert_eq!(places(), before);
}

/// A reload keeps the state of servers that stay; one that comes back is ready.
#[test]
fn reloads_keep_the_states() {
    let (servers, setup) = Server::several(2);
    let gateway = setup.workers(2).start(&two("retries: 0"));
    set(&gateway, &servers[0], "maintenance");
    gateway.reload(&two("retries: 1, balance: random"));
    assert_eq!(status_of(&gateway, &servers[0])["state"], "maintenance");
    assert_eq!(spread(&gateway, &servers, 10), [0, 10]);
    let alone = "upstreams: {api: {servers: [\"http://{1}\"]}}\nroutes: [{name: api, match: {path: /*}, upstream: api}]\n";
    gateway.reload(alone);
    let gone = gateway.admin_get(&path(&servers[0]));
    assert_eq!(gone.status, 404);
    gateway.reload(&two("balance: round_robin"));
    assert_eq!(gateway.admin_get(&path(&servers[0])).json()["state"], "ready");
    assert!(spread(&gateway, &servers, 20).iter().all(|got| *got > 0));
}

/// Health checks of a drained server go on; one in maintenance gets none.
#[test]
fn maintenance_stops_health_checks() {
    let (servers, setup) = Server::several(2);
    let gateway =
        setup.workers(1).start(&two("health: {path: /healthz, every: 100ms, timeout: 9s, unhealthy: 1}"));
    set(&gateway, &servers[0], "maintenance");
    set(&gateway, &servers[1], "drain");
    let checks = |server: &Server, more: usize| {
        let from = server.health_checks();
        until("it is checked", || (server.health_checks() >= from + more).then_some(()));
    };
    checks(&servers[1], 2); // one check of the other may still be under way
    let before = servers[0].health_checks();
    checks(&servers[1], 5);
    assert_eq!(servers[0].health_checks(), before);
    servers[1].behave(Behavior::Unhealthy);
    until("the check of the drained server fails", || {
        let address = &status_of(&gateway, &servers[1])["addresses"][0];
        (address["answers"] == false && address["state"] == "drain").then_some(())
    });
    set(&gateway, &servers[0], "ready");
    checks(&servers[0], 1);
    set(&gateway, &servers[1], "ready");
    assert_eq!(status_of(&gateway, &servers[1])["state"], "down", "what its health checks have shown holds");
    assert_eq!(spread(&gateway, &servers, 5), [5, 0]);
}

/// Who has changed a state is recorded, but not who has changed nothing; wrong requests are told what is right.
#[test]
fn changes_are_recorded_and_mistakes_explained() {
    let (servers, setup) = Server::several(2);
    let gateway = setup.workers(1).start(&format!("access_log: {{path: access.log}}\n{}", two("retries: 0")));
    let name = servers[0].address().to_string();
    set(&gateway, &servers[0], "ready");
    set(&gateway, &servers[0], "drain");
    set(&gateway, &servers[0], "drain");
    let line = until("it is recorded", || {
        let text = std::fs::read_to_string(gateway.path("access.log")).ok()?;
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert!(lines.len() < 2, "{lines:?}");
        lines.into_iter().next()
    });
    for (field, value) in [
        ("kind", "server_state"),
        ("actor", "admin"),
        ("client", "127.0.0.1"),
        ("upstream", "api"),
        ("server", &name),
        ("before", "ready"),
        ("after", "drain"),
    ] {
        assert_eq!(line[field], value, "{line}");
    }
    let logged = format!("admin (127.0.0.1) set server {name} of upstream api from ready to drain");
    assert_eq!(gateway.times_logged(&logged), 1, "{}", gateway.log());

    let put = |path: &str, body: &str| {
        let answer = gateway.admin_put(path, body);
        (answer.status, answer.json()["detail"].as_str().unwrap().to_owned())
    };
    let (right, good) = (path(&servers[0]), "{\"state\": \"ready\"}");
    let both = servers.iter().map(|server| server.address().to_string()).collect::<Vec<_>>().join(", ");
    assert_eq!(
        put("/upstreams/none/servers/a/state", good),
        (404, "there is no upstream called `none`; upstreams: api".to_owned())
    );
    assert_eq!(
        put("/upstreams/api/servers/a%3A1/state", good),
        (404, format!("the upstream `api` has no server `a:1`; its servers: {both}"))
    );
    assert_eq!(
        put(&right, "{\"state\": \"off\"}"),
        (422, "`state` is one of ready, drain, maintenance".to_owned())
    );
    for wrong in ["", "{}", "drain", "{\"state\": \"ready\", \"for\": 1}"] {
        assert_eq!(put(&right, wrong).0, 400, "{wrong}");
    }
    assert_eq!(put(&right, &" ".repeat(2_000)).0, 413);
    assert_eq!(gateway.admin("PUT", &right, &[("content-length", "0")]).status, 401);
    let other = gateway.admin_change("DELETE", &right);
    assert_eq!((other.status, other.header("allow")), (405, Some("GET, HEAD, PUT")));
    assert_eq!(gateway.admin_get(&right).json()["state"], "drain");
}
