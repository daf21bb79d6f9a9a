//! Routes change requests and answers as configured, and clients cannot inject anything into them.

use crate::harness::{Gateway, Seen, Setup, Upstream};

/// A gateway with one route before an upstream, and what that then sees.
struct One {
    upstream: Upstream,
    gateway: Gateway,
}

impl One {
    fn new(route: &str) -> Self {
        Self::with("", route)
    }

    fn with(top: &str, route: &str) -> Self {
        let upstream = Upstream::scripted(|exchange| {
            exchange.answer(200, &[("server", "inside/1.0"), ("etag", "\"1\""), ("x-kept", "yes")], b"done");
        });
        let yaml = format!(
            "{top}upstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}}}\n\
             routes:\n  - {{name: api, upstream: api, {route}}}\n"
        );
        let gateway = Gateway::before(&upstream, &yaml);
        Self { upstream, gateway }
    }

    #[track_caller]
    fn seen(&self, target: &str, headers: &[(&str, &str)]) -> Seen {
        let answer = self.gateway.ask("GET", target, headers);
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        self.upstream.last()
    }
}

#[test]
fn request_headers_are_removed_set_and_added() {
    let one = One::with(
        "request_headers: {set: {X-Env: prod, X-Order: top}, remove: [X-Debug]}\n",
        "match: {path: \"/items/{id}\"}, request_headers: {remove: [Cookie], set: {X-Order: route, X-Id: \"{id}\", \
         X-Where: \"{method} {host}{path}?{query} {route} {scheme}\", X-Client: \"{client_ip}\", Host: api.internal}, \
         add: {Accept: text/x}}",
    );
    let headers = [
        ("cookie", "session=1"),
        ("x-debug", "1"),
        ("x-env", "client"),
        ("x_env", "client"),
        ("X-Env", "twice"),
        ("accept", "*/*"),
        ("connection", "x-env, x-order, x-client"),
    ];
    let seen = one.seen("/items/7?a=b", &headers).head;
    assert_eq!((seen.one("cookie"), seen.one("x-debug"), seen.one("x_env")), (None, None, None));
    assert_eq!((seen.one("x-env"), seen.one("x-order")), (Some("prod"), Some("route")));
    assert_eq!((seen.one("x-id"), seen.one("x-client")), (Some("7"), Some("127.0.0.1")));
    assert_eq!(seen.one("x-where"), Some("GET api.test/items/7?a=b api http"));
    assert_eq!((seen.one("host"), seen.one("x-forwarded-host")), (Some("api.internal"), Some("api.test")));
    assert_eq!(seen.all("accept"), ["*/*", "text/x"]);
    assert_eq!(seen.one("x-request-id").map(str::len), Some(16));
}

