//! Who the client is: what proxies say of it, in every header and spelling; and tiers of IPv6 networks.

use crate::harness::{Fleet, Gateway, RedisServer, Setup};

/// A gateway behind proxies that write this header, under one limit `l` of two a day by address.
fn behind(header: &str) -> Gateway {
    Gateway::start(&format!(
        "client_ip: {{trusted_proxies: [127.0.0.1, 10.0.0.0/8], header: {header}}}\n\
         limits: {{l: {{key: ip, rate: 2/day}}}}\nroutes: [{{name: all, respond: {{status: 200}}, limits: [l]}}]\n"
    ))
}

fn from(address: &str) -> [(&str, &str); 1] {
    [("x-forwarded-for", address)]
}

/// However proxies spell an address, it is one client; what they hide or cannot be read is counted as the last proxy.
#[test]
fn every_spelling_is_one_client() {
    let xff = behind("x-forwarded-for");
    let of = |gateway: &Gateway, name: &str, lines: &[&str], client: &str| {
        gateway.admin_change("DELETE", &format!("/limits/l/keys/{client}"));
        let headers: Vec<(&str, &str)> = lines.iter().map(|line| (name, *line)).collect();
        assert_eq!(gateway.ask("GET", "/", &headers).status, 200, "{lines:?}");
        assert_eq!(gateway.remaining("l", client), 1, "{lines:?}");
    };
    for (lines, client) in [
        (&["192.0.2.1"][..], "192.0.2.1"),
        (&["192.0.2.1:4711"], "192.0.2.1"),
        (&["::ffff:192.0.2.1"], "192.0.2.1"),
        (&["[::ffff:192.0.2.1]:80, 10.1.1.1"], "192.0.2.1"),
        (&["6.6.6.6", "192.0.2.1", "10.1.1.1, 10.1.1.2"], "192.0.2.1"),
        (&["\u{e9}, \"6.6.6.6, 192.0.2.1"], "192.0.2.1"),
        (&["[2001:db8::1]:80"], "2001:db8::"),
        (&["fe80::1%eth0"], "fe80::"),
        (&["6.6.6.6, unknown"], "127.0.0.1"),
        (&["6.6.6.6, , 10.1.1.1"], "10.1.1.1"),
        (&["6.6.6.6, 192.0.2.1:99999"], "127.0.0.1"),
    ] {
        of(&xff, "x-forwarded-for", lines, client);
    }
    let forwarded = behind("forwarded");
    for (lines, client) in [
        (&["for=192.0.2.1;proto=https, for=10.1.1.1"][..], "192.0.2.1"),
        (&["for=\"6.6.6.6", "FOR=\"192.0.2.1:80\";by=\"a,;\\\"\""], "192.0.2.1"),
        (&["for=\"6.6.6.6, for=192.0.2.1"], "192.0.2.1"),
        (&["for=6.6.6.6, for=\"[2001:db8::1]:_p\""], "2001:db8::"),
        (&["for=6.6.6.6, for=_hidden, for=10.1.1.1"], "10.1.1.1"),
        (&["for=6.6.6.6, for=unknown"], "127.0.0.1"),
        (&["for=6.6.6.6;for=192.0.2.1"], "127.0.0.1"),
    ] {
        of(&forwarded, "forwarded", lines, client);
    }
    let real = behind("x-real-ip");
    for (lines, client) in [
        (&["192.0.2.1"][..], "192.0.2.1"),
        (&["6.6.6.6", "192.0.2.1"], "192.0.2.1"),
        (&["junk"], "127.0.0.1"),
    ] {
        of(&real, "x-real-ip", lines, client);
    }
}

/// Thousands of elements that a client makes up change nothing, and neither does a header that is not the one.
#[test]
fn what_a_client_makes_up_changes_nothing() {
    let gateway = behind("x-forwarded-for");
    let ask = |headers: &[(&str, &str)]| gateway.ask("GET", "/", headers).status;
    let many = format!("{}192.0.2.1", "10.1.1.1, ,6.6.6.6,".repeat(1_000));
    assert_eq!(ask(&from(&many)), 200);
    assert_eq!(
        ask(&[("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=6.6.6.6"), ("x-real-ip", "6.6.6.6")]),
        200
    );
    assert_eq!(ask(&[("X_Forwarded_For", "6.6.6.6"), ("x-forwarded-for", "192.0.2.1")]), 429);
    let trusted = "10.1.1.1,".repeat(3_000) + "10.1.1.1";
    assert_eq!(ask(&from(&trusted)), 200, "proxies without end are counted as one of them");
}

/// One address of IPv6, its network and the network of that are three limits; one route can have them all.
fn tiers(store: &str) {
    let fleet = Fleet::of(
        vec![Setup::default()],
        &format!(
            "client_ip: {{trusted_proxies: [127.0.0.1]}}\n{store}limits:\n  host: {{key: ip/64, rate: 2/day}}\n  \
         site: {{key: ip/56, rate: 3/day}}\n  isp: {{key: ip/48, rate: 4/day}}\n\
         routes: [{{name: all, respond: {{status: 200}}, limits: [host, site, isp]}}]\n"
        ),
    );
    if !store.is_empty() {
        fleet.up();
    }
    let gateway = &fleet[0];
    let ask = |address: &str| {
        let answer = gateway.ask("GET", "/", &from(address));
        let policy = answer.header("ratelimit").unwrap().split(';').next().unwrap().to_owned();
        (answer.status, policy)
    };
    let refused = |by: &str| (429, format!("\"{by}\""));
    assert_eq!([ask("2001:db8:1:0::1").0, ask("2001:db8:1:0:ffff::2").0], [200, 200]);
    assert_eq!(ask("2001:db8:1:0::3"), refused("host"));
    assert_eq!(ask("2001:db8:1:ff::1").0, 200);
    assert_eq!(ask("2001:db8:1:1::1"), refused("site"));
    assert_eq!(ask("2001:db8:1:1::1"), refused("site"), "which took nothing from the others");
    assert_eq!(gateway.remaining("host", "2001:db8:1:1::9"), 2);
    assert_eq!(ask("2001:db8:1:100::1").0, 200);
    assert_eq!(ask("2001:db8:1:200::1"), refused("isp"));
    assert_eq!(ask("2001:db8:2:100::1").0, 200);
    assert_eq!([ask("192.0.2.1").0, ask("::ffff:192.0.2.1").0], [200, 200]);
    assert_eq!(ask("192.0.2.1"), refused("host"), "a client of IPv4 is its whole address");
    assert_eq!(ask("192.0.2.2").0, 200);
}

#[test]
fn networks_of_ipv6_are_tiers() {
    tiers("");
}

#[test]
fn networks_of_ipv6_are_tiers_in_the_store() {
    let redis = RedisServer::start();
    tiers(&redis.store());
}

/// The tiers do not depend on what else counts as one client.
#[test]
fn tiers_stand_beside_the_prefix_of_clients() {
    let gateway = Gateway::start(
        "client_ip: {trusted_proxies: [127.0.0.1], ipv6_prefix: 128}\n\
         limits: {one: {key: ip, rate: 1/day}, all: {key: \"ip/64\", rate: 2/day}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [one, all]}]\n",
    );
    let ask = |address: &str| gateway.ask("GET", "/", &from(address)).status;
    assert_eq!(
        [ask("2001:db8::1"), ask("2001:db8::1"), ask("2001:db8::2"), ask("2001:db8::3")],
        [200, 429, 200, 429]
    );
    assert_eq!(gateway.remaining("one", "2001:db8::3"), 1);
    assert_eq!(gateway.remaining("all", "ip:2001:db8::3"), 0);
}
