//! The client address: what proxies send, in every header and spelling; which proxies are trusted; limits for
//! networks of several sizes.

use serde_json::Value;

use crate::harness::{Fleet, Gateway, RedisServer, Setup, Upstream, until};

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

/// A proxy that nobody has named is told of, once, with the cure: all its clients count as one.
#[test]
fn a_proxy_that_is_not_trusted_is_told_of() {
    let file = |client_ip: &str| {
        format!(
            "{client_ip}limits: {{l: {{key: ip, rate: 2/day}}}}\n\
             routes: [{{name: all, respond: {{status: 200}}, limits: [l]}}]\n"
        )
    };
    let gateway = Gateway::start(&file(""));
    gateway.statuses(2, "/", &[]);
    let count = || gateway.metric("sluicegate_forwarded_ignored_total", &[]);
    let shown = || gateway.admin_get("/status").json()["ignored_forwarded"].clone();
    assert_eq!((count(), shown()), (0.0, Value::Null));
    assert_eq!(gateway.statuses(3, "/", &from("192.0.2.1")), [429; 3]);
    assert_eq!(count(), 3.0);
    assert_eq!(
        (&shown()["peer"], &shown()["requests"], &shown()["header"]),
        (&"127.0.0.1".into(), &3.into(), &"x-forwarded-for".into())
    );
    let cure = "client_ip: {trusted_proxies: [\"127.0.0.1\"]}";
    assert_eq!(gateway.times_logged(cure), 1, "{}", gateway.log());
    assert_eq!(gateway.log().matches("is ignored").count(), 1, "{}", gateway.log());

    gateway.reload(&file(&format!("{cure}\n")));
    assert_eq!(gateway.statuses(3, "/", &from("192.0.2.1")), [200, 200, 429]);
    assert_eq!((count(), shown()), (3.0, Value::Null));
}