/// Headers are changed after the keys were taken: what is removed still counts.
#[test]
fn limits_see_the_request_as_it_came() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(
        &upstream,
        "limits: {per-tenant: {key: 'header:X-Tenant', rate: 1/h}, per-path: {key: path, rate: 100/h}}\n\
         upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
         routes:\n  - {name: api, upstream: api, limits: [per-tenant, per-path], request_headers: {remove: X-Tenant}, \
         match: {path: /v1/*}, rewrite: \"/{rest}\"}\n",
    );
    let ask = |tenant| gateway.ask("GET", "/v1/x", &[("x-tenant", tenant)]).status;
    assert_eq!([ask("a"), ask("a"), ask("b")], [200, 429, 200]);
    assert_eq!(upstream.last().head.one("x-tenant"), None);
    assert_eq!((upstream.last().target.as_str(), gateway.remaining("per-path", "%2Fv1%2Fx")), ("/x", 98));
}

/// All answers of a route are changed: the upstream's, its own, its refusals and errors; and those of no route.
#[test]
fn response_headers_are_changed_on_every_answer() {
    let upstream = Upstream::scripted(|exchange| exchange.answer(200, &[("server", "inside/1.0")], b"done"));
    let gateway = Setup::default().upstream(&upstream).value("nobody", "127.0.0.1:1").start(
        "limits: {one: {key: ip, rate: 1/h}}\n\
         response_headers: {set: {Strict-Transport-Security: max-age=60}, remove: [Server]}\n\
         upstreams: {api: {servers: [\"http://{upstream}\"]}, dead: {servers: [\"http://{nobody}\"]}}\n\
         routes:\n\
         - {name: api, match: {path: /api}, upstream: api, limits: [one], response_headers: {add: {X-Route: '{route}'}}}\n\
         - {name: dead, match: {path: /dead}, upstream: dead}\n\
         - {name: own, match: {path: /own}, respond: {status: 200}, response_headers: {set: {Cache-Control: no-cache}}}\n",
    );
    for (target, status) in [("/api", 200), ("/api", 429), ("/dead", 502), ("/own", 200), ("/none", 404)] {
        let answer = gateway.get(target);
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("strict-transport-security"), Some("max-age=60"), "{target} {status}");
        assert_eq!(answer.header("server"), None, "{target} {status}");
        assert_eq!(answer.header("x-route"), (target == "/api").then_some("api"));
    }
    assert_eq!(gateway.get("/own").header("cache-control"), Some("no-cache"));
}

#[test]
fn a_prefix_is_stripped_at_the_border_of_a_segment() {
    let one = One::new("strip_prefix: /api");
    for (target, forwarded) in [
        ("/api/x?q=1", "/x?q=1"),
        ("/api", "/"),
        ("/api?q", "/?q"),
        ("/api/", "/"),
        ("/apis/x", "/apis/x"),
        ("/x/api/y", "/x/api/y"),
        ("//api/./x", "/x"),
        ("/%61pi/x", "/x"),
        ("/api/api/x", "/api/x"),
        ("/api//evil.test", "/evil.test"),
    ] {
        assert_eq!(one.seen(target, &[]).target, forwarded, "{target}");
    }
}

#[test]
fn a_path_is_rewritten_by_a_template() {
    let one = One::new("match: {path: /v1/*}, rewrite: \"/v2/{rest}\"");
    for (target, forwarded) in [
        ("/v1/a/b?x=1", "/v2/a/b?x=1"),
        ("/v1", "/v2/"),
        ("/v1/", "/v2/"),
        ("/v1/%2e%2e/v1/x", "/v2/x"),
        ("/v1/a%20b", "/v2/a%20b"),
        ("/v1/a;x=1/b", "/v2/a;x=1/b"),
    ] {
        assert_eq!(one.seen(target, &[]).target, forwarded, "{target}");
    }
    let one = One::new("match: {path: \"/users/{id}\"}, rewrite: \"/user?id={id}&{query}\"");
    for (target, forwarded) in [
        ("/users/7", "/user?id=7&"),
        ("/users/7?a=b", "/user?id=7&a=b"),
        ("/users/7&admin=1", "/user?id=7%26admin%3D1&"),
        ("/users/a%26b", "/user?id=a%26b&"),
        ("/users/a+b", "/user?id=a%2Bb&"),
    ] {
        assert_eq!(one.seen(target, &[]).target, forwarded, "{target}");
    }
    let gone = One::new("rewrite: \"/x?\"");
    assert_eq!(gone.seen("/a?secret=1", &[]).target, "/x");
}

#[test]
fn a_path_is_rewritten_by_a_pattern() {
    let one = One::new("rewrite: {match: '^/files/(?<year>\\d{4})-(\\d\\d)/', to: /archive/$year/$2/$$}");
    for (target, forwarded) in [
        ("/files/2024-05/x?q=1", "/archive/2024/05/$x?q=1"),
        ("/files/24-05/x", "/files/24-05/x"),
        ("/files//2024-05/../2023-01/y", "/archive/2023/01/$y"),
    ] {
        assert_eq!(one.seen(target, &[]).target, forwarded, "{target}");
    }
}

/// A rewritten path stays inside of what the route says, or the request is answered 400 and forwarded nowhere.
/// Where a digit or a letter follows a group, its name stands in braces, with a dollar or without.
#[test]
fn groups_of_an_expression_stand_in_braces() {
    for to in ["/x/${1}0", "/x/$${1}0", "/x/{1}0", "/x/${id}0", "/x/{id}0"] {
        let one = One::new(&format!("rewrite: {{match: '^/(?<id>v[0-9])', to: '{to}'}}"));
        assert_eq!(one.seen("/v1/a", &[]).target, "/x/v10/a", "{to}");
    }
}

#[test]
fn a_rewritten_path_cannot_leave_its_prefix() {
    let one = One::new("rewrite: {match: '^/in/([^/]*)-([^/]*)', to: /out/$1$2}");
    assert_eq!(one.seen("/in/a-b", &[]).target, "/out/ab");
    for target in ["/in/.-./secret", "/in/.-", "/in/-.."] {
        let answer = one.gateway.get(target);
        assert_eq!(answer.status, 400, "{target}");
        answer.problem();
    }
    assert_eq!(one.upstream.seen().len(), 1);
}

#[test]
fn clients_are_redirected() {
    let gateway = Gateway::start(
        "routes:\n\
         - {name: old, match: {path: /old/*}, redirect: {status: 308, to: \"/new/{rest}\"}}\n\
         - {name: page, match: {path: \"/page/{id}\"}, redirect: {status: 301, to: \"https://docs.test/{id}?from={path}\"}}\n\
         - {name: loose, match: {path: /loose/*}, redirect: \"/{path}\"}\n\
         - {name: bare, match: {path: /bare}, redirect: \"https://{host}\"}\n\
         - {name: tls, redirect: \"https://{host}{path}\"}\n",
    );
    for (target, status, location) in [
        ("/old/a/b?x=1", 308, "/new/a/b?x=1"),
        ("/page/7?x=1", 301, "https://docs.test/7?from=/page/7"),
        ("/page/a&b", 301, "https://docs.test/a&b?from=/page/a%26b"),
        ("/a?b=c", 307, "https://api.test/a?b=c"),
        ("//evil.test/%2e%2e", 307, "https://api.test/"),
        ("/bare", 307, "https://api.test/"),
        ("/loose//evil.test", 307, "/loose/evil.test"),
        ("/x%20Set-Cookie:%20a=b?c=%0d%0ad", 307, "https://api.test/x%20Set-Cookie:%20a=b?c=%0d%0ad"),
    ] {
        let answer = gateway.get(target);
        assert_eq!((answer.status, answer.header("location")), (status, Some(location)), "{target}");
        assert_eq!((answer.body.len(), answer.head.all("set-cookie").len()), (0, 0));
    }
    let post = gateway.client().post("/x", &[("host", "Shop.Test:8080")], b"body");
    assert_eq!((post.status, post.header("location")), (307, Some("https://shop.test/x")));
    // As if Host had named it.
    let absolute = gateway.ask("GET", "http://shop.test/x", &[]);
    assert_eq!((absolute.status, absolute.header("location")), (307, Some("https://shop.test/x")));
}

/// No value that a token or a client chooses breaks a line, in any direction.
#[test]
fn values_cannot_inject_header_lines() {
    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    let one = One::with(
        &format!(
            "auth: {{jwt: {{secret: {SECRET}, require_exp: false, audience: a}}}}\n\
             response_headers: {{set: {{X-Me: '{{user}}', X-Org: '{{jwt:org}}'}}}}\n"
        ),
        "request_headers: {set: {X-Me: '{user}', X-Both: 'u {user}'}}",
    );
    let ask = |user: &str| {
        let claims = format!(r#"{{"sub":{user},"aud":"a","org":"o1"}}"#);
        let token =
            crate::harness::issuer::Signer::hs256(SECRET.as_bytes()).signed(r#"{"alg":"HS256"}"#, &claims);
        let bearer = format!("Bearer {token}");
        let answer =
            one.gateway.ask("GET", "/", &[("authorization", &bearer), ("x-me", "root"), ("x_me", "root")]);
        (answer, one.upstream.last().head)
    };
    let (answer, seen) = ask("\"ada\"");
    assert_eq!((answer.header("x-me"), answer.header("x-org")), (Some("ada"), Some("o1")));
    assert_eq!((seen.one("x-me"), seen.one("x-both"), seen.one("x_me")), (Some("ada"), Some("u ada"), None));
    let (answer, seen) = ask(r#""ada\r\nX-Admin: yes""#);
    assert_eq!((answer.header("x-me"), answer.header("x-admin")), (None, None));
    assert_eq!((seen.one("x-me"), seen.one("x-admin"), seen.one("x-both")), (None, None, None));
    let without = one.gateway.ask("GET", "/", &[("x-me", "root")]);
    assert_eq!((without.header("x-me"), one.upstream.last().head.one("x-me")), (None, None));
    assert_eq!(one.upstream.last().head.one("x-both"), Some("u"));
}

/// The configuration in force shows what is changed, and no value of a header: it may be a secret.
#[test]
fn the_configuration_dump_reveals_no_value() {
    let one = One::new("request_headers: {set: {Authorization: 'Basic c2VzYW1l'}}, strip_prefix: /api");
    let shown = one.gateway.admin_get("/config");
    let route = &shown.json()["routes"][0];
    assert_eq!(
        (&route["request_headers"]["set"][0], &route["strip_prefix"]),
        (&"authorization".into(), &"/api".into())
    );
    assert!(!shown.text().contains("c2VzYW1l"));
    assert_eq!(
        one.seen("/api/x", &[("authorization", "Bearer mine")]).head.one("authorization"),
        Some("Basic c2VzYW1l")
    );
}

/// Who is asking is told as it is proved, with what the file of consumers says of them.
#[test]
fn metadata_of_consumers_is_forwarded() {
    let upstream = Upstream::answering("done");
    // The digests of `a` and `b`.
    let consumers = "- {name: acme, key: \"sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\", metadata: {team: blue}}\n\
                     - {name: beta, key: \"sha256:3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d\"}\n";
    let gateway = Setup::default().upstream(&upstream).file("consumers.yaml", consumers).start(
        "auth: {api_key: {consumers: consumers.yaml}}\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
         routes: [{name: api, upstream: api, request_headers: {set: {X-Team: \"{metadata:team}\"}}}]\n",
    );
    for (key, team) in [("a", Some("blue")), ("b", None), ("c", None)] {
        gateway.ask("GET", "/", &[("x-api-key", key), ("x-team", "red")]);
        assert_eq!(upstream.last().head.one("x-team"), team, "{key}");
    }
}
