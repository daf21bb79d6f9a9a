//! What limits count apart: every kind of key, and that a client gets no second allowance by writing the same key in
//! another way.

use serde_json::{Value, json};

use crate::harness::{Gateway, program, until};

/// A gateway with one limit `l` of two a day on every path.
fn two_a_day(limit: &str) -> Gateway {
    at_path(limit, "/*")
}

fn at_path(limit: &str, path: &str) -> Gateway {
    Gateway::start(&format!(
        "client_ip: {{trusted_proxies: [127.0.0.1]}}\nlimits:\n  l: {{{limit}, rate: 2/day}}\nroutes:\n  \
         - {{name: all, match: {{path: \"{path}\"}}, respond: {{status: 200}}, limits: [l]}}\n"
    ))
}

/// A request: its target and its headers.
type Ask<'a> = (&'a str, &'a [(&'a str, &'a str)]);

/// Asserts that two requests are one key: they use up two a day together.
#[track_caller]
fn same(limit: &str, first: Ask<'_>, second: Ask<'_>) {
    let gateway = two_a_day(limit);
    let ask = |ask: Ask<'_>| gateway.ask("GET", ask.0, ask.1).status;
    assert_eq!([ask(first), ask(second)], [200, 200]);
    assert_eq!([ask(first), ask(second)], [429, 429], "{first:?} and {second:?} are one key");
}

/// Asserts that two requests are two keys.
#[track_caller]
fn different(limit: &str, first: Ask<'_>, second: Ask<'_>) {
    let gateway = two_a_day(limit);
    let ask = |ask: Ask<'_>| gateway.ask("GET", ask.0, ask.1).status;
    assert_eq!([ask(first), ask(first), ask(first)], [200, 200, 429]);
    assert_eq!(
        [ask(second), ask(second), ask(second)],
        [200, 200, 429],
        "{first:?} and {second:?} are two keys"
    );
}

/// Every key counts its own requests and no others.
#[test]
fn every_kind_of_key_counts_apart() {
    different("key: api_key", ("/", &[("x-api-key", "a")]), ("/", &[("x-api-key", "b")]));
    different(
        "key: ip",
        ("/", &[("x-forwarded-for", "192.0.2.1")]),
        ("/", &[("x-forwarded-for", "192.0.2.2")]),
    );
    different("key: host", ("/", &[("host", "a.test")]), ("/", &[("host", "b.test")]));
    different("key: path", ("/a", &[]), ("/b", &[]));
    different("key: \"header:X-Tenant\"", ("/", &[("x-tenant", "a")]), ("/", &[("x-tenant", "b")]));
    different("key: \"query:user\"", ("/?user=a", &[]), ("/?user=b", &[]));
    different("key: \"cookie:sid\"", ("/", &[("cookie", "sid=a")]), ("/", &[("cookie", "sid=b")]));
    same("key: global", ("/a", &[("x-api-key", "a")]), ("/b", &[("x-api-key", "b")]));
    same("key: route", ("/a", &[]), ("/b", &[]));
}

/// The method is a key too.
#[test]
fn the_method_is_a_key() {
    let gateway = two_a_day("key: method");
    let ask = |method| gateway.ask(method, "/", &[]).status;
    assert_eq!([ask("GET"), ask("GET"), ask("GET"), ask("DELETE"), ask("PURGE")], [200, 200, 429, 200, 200]);
}

/// A parameter of the route's path is a key.
#[test]
fn a_parameter_of_the_path_is_a_key() {
    let gateway = at_path("key: \"path:id\"", "/users/{id}/posts/{post}");
    let ask = |target| gateway.get(target).status;
    assert_eq!([ask("/users/7/posts/1"), ask("/users/7/posts/2"), ask("/users/7/posts/3")], [200, 200, 429]);
    assert_eq!(ask("/users/%37/posts/4"), 429, "another spelling is no other user");
    assert_eq!(ask("/users/8/posts/1"), 200);
}

