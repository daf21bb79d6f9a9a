//! What clients are told about their limits: the headers of every answer, the forms of a refusal, and that refusals
//! reach clients that still upload.

use std::io::Write;

use crate::harness::{Client, Gateway, Response, Upstream, measure, patience};

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// One route that answers by itself, under the limits named.
fn route(limits: &str, text: &str, more: &str) -> String {
    format!(
        "limits:\n{text}\nroutes:\n  - name: all\n    match: {{path: /*}}\n    \
         respond: {{status: 200, body: \"here\\n\"}}\n    limits: [{limits}]\n{more}"
    )
}

/// The answer to the request after `count` others, and the whole seconds that passed meanwhile, by which the times in it may
/// be shorter.
fn after(gateway: &Gateway, count: usize, headers: &[(&str, &str)]) -> (Response, u64) {
    let mut client = gateway.client();
    let (answer, took) = measure(|| {
        (0..count).for_each(|_| _ = client.ask("GET", "/", headers));
        client.ask("GET", "/", headers)
    });
    (answer, took.as_secs())
}

/// An admitted answer carries both families, with the numbers of the limit that it came under.
#[test]
fn an_admitted_answer_says_what_is_left() {
    let gateway = Gateway::start(&route("per-key", "  per-key: {key: api_key, rate: 10/h}", ""));
    let (answer, passed) = after(&gateway, 2, &[("x-api-key", "k")]);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.number("x-ratelimit-limit"), 10);
    assert_eq!(answer.number("x-ratelimit-remaining"), 7);
    let reset = answer.number("x-ratelimit-reset");
    assert!((1_080 - passed..=1_080).contains(&reset), "three of ten an hour, rounded up: {reset}");
    assert_eq!(answer.header("ratelimit-policy"), Some("\"per-key\";q=10;w=3600"));
    assert_eq!(answer.header("ratelimit"), Some(format!("\"per-key\";r=7;t={reset}").as_str()));
    assert_eq!((answer.header("retry-after"), answer.header("x-ratelimit-retry-after")), (None, None));
    assert_eq!(answer.text(), "here\n");
}

/// X-RateLimit-Limit is the rate's count, or the bucket's size where that is larger; the policy is the rate, or the larger
/// bucket and the time that fills it.
#[test]
fn the_limit_shown_is_the_larger_of_rate_and_burst() {
    for (burst, shown, left, window) in [(4, 10, 3, 60), (25, 25, 24, 150)] {
        let gateway =
            Gateway::start(&route("l", &format!("  l: {{key: ip, rate: 10/min, burst: {burst}}}"), ""));
        let answer = gateway.get("/");
        assert_eq!(answer.number("x-ratelimit-limit"), shown);
        assert_eq!(answer.number("x-ratelimit-remaining"), left);
        assert_eq!(answer.number("x-ratelimit-reset"), 6);
        let policy = format!("\"l\";q={shown};w={window}");
        assert_eq!(answer.header("ratelimit-policy"), Some(policy.as_str()));
    }
}

/// RateLimit never says that more is left than RateLimit-Policy allows, whatever the algorithm, and however
/// short the period.
#[test]
fn what_is_left_is_never_more_than_the_policy() {
    for (limit, policy, left) in [
        ("rate: 2/s, burst: 12", "q=12;w=6", 11),
        ("rate: 10/1h, burst: 12, candidate: {rate: 10/h, burst: 50}", "q=12;w=4320", 11),
        ("rate: 5/500ms, burst: 30", "q=30;w=3", 29),
        ("rate: 5/500ms", "q=10;w=1", 4),
        ("algorithm: leaky_bucket, rate: 2/s, burst: 12", "q=12;w=6", 11),
        ("algorithm: leaky_bucket, rate: 2/s, burst: 12, max_delay: 1s", "q=12;w=6", 2),
        ("algorithm: fixed_window, rate: 12/day", "q=12;w=86400", 11),
        ("algorithm: sliding_log, rate: 12/h", "q=12;w=3600", 11),
        ("algorithm: sliding_window, rate: 12/h", "q=12;w=3600", 11),
        ("algorithm: concurrency, max: 12", "q=12;qu=\"concurrent-requests\"", 11),
    ] {
        let gateway = Gateway::start(&route("l", &format!("  l: {{key: ip, {limit}}}"), ""));
        let answer = gateway.get("/");
        assert_eq!(answer.header("ratelimit-policy"), Some(format!("\"l\";{policy}").as_str()), "{limit}");
        assert!(answer.header("ratelimit").unwrap().starts_with(&format!("\"l\";r={left};")), "{limit}");
    }
}

