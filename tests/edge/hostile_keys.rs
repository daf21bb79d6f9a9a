//! Odd keys, floods of keys and wrong clocks: no client gets more than its limit, and memory stays bounded.

use crate::harness::{Gateway, Setup, Upstream, faketime};

/// What a key is, however odd: no header, an empty one, two, a very long one, bytes that are no text. Each is counted
/// somewhere, and none is another's.
#[test]
fn odd_keys_are_counted() {
    let gateway = Gateway::start(
        "limits: {l: {key: api_key, rate: 1/day}}\nroutes: [{name: all, respond: {status: 200}, limits: [l]}]\n",
    );
    let status = |lines: &[&[u8]]| {
        let mut bytes = b"GET / HTTP/1.1\r\nHost: a.test\r\n".to_vec();
        for line in lines {
            bytes.extend_from_slice(&[b"X-Api-Key:", *line, b"\r\n"].concat());
        }
        gateway.client().send([&bytes[..], b"\r\n"].concat()).response().status
    };
    // All that lack the key, and those that give two, share one counter.
    assert_eq!(status(&[]), 200);
    for lines in [vec![""], vec!["   "], vec!["a", "b"], vec!["a", "a"], vec!["", "a"]] {
        let lines: Vec<&[u8]> = lines.into_iter().map(str::as_bytes).collect();
        assert_eq!(status(&lines), 429, "{lines:?}");
    }
    let long = [b'k'; 8 << 10];
    for key in [
        &b"k"[..],
        b"K",
        b"k k",
        &long,
        &long[1..],
        b"\xff\xfe",
        b"\xff\xff",
        "é".as_bytes(),
        "e\u{301}".as_bytes(),
    ] {
        assert_eq!(status(&[key]), 200, "{key:?}");
        assert_eq!(status(&[key]), 429, "{key:?}");
        assert_eq!(status(&[&[b"  ", key, b"\t "].concat()]), 429, "white space is no part of {key:?}");
    }
    for key in [&b"a\0b"[..], b"a\x01b", b"a\x7fb"] {
        assert_eq!(status(&[key]), 400, "{key:?}");
    }
}

/// However many addresses a client of IPv6 takes of its network, it is one client.
#[test]
fn a_network_of_ipv6_is_one_client() {
    let gateway = Gateway::start(
        "client_ip: {trusted_proxies: [127.0.0.1]}\nlimits: {l: {key: ip, rate: 5/day}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [l]}]\n",
    );
    let mut client = gateway.client();
    let mut status = |address: String| client.ask("GET", "/", &[("x-forwarded-for", &address)]).status;
    let admitted = (0..200).filter(|at| status(format!("2001:db8:0:1:{at:x}::{at:x}")) == 200).count();
    assert_eq!(admitted, 5);
    assert_eq!(status("2001:db8:0:2::1".to_owned()), 200);
}

/// Paths, methods and keys that nobody has seen make no time series.
#[test]
fn a_flood_makes_no_series() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(
        &upstream,
        "limits: {l: {key: [api_key, path, method], rate: 1000/s}}\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
         routes: [{name: all, upstream: api, limits: [l]}]\n",
    );
    let mut client = gateway.client();
    assert_eq!(client.get("/").status, 200);
    let series = gateway.metrics().series();
    for at in 0..500 {
        let (target, key) = (format!("/p{at}"), format!("k{at}"));
        assert_eq!(client.ask(&format!("M{at}"), &target, &[("x-api-key", &key)]).status, 200);
    }
    assert_eq!(gateway.metrics().series(), series);
}

/// The wall clock jumps by three years in either direction, further than any window is long: what was spent stays spent, and
/// nobody is locked out. Local counters know the monotonic clock.
#[test]
fn a_clock_that_jumps_changes_nothing() {
    for jump in ["-3y", "+3y"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("time");
        std::fs::write(&file, "+0").unwrap();
        let setup = Setup::default()
            .env("LD_PRELOAD", &faketime())
            .env("FAKETIME_TIMESTAMP_FILE", &file.display().to_string())
            .env("FAKETIME_NO_CACHE", "1")
            .env("DONT_FAKE_MONOTONIC", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        let kinds = ["token_bucket", "sliding_log", "sliding_window", "fixed_window"];
        let mut text = "limits:\n".to_owned();
        for kind in kinds {
            text += &format!("  {kind}: {{key: api_key, rate: 3/366d, algorithm: {kind}}}\n");
        }
        text += "routes:\n";
        for kind in kinds {
            text += &format!(
                "  - {{name: {kind}, match: {{path: /{kind}}}, respond: {{status: 200}}, limits: [{kind}]}}\n"
            );
        }
        let gateway = setup.start(&text);
        let year = || {
            assert_eq!(gateway.admin_change("POST", "/reload").status, 200);
            gateway.admin_get("/status").json()["loaded_at"].as_str().unwrap()[..4].to_owned()
        };
        let status =
            |kind: &str, key: &str| gateway.ask("GET", &format!("/{kind}"), &[("x-api-key", key)]).status;
        for kind in kinds {
            assert_eq!(
                [status(kind, "a"), status(kind, "a"), status(kind, "a"), status(kind, "a")],
                [200, 200, 200, 429]
            );
            assert_eq!(status(kind, "b"), 200);
        }
        let before = year();
        std::fs::write(&file, jump).unwrap();
        for kind in kinds {
            assert_eq!(status(kind, "a"), 429, "{kind} after {jump}: nothing came back");
            assert_eq!(
                [status(kind, "b"), status(kind, "b"), status(kind, "b")],
                [200, 200, 429],
                "{kind} after {jump}"
            );
            assert_eq!(status(kind, "c"), 200, "{kind} after {jump}");
        }
        crate::harness::until("the clock has jumped", || (year() != before).then_some(()));
    }
}