/// Another spelling of the same key is no other key.
#[test]
fn another_spelling_is_the_same_key() {
    same("key: \"query:user\"", ("/?user=abc", &[]), ("/?user=%61b%63", &[]));
    same("key: \"query:user\"", ("/?user=a%20b", &[]), ("/?user=a+b", &[]));
    same("key: \"query:user\"", ("/?user=abc", &[]), ("/?x=1&%75ser=abc&y", &[]));
    same(
        "key: \"cookie:sid\"",
        ("/", &[("cookie", "sid=abc")]),
        ("/", &[("cookie", "x=1;  sid=\"abc\"; y=2")]),
    );
    same("key: \"header:X-Tenant\"", ("/", &[("x-tenant", "a")]), ("/", &[("X-TENANT", "  a  ")]));
    same("key: host", ("/", &[("host", "api.test")]), ("/", &[("host", "API.Test.:8080")]));
    same("key: path", ("/a/b", &[]), ("//a/./%62", &[]));
    same(
        "key: ip",
        ("/", &[("x-forwarded-for", "192.0.2.1")]),
        ("/", &[("x-forwarded-for", "::ffff:192.0.2.1")]),
    );
}

/// Who gives a key twice chooses neither: such requests share the bucket of those without a key.
#[test]
fn a_key_given_twice_is_no_key() {
    same("key: api_key", ("/", &[("x-api-key", "a"), ("x-api-key", "b")]), ("/", &[]));
    same("key: \"query:user\"", ("/?user=a&user=b", &[]), ("/?user=c&user=d", &[]));
    same(
        "key: \"cookie:sid\"",
        ("/", &[("cookie", "sid=a; sid=b")]),
        ("/", &[("cookie", "sid=c"), ("cookie", "sid=d")]),
    );
    same("key: api_key", ("/", &[("x-api-key", "")]), ("/", &[]));
}

/// Requests without the key share one bucket, apart from those that have it.
#[test]
fn requests_without_the_key_share_one_bucket() {
    let gateway = two_a_day("key: api_key");
    assert_eq!(gateway.statuses(3, "/", &[]), [200, 200, 429]);
    assert_eq!(gateway.statuses(3, "/", &[("x-api-key", "k")]), [200, 200, 429]);
}

/// `on_missing: skip` leaves them uncounted.
#[test]
fn requests_without_the_key_can_be_skipped() {
    let gateway = two_a_day("key: api_key, on_missing: skip");
    assert_eq!(gateway.statuses(5, "/", &[]), [200; 5]);
    assert_eq!(gateway.statuses(3, "/", &[("x-api-key", "k")]), [200, 200, 429]);
    let skipped =
        gateway.metric("sluicegate_limit_decisions_total", &[("limit", "l"), ("outcome", "skipped")]);
    assert_eq!(skipped, 5.0);
}

/// `on_missing: deny` answers 401 and says how to do better.
#[test]
fn requests_without_the_key_can_be_denied() {
    let gateway = two_a_day("key: api_key, on_missing: deny");
    let denied = gateway.get("/");
    assert_eq!(denied.status, 401);
    assert_eq!(denied.header("www-authenticate"), Some("ApiKey realm=\"sluicegate\""));
    denied.problem();
    assert_eq!(gateway.statuses(3, "/", &[("x-api-key", "k")]), [200, 200, 429]);
}

/// In shadow mode nobody is denied: a request without the key is reported as one that would be refused.
#[test]
fn shadow_mode_denies_nobody() {
    let gateway = Gateway::start(
        "access_log: access.log\n\
         limits: {l: {key: api_key, rate: 2/day, on_missing: deny, mode: shadow}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [l]}]\n",
    );
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.statuses(1, "/", &[("x-api-key", "k")]), [200]);
    let count =
        |outcome| gateway.metric("sluicegate_limit_decisions_total", &[("limit", "l"), ("outcome", outcome)]);
    assert_eq!((count("shadow_refused"), count("admitted")), (1.0, 1.0));
    let explained = gateway.admin_get("/explain?url=/").json();
    let limits = explained["limits"].as_array().unwrap();
    let limit = limits.iter().find(|limit| limit["name"] == "l").unwrap();
    assert_eq!(limit["outcome"], "shadow_refused", "{explained}");
    let mut lines = until("the lines are written", || {
        let text = std::fs::read_to_string(gateway.path("access.log")).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() == 2).then_some(lines)
    });
    lines.sort_by_key(|line| line.get("shadow").is_none()); // each worker writes its own lines
    assert_eq!(
        (&lines[0]["outcome"], &lines[0]["shadow"]),
        (&json!("admitted"), &json!(["l"])),
        "{}",
        lines[0]
    );
    assert_eq!(lines[1].get("shadow"), None);
    let log = gateway.path("access.log");
    let replayed = program()
        .args(["replay", "--json", "--config"])
        .arg(gateway.path("gateway.yaml"))
        .arg(log)
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    let refused = (&report["refused"], &report["limits"][0]["shadow_refused"]);
    assert_eq!(refused, (&json!(0), &json!(2)), "the log has no key: {report}");
}

