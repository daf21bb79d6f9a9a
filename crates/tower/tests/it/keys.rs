//! What is counted separately, and that no client can choose it.

use sluicegate_tower::{ClientIp, Key, Limit, MINUTE, OnMissing, RateLimitLayer, extension, header};

use crate::common::{from, layer, request, status, with};

fn one_each(key: impl Key) -> RateLimitLayer {
    layer([Limit::fixed_window("l", 1, MINUTE).key(key)])
}

#[test]
fn a_client_cannot_forge_its_address() {
    let layer = one_each(ClientIp::new().trusting(["10.0.0.0/8"]));
    let forged = |peer, value| from(peer, with(&[("x-forwarded-for", value)]));
    assert_eq!(status(&layer, forged("203.0.113.9", "1.1.1.1")), 200);
    for value in ["2.2.2.2", "10.0.0.1", "203.0.113.10", "junk", "2.2.2.2, 10.0.0.1"] {
        assert_eq!(status(&layer, forged("203.0.113.9", value)), 429, "{value}");
    }
    // Behind a trusted proxy, what the client itself sent stands further left.
    assert_eq!(status(&layer, forged("10.0.0.1", "198.51.100.7")), 200);
    for value in ["3.3.3.3, 198.51.100.7", "3.3.3.3, 198.51.100.7, 10.9.9.9"] {
        assert_eq!(status(&layer, forged("10.0.0.1", value)), 429, "{value}");
    }
    // And it cannot use up the limit of another client.
    assert_eq!(status(&layer, forged("10.0.0.1", "198.51.100.8, 198.51.100.7")), 429);
    assert_eq!(status(&layer, from("10.0.0.1", with(&[("x-forwarded-for", "198.51.100.8")]))), 200);
}

#[test]
fn an_ipv6_client_has_one_key_for_all_its_addresses() {
    let layer = one_each(ClientIp::new());
    assert_eq!(status(&layer, from("2001:db8:0:1::1", request())), 200);
    assert_eq!(status(&layer, from("2001:db8:0:1:ffff::", request())), 429);
    assert_eq!(status(&layer, from("2001:db8:0:2::1", request())), 200);
    let single = one_each(ClientIp::new().ipv6_prefix(128));
    assert_eq!(status(&single, from("2001:db8:0:1::1", request())), 200);
    assert_eq!(status(&single, from("2001:db8:0:1::2", request())), 200);
}

#[test]
fn headers_extensions_and_closures_are_keys() {
    let by_header = one_each(header("X-Api-Key"));
    assert_eq!(["a", "b", "a"].map(|key| status(&by_header, with(&[("x-api-key", key)]))), [200, 200, 429]);

    #[derive(Clone, Hash)]
    struct User(u32);
    let by_user = one_each(extension::<User>());
    let of_user = |id| {
        let mut request = request();
        request.extensions_mut().insert(User(id));
        request
    };
    assert_eq!([1, 2, 1].map(|id| status(&by_user, of_user(id))), [200, 200, 429]);
    assert_eq!(by_user.handle().usage("l", &User(1)).unwrap().remaining, 0);

    let by_path =
        layer([Limit::fixed_window("l", 1, MINUTE).key_by(|head| Some(head.uri.path().to_owned()))]);
    let get = |path| http::Request::get(path).body(()).unwrap();
    assert_eq!(["/a", "/b", "/a?x"].map(|path| status(&by_path, get(path))), [200, 200, 429]);
}

#[test]
fn parts_and_alternatives_make_one_key() {
    let both = one_each((header("x-user"), header("x-device")));
    let of = |user, device| with(&[("x-user", user), ("x-device", device)]);
    assert_eq!(status(&both, of("ab", "c")), 200);
    assert_eq!(status(&both, of("a", "bc")), 200, "where one part ends is part of the key");
    assert_eq!(status(&both, of("ab", "c")), 429);
    assert_eq!(both.handle().usage("l", &("ab", "c")).unwrap().remaining, 0);

    let first = one_each(header("x-user").or(ClientIp::new()));
    assert_eq!(status(&first, from("192.0.2.1", with(&[("x-user", "ann")]))), 200);
    assert_eq!(status(&first, from("192.0.2.2", with(&[("x-user", "ann")]))), 429);
    assert_eq!(status(&first, from("192.0.2.1", request())), 200);
    assert_eq!(status(&first, from("192.0.2.1", request())), 429);
}

#[test]
fn a_missing_key_is_shared_skipped_or_denied() {
    let limit = || Limit::fixed_window("l", 2, MINUTE).key(header("x-api-key"));
    let statuses = |limit| {
        let layer = layer([limit]);
        [(); 3].map(|()| status(&layer, request()))
    };
    assert_eq!(statuses(limit()), [200, 200, 429], "all requests without the key share one");
    assert_eq!(statuses(limit().on_missing(OnMissing::Skip)), [200, 200, 200]);
    assert_eq!(statuses(limit().on_missing(OnMissing::Deny)), [401, 401, 401]);
    // A key that is there is not the shared one.
    let shared = layer([limit().cost(2)]);
    assert_eq!([status(&shared, request()), status(&shared, with(&[("x-api-key", "")]))], [200, 200]);
}

#[test]
fn a_request_that_is_denied_is_charged_to_no_limit() {
    let layer = layer([
        Limit::fixed_window("all", 1, MINUTE),
        Limit::fixed_window("keyed", 1, MINUTE).key(header("x-api-key")).on_missing(OnMissing::Deny),
    ]);
    assert_eq!(status(&layer, request()), 401);
    assert_eq!(status(&layer, with(&[("x-api-key", "a")])), 200);
}

#[test]
fn a_handle_sees_and_pardons_a_key() {
    let ip = ClientIp::new();
    let layer = one_each(ip.clone());
    let handle = layer.handle();
    let key = ip.key_of("2001:db8:0:1::1".parse().unwrap());
    assert_eq!(handle.usage("l", &key).unwrap().remaining, 1, "looking charges nothing");
    assert_eq!(status(&layer, from("2001:db8:0:1::1", request())), 200);
    assert_eq!((handle.usage("l", &key).unwrap().remaining, handle.keys("l")), (0, Some(1)));
    assert!(handle.pardon("l", &key));
    assert_eq!(status(&layer, from("2001:db8:0:1::1", request())), 200);
    assert!(!handle.pardon("l", "another") && !handle.pardon("unknown", &key));
    assert_eq!(handle.usage("unknown", &key), None);
}

#[test]
fn keys_are_bounded() {
    let layer = layer([Limit::fixed_window("l", 1, MINUTE).key(header("x-api-key")).max_keys(100)]);
    for key in 0..1_000 {
        status(&layer, with(&[("x-api-key", &key.to_string())]));
    }
    let handle = layer.handle();
    assert!(handle.keys("l").unwrap() <= 101, "{:?}", handle.keys("l"));
    assert!(handle.overflowed("l").unwrap() > 0);
    assert_eq!(
        status(&layer, with(&[("x-api-key", "0")])),
        429,
        "no key is forgotten while it owes something"
    );
}
