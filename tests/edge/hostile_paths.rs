//! No spelling of a path evades the limits of that path, however lax the upstream is; and no ordinary path is
//! refused.

use std::collections::BTreeSet;

use crate::harness::{Gateway, Setup, Upstream};

/// `/admin/secret` is limited, everything else is not, and one upstream serves both.
const FILE: &str = "limits: {l: {key: global, rate: 1/day}}\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
                    routes:\n  - {name: secret, match: {path: /admin/secret}, upstream: api, limits: [l]}\n  \
                    - {name: rest, match: {path: /*}, upstream: api}\n";

/// An upstream that says of every path whether some lax reading of it is `/admin/secret`.
fn lax() -> Upstream {
    Upstream::scripted(|exchange| {
        let body = if readings(&exchange.seen.target).contains("/admin/secret") { "secret" } else { "other" };
        exchange.answer(200, &[], body.as_bytes());
    })
}

/// All that lax servers may take a target for: decoded up to three times, with and without case, parameters, formats
/// and what stands around names, with backslashes as slashes, and dot segments resolved before or after.
fn readings(target: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut text = target.split(['?', '#']).next().unwrap().to_owned();
    for _ in 0..4 {
        for slashed in [text.clone(), text.replace('\\', "/")] {
            let cut = slashed.split(['?', '#', '\0']).next().unwrap().to_owned();
            for path in [slashed, cut] {
                for no_params in [path.clone(), without_params(&path)] {
                    let resolved = resolve(&no_params);
                    found.insert(trimmed(&resolved));
                    found.insert(trimmed(&no_params));
                    found.insert(resolve(&trimmed(&no_params)));
                    found.insert(resolve(&without_params(&resolved)));
                }
            }
        }
        text = decoded(&text);
    }
    let formats: Vec<String> =
        found.iter().filter_map(|path| path.rsplit_once('.').map(|(stem, _)| stem.to_owned())).collect();
    found.extend(formats.iter().flat_map(|path| [path.clone(), trimmed(path)]));
    found.into_iter().map(|path| path.trim_end_matches('/').to_owned()).collect()
}

fn without_params(path: &str) -> String {
    path.split('/').map(|segment| segment.split(';').next().unwrap()).collect::<Vec<_>>().join("/")
}

fn resolve(path: &str) -> String {
    let mut kept = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => _ = kept.pop(),
            name => kept.push(name),
        }
    }
    format!("/{}", kept.join("/"))
}

/// Lower case, with full-width letters as plain ones, and names without what stands around them.
fn trimmed(path: &str) -> String {
    let plain = |c: char| match c {
        '\u{ff01}'..='\u{ff5e}' => char::from((c as u32 - 0xfee0) as u8),
        'ſ' => 's',
        c => c.to_ascii_lowercase(),
    };
    let path: String = path.chars().map(plain).collect();
    let names = path.split('/').map(|name| name.trim_matches(|c: char| !c.is_alphanumeric()));
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    format!("/{}", names.join("/"))
}

fn decoded(text: &str) -> String {
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let escape = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escape.filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Ways to write `/admin/secret`, made of pieces that servers drop, resolve, decode or fold.
fn spellings() -> BTreeSet<String> {
    const DROPPED: [&str; 29] = [
        "",
        ".",
        "..",
        "%2e",
        "%2E%2e",
        "%252e",
        "%252e%252e",
        "..;",
        ".;",
        ";",
        ";x",
        ";x=1",
        "%3b",
        "%3bx",
        "x/..",
        "x/..;",
        "%20",
        "%09",
        "%0d",
        "%00",
        "%ff",
        "*",
        "~",
        "&",
        "%26",
        "..%20",
        "...",
        "%c0%ae",
        "%EF%BC%8E",
    ];
    const SLASHES: [&str; 12] =
        ["/", "//", "/./", "%2f", "%2F%2f", "/%2F", "%2F./", "%252f", "\\", "%5c", "%255c", "%c0%af"];
    const ENDS: [&str; 50] = [
        "/",
        "//",
        "/.",
        "/./",
        "/..;/",
        "..;/",
        ".",
        "..",
        "...",
        "~",
        "#",
        "#x",
        "?",
        "??",
        "?x=1",
        "%3f",
        "%3fx",
        "%23",
        "%2523",
        "%253f",
        "&",
        "%26",
        "*",
        "/*",
        "%20",
        "%2520",
        "%20/",
        "+",
        "%09",
        "%0a",
        "%00",
        "%2500",
        "%25",
        ";",
        ";x",
        ";x=1",
        "%3b",
        "%253bx",
        ".json",
        ".JSON",
        ".html",
        ".random",
        "/.json",
        "%C2%B0",
        "%20.json",
        "%2520.json",
        "%20%252ejson",
        "/%20.json",
        "/%252ejson",
        "/./%252Ejson",
    ];
    let mut all = BTreeSet::new();
    for slash in SLASHES {
        all.insert(format!("/admin{slash}secret"));
        all.insert(format!("{slash}admin/secret"));
        for dropped in DROPPED {
            all.insert(format!("/admin/{dropped}{slash}secret"));
            all.insert(format!("/admin{slash}{dropped}secret"));
            all.insert(format!("/{dropped}{slash}admin/secret"));
            all.insert(format!("/admin{dropped}{slash}secret"));
        }
    }
    for end in ENDS {
        all.insert(format!("/admin/secret{end}"));
        all.insert(format!("/ADMIN/secret{end}"));
        all.insert(format!("/admin{end}/secret"));
        all.insert(format!("/%2561dmin/%73ecret{end}"));
    }
    for at in 1.."/admin/secret".len() {
        let path = "/admin/secret";
        let (before, letter, after) = (&path[..at], &path[at..=at], &path[at + 1..]);
        let code = letter.as_bytes()[0];
        let wide = char::from_u32(0xfee0 + u32::from(code)).unwrap();
        let wide: String = wide.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect();
        for other in [
            letter.to_uppercase(),
            format!("%{code:02x}"),
            format!("%25{code:02x}"),
            format!("%2525{code:02x}"),
            format!("%{:02x}", code.to_ascii_uppercase()),
            wide,
        ] {
            all.insert(format!("{before}{other}{after}"));
        }
    }
    all.insert("/admin/%C5%BFecret".to_owned());
    all
}

/// When the limit is spent, no spelling gets what it guards: each is counted as the path, or refused. So it is whatever encoded
/// slashes mean to the two routes.
#[test]
fn no_spelling_evades_a_limit() {
    for (secret, rest) in [
        ("refused", "refused"),
        ("refused", "kept"),
        ("refused", "decoded"),
        ("kept", "kept"),
        ("decoded", "decoded"),
        ("decoded", "kept"),
        ("kept", "decoded"),
    ] {
        let file = FILE
            .replace("upstream: api, limits", &format!("upstream: api, encoded_slash: {secret}, limits"))
            .replace(
                "path: /*}, upstream: api",
                &format!("path: /*}}, upstream: api, encoded_slash: {rest}"),
            );
        assert_no_spelling_evades_the_limit(&file);
    }
}

fn assert_no_spelling_evades_the_limit(file: &str) {
    let upstream = lax();
    let gateway = Gateway::before(&upstream, file);
    assert_eq!(gateway.get("/admin/secret").text(), "secret");
    let all = spellings();
    let meant = all.iter().filter(|path| readings(path).contains("/admin/secret")).count();
    assert!(all.len() > 1000 && meant > 600, "{meant} of {}", all.len());
    let (mut client, mut past) = (gateway.client(), Vec::new());
    for path in &all {
        let answer = client.ask("GET", path, &[]);
        match answer.status {
            200 if answer.text() == "secret" => past.push(path),
            200 | 429 => {}
            400 => client = gateway.client(),
            status => panic!("{path} is answered {status}"),
        }
    }
    assert!(past.is_empty(), "{} of {} spellings: {past:#?} with {file}", past.len(), all.len());
}

/// All spellings of a path spend from one counter, also where its key is the path.
#[test]
fn all_spellings_share_one_key() {
    let upstream = lax();
    let file = FILE
        .replace("key: global, rate: 1/day", "key: [ip, path], rate: 1000/day")
        .replace("match: {path: /*}, upstream: api}", "match: {path: /*}, upstream: api, limits: [l]}");
    let gateway = Gateway::before(&upstream, &file);
    let mut spent = 0;
    for path in [
        "/admin/secret",
        "/Admin/Secret",
        "/admin/secret/",
        "/admin/secret;x=1",
        "/admin;x/secret",
        "/admin/secret.",
        "/admin/secret%20",
        "/admin/secret.json",
        "/admin/%2573ecret",
        "/admin/secret%3Fx",
        "/admin/%73ecret",
        "/admin//secret",
        "/admin/.json/../secret",
    ] {
        assert_eq!(gateway.get(path).status, 200, "{path}");
        spent += 1;
        assert_eq!(gateway.remaining("l", "127.0.0.1,%2Fadmin%2Fsecret"), 1000 - spent, "{path}");
    }
    // Below a pattern that is open as well.
    for (path, left) in
        [("/v1/Items", 999), ("/v1/items/", 998), ("/V1/items;a=b", 997), ("/v1/%2569tems", 996)]
    {
        assert_eq!(gateway.get(path).status, 200, "{path}");
        assert_eq!(gateway.remaining("l", "127.0.0.1,%2Fv1%2Fitems"), left, "{path}");
    }
    assert_eq!(gateway.get("/v1/other").status, 200);
    assert_eq!(
        gateway.remaining("l", "127.0.0.1,%2Fv1%2Fother"),
        999,
        "another path has a counter of its own"
    );
}

/// Parameters of a path are one key in all spellings too.
#[test]
fn parameters_have_one_key() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(
        &upstream,
        "limits: {l: {key: \"path:id\", rate: 100/day}}\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes:\n  \
         - {name: user, match: {path: \"/users/{id}\"}, upstream: api, limits: [l]}\n  \
         - {name: rest, match: {path: /*}, upstream: api}\n",
    );
    for (path, left) in [
        ("/users/ada", 99),
        ("/users/Ada", 98),
        ("/users/ada;x", 97),
        ("/users/ada.", 96),
        ("/users/ada/", 95),
        ("/USERS/ada", 94),
        ("/users/%2561da", 93),
    ] {
        assert_eq!(gateway.get(path).status, 200, "{path}");
        assert_eq!(gateway.remaining("l", "ada"), left, "{path}");
    }
    assert_eq!(gateway.get("/users/ada.l").status, 200);
    assert_eq!(gateway.remaining("l", "ada"), 93, "/users/ada.l is somebody else");
}

/// A request with a near spelling goes where its own route leads, as it is written, under the limits of both.
#[test]
fn an_ambiguous_spelling_is_under_both_limits_and_is_forwarded_as_written() {
    let (own, other) = (Upstream::answering("own"), Upstream::answering("other"));
    let file = "limits: {l: {key: global, rate: 10/day}, all: {key: ip, rate: 100/day}}\n\
                upstreams: {api: {servers: [\"http://{upstream}\"]}, site: {servers: [\"http://{other}\"]}}\n\
                routes:\n  - {name: login, match: {path: /login, methods: [POST]}, upstream: api, limits: [l]}\n  \
                - {name: page, match: {path: /login.html}, upstream: api, limits: [all]}\n  \
                - {name: assets, match: {path: /*, methods: [GET]}, upstream: site, limits: [all]}\n  \
                - {name: rest, match: {path: /*}, upstream: api, limits: [all]}\n";
    let gateway = Setup::default().upstream(&own).value("other", other.address).start(file);
    let left = || (gateway.remaining("l", "any"), gateway.remaining("all", "127.0.0.1"));
    assert_eq!(gateway.ask("POST", "/Login", &[]).text(), "own");
    assert_eq!(own.last().target, "/Login", "it is forwarded as it is written");
    assert_eq!(left(), (9, 99));
    assert_eq!(gateway.ask("POST", "/login.html", &[]).text(), "own");
    assert_eq!(left(), (9, 98), "a path that the file writes out is that path alone");
    assert_eq!(gateway.get("/login.js").text(), "other");
    assert_eq!(left(), (9, 97), "another upstream has another /login, and GET is another request");
    assert_eq!(gateway.ask("POST", "/logins", &[]).text(), "own");
    assert_eq!(gateway.ask("POST", "/login/x", &[]).text(), "own");
    assert_eq!(left(), (9, 95), "these are other paths");
}

/// Whom a route does not let in comes in under no other spelling.
#[test]
fn lists_apply_to_every_spelling() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(
        &upstream,
        "lists: {office: [192.0.2.0/24]}\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes:\n  \
         - {name: admin, match: {path: /admin/*}, upstream: api, allow: office}\n  \
         - {name: rest, match: {path: /*}, upstream: api}\n",
    );
    for path in ["/admin", "/admin/x", "/ADMIN/x", "/admin;x/x", "/%2561dmin/x", "/admin./x", "/admin.json"] {
        assert_eq!(gateway.get(path).status, 403, "{path}");
    }
    assert_eq!(gateway.get("/administration").status, 200);
}

/// `spelling: exact` means the path as it is written, and lets through what is doubtful elsewhere.
#[test]
fn exact_spelling_matches_only_as_written() {
    let upstream = Upstream::answering("done");
    let file = FILE
        .replace("path: /admin/secret}", "path: /admin/secret, spelling: exact}")
        .replace("path: /*}", "path: /*, spelling: exact}");
    let gateway = Gateway::before(&upstream, &file);
    assert_eq!(gateway.get("/admin/secret").status, 200);
    assert_eq!(gateway.get("/admin/%73ecret").status, 429, "the normal form is one for all");
    for path in ["/Admin/secret", "/admin/secret/", "/admin/secret;x", "/job/a%252Fb", "/admin/secret.json"] {
        assert_eq!(gateway.get(path).status, 200, "{path}");
        assert_eq!(upstream.last().target, path);
    }
    assert_eq!(gateway.get("/admin/secret%00").status, 400);
}

/// What ordinary APIs are asked for goes through as it came, and costs no other route anything.
#[test]
fn ordinary_paths_are_not_ambiguous() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FILE);
    for path in [
        "/",
        "/index.html",
        "/v1/Users/aBcD",
        "/users/john.doe",
        "/users/ada@example.com",
        "/a%20b/c%20d.pdf",
        "/-/health",
        "/~ada",
        "/@ada",
        "/items:batchGet",
        "/Products(7)",
        "/Products('a')",
        "/C%23",
        "/what%3F",
        "/100%25",
        "/a+b",
        "/%E6%97%A5%E6%9C%AC",
        "/%C3%A9t%C3%A9",
        "/%E4",
        "/.well-known/acme-challenge/x",
        "/matrix;v=1;w=2/x",
        "/a,b,c",
        "/admin",
        "/admin/",
        "/admin/secrets",
        "/admin/secret/x",
        "/v1..v2",
        "/a_b-c",
        "/x*y",
        "/2024-01-01T00:00:00Z",
        "/static/App.8f3c.js",
        "/eyJhbGciOiJub25lIn0=.x",
        "/*",
        "/$metadata",
        "/a!b",
    ] {
        assert_eq!(gateway.get(path).status, 200, "{path}");
        assert_eq!(upstream.last().target, path);
    }
    assert_eq!(gateway.remaining("l", "any"), 1);
}