/// Where only the number of proxies is known, the address that the outermost one wrote counts, whatever the client sent.
#[test]
fn proxies_are_counted() {
    let gateway = Gateway::start(
        "client_ip: {depth: 2}\nlimits: {l: {key: ip, rate: 2/day}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [l]}]\n",
    );
    for (line, client) in [
        ("6.6.6.6, 192.0.2.1, 203.0.113.1", "192.0.2.1"),
        ("192.0.2.2, 203.0.113.1", "192.0.2.2"),
        ("203.0.113.1", "127.0.0.1"),
    ] {
        assert_eq!(gateway.ask("GET", "/", &from(line)).status, 200, "{line}");
        assert_eq!(gateway.remaining("l", client), 1, "{line}");
    }
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
fn forged_addresses_change_nothing() {
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

/// Networks of IPv4 are tiers too. Addresses of the other family are counted as `ip` counts them.
#[test]
fn networks_of_ipv4_are_tiers() {
    let redis = RedisServer::start();
    for store in [String::new(), redis.store()] {
        let fleet = Fleet::of(
            vec![Setup::default()],
            &format!(
                "client_ip: {{trusted_proxies: [127.0.0.1], ipv6_prefix: 48}}\n{store}limits:\n  \
                 one: {{key: ip, rate: 2/day}}\n  net: {{key: ip/24, rate: 3/day}}\n  all: {{key: ip/8, rate: 4/day}}\n\
                 routes: [{{name: all, respond: {{status: 200}}, limits: [one, net, all]}}]\n"
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
        assert_eq!([ask("192.0.2.1").0, ask("::ffff:192.0.2.1").0], [200, 200]);
        assert_eq!(ask("192.0.2.1"), refused("one"));
        assert_eq!(ask("192.0.2.255").0, 200);
        assert_eq!(ask("192.0.2.2"), refused("net"));
        assert_eq!(ask("192.0.3.1").0, 200);
        assert_eq!(ask("192.0.4.1"), refused("all"));
        assert_eq!(ask("193.0.4.1").0, 200);
        assert_eq!(
            (gateway.remaining("net", "192.0.2.77"), gateway.remaining("net", "ip:192.0.9.1")),
            (0, 3)
        );
        assert_eq!([ask("2001:db8:1:2::1").0, ask("2001:db8:1:3::1").0], [200, 200]);
        assert_eq!(ask("2001:db8:1:4::1"), refused("one"), "they are one network of ipv6_prefix bits");
        assert_eq!(gateway.remaining("net", "2001:db8:1::"), 1, "and of that alone");
    }
}

/// A header that holds one address is believed from trusted proxies only; what is not one address is none; and what a
/// client sends under its name, or one that reads like it, does not reach the upstream.
#[test]
fn another_header_with_one_address_is_trusted() {
    let upstream = Upstream::answering("done");
    let rules = |proxies: &str, header: &str| {
        format!(
            "client_ip: {{trusted_proxies: [{proxies}], header: {header}}}\n\
             limits: {{l: {{key: ip, rate: 2/day}}}}\nupstreams: {{u: {{servers: [\"http://{{upstream}}\"]}}}}\n\
             routes: [{{name: all, upstream: u, limits: [l]}}]\n"
        )
    };
    let start = |rules: String| Setup::default().upstream(&upstream).start(&rules);
    for header in ["CF-Connecting-IP", "True-Client-IP", "Fly-Client-IP", "X-Seen-By-Edge"] {
        let name = header.to_ascii_lowercase();
        let gateway = start(rules("127.0.0.1", header));
        let counted = |lines: &[&str], client: &str| {
            gateway.admin_change("DELETE", &format!("/limits/l/keys/{client}"));
            let headers: Vec<(&str, &str)> = lines.iter().map(|line| (name.as_str(), *line)).collect();
            assert_eq!(gateway.ask("GET", "/", &headers).status, 200, "{header}: {lines:?}");
            assert_eq!(gateway.remaining("l", client), 1, "{header}: {lines:?}");
        };
        counted(&["192.0.2.1"], "192.0.2.1");
        counted(&["[2001:db8::1]:443"], "2001:db8::");
        for several in [&["192.0.2.1", "192.0.2.1"][..], &["192.0.2.1, 192.0.2.2"], &["unknown"], &[""]] {
            counted(several, "127.0.0.1");
        }
        let underscored = name.replace('-', "_");
        gateway.ask(
            "GET",
            "/",
            &[(&name, "192.0.2.5"), (&underscored, "6.6.6.6"), ("x-forwarded-for", "6.6.6.6")],
        );
        let seen = upstream.last().head;
        assert_eq!((seen.one(&name), seen.one(&underscored)), (Some("192.0.2.5"), None), "{header}");
        assert_eq!(gateway.remaining("l", "6.6.6.6"), 2, "the other headers are not believed");

        let stranger = start(rules("10.0.0.1", header));
        let sent = [(name.as_str(), "192.0.2.1"), (&underscored, "192.0.2.1")];
        assert_eq!([(); 3].map(|()| stranger.ask("GET", "/", &sent).status), [200, 200, 429], "{header}");
        let seen = upstream.last().head;
        assert_eq!((seen.one(&name), seen.one(&underscored)), (None, None), "{header}");
        assert_eq!(stranger.remaining("l", "127.0.0.1"), 0);
    }
}

/// Proxies on a list are believed, and a file of them is watched: who comes onto it is believed without a reload, and
/// who leaves it is not believed any more.
#[test]
fn proxies_on_a_list_are_trusted() {
    for (lists, proxy) in [
        ("lists: {cdn: {file: cdn.txt}}\n", "list:cdn"),
        ("", "{file: cdn.txt}"),
        ("lists: {cdn: {file: cdn.txt}}\n", "{file: cdn.txt}"),
    ] {
        let gateway = Setup::default().file("cdn.txt", "# nobody yet\n").start(&format!(
            "{lists}client_ip: {{trusted_proxies: [192.0.2.200, {proxy}]}}\nlimits: {{l: {{key: ip, rate: 9/day}}}}\n\
             routes: [{{name: all, respond: {{status: 200}}, limits: [l]}}]\n"
        ));
        let left = |client: &str| {
            gateway.ask("GET", "/", &from(client));
            gateway.remaining("l", client)
        };
        assert_eq!(left("198.51.100.1"), 9, "{proxy}: nobody is believed");
        gateway.write_file("cdn.txt", "127.0.0.0/8\n203.0.113.0/24\n");
        until("the proxy is believed", || (left("198.51.100.2") < 9).then_some(()));
        gateway.ask("GET", "/", &from("198.51.100.3, 203.0.113.7, 192.0.2.200"));
        assert_eq!(gateway.remaining("l", "198.51.100.3"), 8, "{proxy}: proxies on the list are gone over");
        let lists = gateway.admin_get("/status").json()["lists"].clone();
        assert_eq!((lists.as_array().unwrap().len(), &lists[0]["entries"]), (1, &2.into()), "{lists}");
        gateway.write_file("cdn.txt", "203.0.113.0/24\n");
        let mut number = 0;
        until("the proxy is believed no more", || {
            number += 1; // for each look another client, of whom nothing is counted yet
            (left(&format!("198.18.{}.{}", number / 256, number % 256)) == 9).then_some(())
        });
        gateway.write_file("cdn.txt", "203.0.113.0/99\n");
        until("a mistake is told", || {
            let status = gateway.admin_get("/status").json();
            (!status["lists"][0]["last_reload_error"].is_null()).then_some(())
        });
    }
}