/// `api_key | ip` is the key where there is one and the address otherwise, and never takes one for the other.
#[test]
fn the_first_key_that_a_request_has_counts() {
    let limit = "key: api_key | ip";
    different(limit, ("/", &[("x-api-key", "a")]), ("/", &[]));
    different(limit, ("/", &[("x-api-key", "127.0.0.1")]), ("/", &[]));
    different(limit, ("/", &[("x-forwarded-for", "192.0.2.1")]), ("/", &[("x-forwarded-for", "192.0.2.2")]));
    let (one, other) = ([("x-forwarded-for", "192.0.2.1"), ("x-api-key", "a")], [("x-api-key", "a")]);
    same(limit, ("/", &one), ("/", &other));
}

/// A list is all of them together, whatever the values look like.
#[test]
fn a_list_is_one_composite_key() {
    let limit = "key: [api_key, \"header:X-Tenant\"]";
    different(
        limit,
        ("/", &[("x-api-key", "a"), ("x-tenant", "1")]),
        ("/", &[("x-api-key", "a"), ("x-tenant", "2")]),
    );
    different(
        limit,
        ("/", &[("x-api-key", "ab"), ("x-tenant", "c")]),
        ("/", &[("x-api-key", "a"), ("x-tenant", "bc")]),
    );
    different(
        limit,
        ("/", &[("x-api-key", "a,b"), ("x-tenant", "c")]),
        ("/", &[("x-api-key", "a"), ("x-tenant", "b,c")]),
    );
    same(limit, ("/", &[("x-api-key", "a")]), ("/", &[("x-api-key", "b")])); // both lack a part
    different("key: [ip, \"path\"]", ("/a", &[]), ("/b", &[]));
    different("key: [api_key | ip, path]", ("/a", &[("x-api-key", "k")]), ("/a", &[]));
}

/// The key may be looked for in the query instead of a header.
#[test]
fn an_api_key_can_stand_in_the_query() {
    let gateway = Gateway::start(
        "auth: {api_key: {query: key}}\nlimits: {l: {key: api_key, rate: 1/day}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [l]}]\n",
    );
    let ask = |target| gateway.get(target).status;
    assert_eq!([ask("/?key=a"), ask("/x?b=1&key=%61"), ask("/?key=b")], [200, 429, 200]);
}

/// With both places named, the key is in either; whoever sends two different ones has none.
#[test]
fn an_api_key_can_stand_in_a_header_or_in_the_query() {
    let gateway = Gateway::start(
        "auth: {api_key: {header: X-Key, query: key}}\n\
         limits: {l: {key: api_key, rate: 1/day, on_missing: deny}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [l]}]\n",
    );
    let none = gateway.get("/").status;
    for (target, headers, wanted) in [
        ("/?key=a", &[][..], 200),
        ("/", &[("x-key", "a")], 429),
        ("/", &[("x-key", "b")], 200),
        ("/?key=%62", &[], 429),
        ("/?key=c", &[("x-key", "c")], 200),
        ("/", &[("x-key", "c")], 429),
        ("/?key=d", &[("x-key", "e")], none),
        ("/?key=d", &[("x-key", "")], none),
        ("/?key=", &[("x-key", "d")], none),
        ("/?key=d&key=d", &[("x-key", "d")], none),
        ("/?key=d", &[("x-key", "d"), ("x-key", "d")], none),
        ("/?other=1", &[("x-key", "d")], 200),
        ("/", &[("x-api-key", "d")], none),
    ] {
        assert_eq!(gateway.ask("GET", target, headers).status, wanted, "{target} {headers:?}");
    }
    assert!(![200, 429].contains(&none), "{none}");
}

