//! `encoded_slash` of a route: what `%2F` in a path means.

use crate::harness::{Gateway, Upstream};

const FILE: &str = "limits: {one: {key: \"path:id\", rate: 100/day}, path: {key: path, rate: 100/day}}\n\
    upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes:\n  \
    - {name: project, match: {path: \"/projects/{id}\"}, upstream: api, encoded_slash: kept, limits: [one]}\n  \
    - {name: files, match: {path: /files/*}, upstream: api, encoded_slash: kept, limits: [path]}\n  \
    - {name: short, match: {path: /api/*}, upstream: api, encoded_slash: kept, strip_prefix: /api}\n  \
    - {name: tree, match: {path: \"/tree/{branch}/{file}\"}, upstream: api, encoded_slash: decoded, request_headers: {set: {X-File: \"{path:file}\"}}}\n  \
    - {name: rest, match: {path: /*}, upstream: api}\n";

/// A kept slash is a part of its segment for routes, keys and the upstream; a decoded one is a slash for all of them.
#[test]
fn encoded_slashes_are_kept_or_decoded() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FILE);
    for (path, forwarded) in [
        ("/projects/group%2Fsub%2fproject", "/projects/group%2Fsub%2Fproject"),
        ("/files/a%2Fb?x=%2F", "/files/a%2Fb?x=%2F"),
        ("/files/%2F/x", "/files/%2F/x"),
        ("//files/./%61%2Fb", "/files/a%2Fb"),
        ("/api/v1/a%2Fb", "/v1/a%2Fb"),
        ("/tree%2Fmain%2fx", "/tree/main/x"),
        ("/tree/main/x%2F..%2Fy", "400"),
        ("/files/a%2F..", "400"),
        ("/files/..%2Fadmin", "400"),
        ("/files/a%252Fb", "400"),
    ] {
        let answer = gateway.get(path);
        match forwarded {
            "400" => assert_eq!(answer.status, 400, "{path}"),
            forwarded => {
                assert_eq!(answer.status, 200, "{path}: {}", answer.text());
                assert_eq!(upstream.last().target, forwarded, "{path}");
            }
        }
    }
    assert_eq!(gateway.get("/tree%2Fmain/x").status, 200);
    assert_eq!(upstream.last().head.one("x-file"), Some("x"));
}

/// However a path with slashes is written, it has one counter.
#[test]
fn spellings_with_encoded_slashes_have_one_key() {
    let upstream = Upstream::answering("done");
    let gateway = Gateway::before(&upstream, FILE);
    for (path, left) in
        [("/files/a/b", 99), ("/files/a%2Fb", 98), ("/files/A%2fB", 97), ("/files/a%2F%2Fb", 96)]
    {
        assert_eq!(gateway.get(path).status, 200, "{path}");
        assert_eq!(gateway.remaining("path", "%2Ffiles%2Fa%2Fb"), left, "{path}");
    }
    assert_eq!(gateway.get("/projects/a%2Fb").status, 200);
    assert_eq!(gateway.remaining("one", "a%2Fb"), 99);
}

/// Where the route does not accept an encoded slash, the answer says so; what no route accepts has a reason of its own.
#[test]
fn a_refused_path_says_why() {
    let gateway = Gateway::before(&Upstream::answering("done"), FILE);
    for (path, why) in [
        ("/a%2Fb", "encoded slash (%2F)"),
        ("/tree/main/x%2Fy", "encoded slash (%2F)"),
        ("/a%5Cb", "backslash"),
        ("/a%00b", "control character"),
        ("/a%0db", "control character"),
    ] {
        let answer = gateway.get(path);
        assert!(answer.status == 400 && answer.text().contains(why), "{path}: {}", answer.text());
    }
}