/// A refusal is the whole of it: status, both families, Retry-After, no-store, and a problem.
#[test]
fn a_refusal_says_when_to_come_back() {
    let gateway = Gateway::start(&route("per-key", "  per-key: {key: api_key, rate: 2/h}", ""));
    let (refused, passed) = after(&gateway, 2, &[("x-api-key", "k")]);
    assert_eq!(refused.status, 429);
    assert_eq!(refused.head.first, "HTTP/1.1 429 Too Many Requests");
    let wait = refused.number("retry-after");
    assert!((1_800 - passed..=1_800).contains(&wait), "{wait}");
    assert_eq!(refused.number("x-ratelimit-retry-after"), wait);
    assert_eq!(refused.number("x-ratelimit-limit"), 2);
    assert_eq!(refused.number("x-ratelimit-remaining"), 0);
    let reset = refused.number("x-ratelimit-reset");
    assert!((3_600 - passed..=3_600).contains(&reset), "{reset}");
    assert_eq!(refused.header("ratelimit-policy"), Some("\"per-key\";q=2;w=3600"));
    assert!(refused.header("ratelimit").unwrap().starts_with("\"per-key\";r=0;t="), "{refused:?}");
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    let problem = refused.problem();
    assert_eq!(problem["type"], QUOTA_EXCEEDED);
    assert_eq!(problem["violated-policies"], serde_json::json!(["per-key"]));
}

/// Retry-After is whole seconds, rounded up, and never less than one.
#[test]
fn retry_after_is_at_least_a_second() {
    let gateway = Gateway::start(&route("l", "  l: {key: ip, rate: 2/s, burst: 1}", ""));
    let mut client = gateway.client();
    let refused = (0..1_000).map(|_| client.get("/")).find(|answer| answer.status == 429).unwrap();
    assert_eq!((refused.number("retry-after"), refused.number("x-ratelimit-reset")), (1, 1));
    assert_eq!(refused.header("ratelimit"), Some("\"l\";r=0;t=1"));
}

/// Of several limits the headers speak of the one closest to its end, and the policies are all of them.
#[test]
fn headers_speak_of_the_limit_closest_to_its_end() {
    let limits = "  small: {key: ip, rate: 4/min}\n  large: {key: global, rate: 1000/h}";
    let gateway = Gateway::start(&route("large, small", limits, ""));
    let answer = gateway.get("/");
    assert_eq!(answer.number("x-ratelimit-limit"), 4);
    assert!(answer.header("ratelimit").unwrap().starts_with("\"small\";r=3;"));
    assert_eq!(answer.header("ratelimit-policy"), Some("\"large\";q=1000;w=3600, \"small\";q=4;w=60"));
}

/// Of several limits that refuse, the answer speaks of the one that refuses longest, and names them all.
#[test]
fn a_refusal_speaks_of_the_limit_that_refuses_longest() {
    let limits =
        "  minute: {key: ip, rate: 1/min}\n  hour: {key: ip, rate: 1/h}\n  wide: {key: ip, rate: 100/h}";
    let gateway = Gateway::start(&route("minute, hour, wide", limits, ""));
    let (refused, passed) = after(&gateway, 1, &[]);
    assert_eq!(refused.status, 429);
    let wait = refused.number("retry-after");
    assert!((3_600 - passed..=3_600).contains(&wait), "{wait}");
    assert!(refused.header("ratelimit").unwrap().starts_with("\"hour\";r=0;"));
    assert_eq!(refused.problem()["violated-policies"], serde_json::json!(["minute", "hour"]));
}