/// All addresses of an IPv6 /64 are one client; the next /64 is another.
#[test]
fn an_ipv6_network_is_one_client() {
    fn from<'a>(address: &'a [(&'a str, &'a str); 1]) -> Ask<'a> {
        ("/", address)
    }
    let one = [("x-forwarded-for", "2001:db8:1:2::a")];
    let neighbour = [("x-forwarded-for", "2001:db8:1:2:ffff::b")];
    let other = [("x-forwarded-for", "2001:db8:1:3::a")];
    same("key: ip", from(&one), from(&neighbour));
    different("key: ip", from(&one), from(&other));
    same(
        "key: ip",
        from(&[("x-forwarded-for", "[2001:db8::1]:4711")]),
        from(&[("x-forwarded-for", "2001:DB8:0::2")]),
    );
}

/// With `ipv6_prefix: 128` every address is a client.
#[test]
fn the_ipv6_prefix_can_be_chosen() {
    let gateway = Gateway::start(
        "client_ip: {trusted_proxies: [127.0.0.1], ipv6_prefix: 128}\nlimits: {l: {key: ip, rate: 1/day}}\n\
         routes: [{name: all, respond: {status: 200}, limits: [l]}]\n",
    );
    let ask = |address| gateway.ask("GET", "/", &[("x-forwarded-for", address)]).status;
    assert_eq!([ask("2001:db8::1"), ask("2001:db8::2"), ask("2001:db8::1")], [200, 200, 429]);
}

/// Without trusted proxies nobody chooses an address by a header.
#[test]
fn an_untrusted_peer_cannot_choose_its_address() {
    let gateway = Gateway::start(
        "limits: {l: {key: ip, rate: 2/day}}\nroutes: [{name: all, respond: {status: 200}, limits: [l]}]\n",
    );
    let ask =
        |address| gateway.ask("GET", "/", &[("x-forwarded-for", address), ("x-real-ip", address)]).status;
    assert_eq!([ask("192.0.2.1"), ask("192.0.2.2"), ask("192.0.2.3")], [200, 200, 429]);
    assert_eq!(gateway.remaining("l", "127.0.0.1"), 0);
}

/// Behind trusted proxies the client is the rightmost address that is none of them; what it wrote itself is not
/// believed.
#[test]
fn a_trusted_proxy_gives_the_client_address() {
    for (header, spoofed, honest) in [
        ("x-forwarded-for", "192.0.2.9, 192.0.2.1, 10.1.2.3", "192.0.2.1"),
        ("forwarded", "for=192.0.2.9, for=192.0.2.1;proto=https, for=10.1.2.3", "For=\"192.0.2.1:80\""),
        ("x-real-ip", "192.0.2.1", "192.0.2.1"),
    ] {
        let gateway = Gateway::start(&format!(
            "client_ip: {{trusted_proxies: [127.0.0.1, 10.0.0.0/8], header: {header}}}\n\
             limits: {{l: {{key: ip, rate: 2/day}}}}\nroutes: [{{name: all, respond: {{status: 200}}, limits: [l]}}]\n"
        ));
        let ask = |value| gateway.ask("GET", "/", &[(header, value)]).status;
        assert_eq!([ask(spoofed), ask(honest), ask(spoofed)], [200, 200, 429], "{header}");
        assert_eq!(gateway.remaining("l", "192.0.2.1"), 0);
    }
}

/// A client cannot escape its key by naming the header in Connection: such a request is refused.
#[test]
fn a_key_named_in_connection_is_refused() {
    let gateway = two_a_day("key: api_key, on_missing: skip");
    let headers = [("x-api-key", "k"), ("connection", "keep-alive"), ("connection", "x-api-key")];
    assert_eq!(gateway.ask("GET", "/", &headers).status, 400);
    assert_eq!(gateway.statuses(3, "/", &headers[..2]), [200, 200, 429]);
}