/// What an API says of limits under the same names does not reach the client beside the gateway's own words.
#[test]
fn an_api_cannot_contradict_the_gateways_numbers() {
    let upstream = Upstream::scripted(|exchange| {
        let headers = [
            ("X-RateLimit-Limit", "999"),
            ("RateLimit", "\"x\";r=999;t=1"),
            ("X-RateLimit-Remaining", "998"),
        ];
        exchange.answer(200, &headers, b"");
    });
    let gateway = Gateway::before(
        &upstream,
        "limits: {l: {key: ip, rate: 10/min}}\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api, limits: [l]}]\n",
    );
    let answer = gateway.get("/");
    assert_eq!((answer.number("x-ratelimit-limit"), answer.number("x-ratelimit-remaining")), (10, 9));
    assert_eq!(answer.header("ratelimit"), Some("\"l\";r=9;t=6"));
}

/// The headers of a limit are on the gateway's own errors too, because the request was counted.
#[test]
fn an_error_of_the_api_is_counted_and_has_limit_headers() {
    let upstream = Upstream::scripted(|exchange| exchange.close());
    let gateway = Gateway::before(
        &upstream,
        "limits: {l: {key: ip, rate: 10/min}}\nupstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
         routes: [{name: api, match: {path: /*}, upstream: api, limits: [l]}]\n",
    );
    let answer = gateway.get("/");
    assert_eq!((answer.status, answer.number("x-ratelimit-remaining")), (502, 9));
}

/// A refused gRPC call gets its status without a body: RESOURCE_EXHAUSTED and when to try again.
#[test]
fn a_refused_grpc_call_is_resource_exhausted() {
    let gateway = Gateway::start(&route("l", "  l: {key: ip, rate: 2/h}", ""));
    for kind in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
        let (refused, _) = after(&gateway, 2, &[("content-type", kind)]);
        assert_eq!(refused.status, 200, "{kind}");
        assert_eq!(refused.header("grpc-status"), Some("8"));
        assert_eq!(refused.header("content-type"), Some("application/grpc"));
        let pushback = refused.number("grpc-retry-pushback-ms");
        assert!((1_700_000..=1_800_000).contains(&pushback), "{pushback}");
        assert!(refused.body.is_empty());
    }
    let other = gateway.ask("GET", "/", &[("content-type", "application/grpcx")]);
    assert_eq!(other.status, 429, "that is no gRPC");
}

/// `headers` chooses the families for all routes, and a route chooses for itself.
#[test]
fn families_of_headers_can_be_chosen() {
    let families = [
        (
            "x-ratelimit",
            ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-ratelimit-retry-after"]
                .as_slice(),
        ),
        ("ietf", &["ratelimit", "ratelimit-policy"]),
        ("retry-after", &["retry-after"]),
    ];
    for (chosen, own) in families {
        let route = "limits: {l: {key: ip, rate: 1/min}}\nheaders: [HEADERS]\n\
                     routes:\n  - {name: a, match: {path: /a}, respond: {status: 200}, limits: [l]}\n  \
                     - {name: b, match: {path: /b}, respond: {status: 200}, limits: [l], headers: []}\n";
        let gateway = Gateway::start(&route.replace("HEADERS", chosen));
        assert_eq!(gateway.get("/a").status, 200);
        let (refused, silent) = (gateway.get("/a"), gateway.get("/b"));
        assert_eq!((refused.status, silent.status), (429, 429));
        for name in families.iter().flat_map(|(_, names)| *names) {
            assert_eq!(refused.header(name).is_some(), own.contains(name), "{name} where {chosen} is chosen");
            assert_eq!(silent.header(name), None, "{name} where the route chose nothing");
        }
    }
}

/// `reject` replaces the answer, with its placeholders filled in.
#[test]
fn a_route_can_replace_the_refusal() {
    let reject = "    reject: {status: 503, body: \"{limit} is full, wait {retry_after} s ({request_id})\", \
                  content_type: text/html}\n";
    let gateway = Gateway::start(&route("l", "  l: {key: ip, rate: 1/h}", reject));
    let (refused, passed) = after(&gateway, 1, &[]);
    assert_eq!((refused.status, refused.header("content-type")), (503, Some("text/html")));
    let id = refused.header("x-request-id").unwrap();
    let wait = refused.number("retry-after");
    assert!((3_600 - passed..=3_600).contains(&wait), "{wait}");
    assert_eq!(refused.text(), format!("l is full, wait {wait} s ({id})"));
    assert_eq!(refused.header("cache-control"), Some("no-store"));
}

/// A refused HEAD has the headers and no body, and the connection lives on.
#[test]
fn a_refused_head_has_no_body() {
    let gateway = Gateway::start(&route("l", "  l: {key: ip, rate: 1/h}", ""));
    let mut client = gateway.client();
    assert_eq!(client.ask("HEAD", "/", &[]).status, 200);
    let refused = client.ask("HEAD", "/", &[]);
    assert_eq!(refused.status, 429);
    assert!((3_500..=3_600).contains(&refused.number("retry-after")), "{refused:?}");
    assert_eq!(client.get("/").status, 429);
}

const FIVE_MEGABYTES: usize = 5_000_000;

fn full() -> (Gateway, Client, String) {
    let gateway = Gateway::start(&route("l", "  l: {key: ip, rate: 1/h}", ""));
    assert_eq!(gateway.get("/").status, 200);
    let client = gateway.client();
    (gateway, client, FIVE_MEGABYTES.to_string())
}

/// A client that sends all of 5 MB before it reads gets the 429, not a reset, and can go on.
#[test]
fn a_refusal_reaches_a_client_that_uploads_before_it_reads() {
    let (_gateway, mut client, length) = full();
    client.request("POST", "/", &[("content-length", &length)]).send(vec![b'x'; FIVE_MEGABYTES]);
    let refused = client.response();
    assert_eq!((refused.status, refused.problem()["type"].as_str()), (429, Some(QUOTA_EXCEEDED)));
    assert_eq!(client.get("/").status, 429, "the connection lives on");
}

/// The same with a chunked upload.
#[test]
fn a_refusal_reaches_a_client_that_uploads_in_chunks() {
    let (_gateway, mut client, _) = full();
    client.request("POST", "/", &[("transfer-encoding", "chunked")]);
    for _ in 0..5 {
        client.send("f4240\r\n").send(vec![b'x'; 1_000_000]).send("\r\n");
    }
    assert_eq!(client.send("0\r\n\r\n").response().status, 429);
    assert_eq!(client.get("/").status, 429, "the connection lives on");
}

/// A client that reads while it uploads learns of the refusal before it has sent everything.
#[test]
fn a_refusal_comes_while_the_client_still_uploads() {
    let (_gateway, mut client, length) = full();
    client.request("POST", "/", &[("content-length", &length)]).send(vec![b'x'; 1_000]);
    let (refused, took) = measure(|| client.response());
    assert_eq!(refused.status, 429);
    assert!(took < patience(9), "it does not wait for the body, for which there are 30 s: {took:?}");
    let mut writer = client.writer();
    let rest = std::thread::spawn(move || writer.write_all(&vec![b'x'; FIVE_MEGABYTES - 1_000]).is_ok());
    if rest.join().unwrap() {
        assert_eq!(client.get("/").status, 429, "who sends the rest can go on");
    }
}

/// A client that asks before it uploads is refused at once and never told to continue.
#[test]
fn a_refused_upload_gets_no_continue() {
    let (_gateway, mut client, length) = full();
    client.request("POST", "/", &[("content-length", &length), ("expect", "100-continue")]);
    assert_eq!(client.response().status, 429);
}

/// A client that uploads to a route that answers by itself gets that answer.
#[test]
fn an_answer_of_the_gateway_reaches_a_client_that_uploads() {
    let gateway = Gateway::start(&route("l", "  l: {key: ip, rate: 100/h}", ""));
    let mut client = gateway.client();
    assert_eq!(client.post("/", &[], &vec![b'x'; FIVE_MEGABYTES]).text(), "here\n");
    assert_eq!(client.get("/").status, 200, "the connection lives on");
}
