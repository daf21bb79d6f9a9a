//! Trace context (W3C) and request ids: an incoming trace is continued, and an id is kept.

use crate::harness::{Gateway, Upstream};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

struct One {
    upstream: Upstream,
    gateway: Gateway,
}

impl One {
    fn new(top: &str) -> Self {
        let upstream = Upstream::answering("done");
        let yaml = format!(
            "{top}\nupstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}}}\n\
             limits: {{none: {{key: ip, rate: 1/h}}}}\n\
             routes: [{{match: {{path: /limited}}, respond: {{status: 200}}, limits: [none]}}, {{name: api, upstream: api}}]\n"
        );
        let gateway = Gateway::before(&upstream, &yaml);
        Self { upstream, gateway }
    }

    /// The traceparent and tracestate that the upstream is told.
    fn shown(&self, headers: &[(&str, &str)]) -> (Option<String>, Vec<String>) {
        assert_eq!(self.gateway.ask("GET", "/", headers).status, 200);
        let head = self.upstream.last().head;
        let state = head.all("tracestate").iter().map(|line| (*line).to_owned()).collect();
        (head.one("traceparent").map(str::to_owned), state)
    }
}

/// The trace id, the span id and the flags of a traceparent, which has to be well-formed.
#[track_caller]
fn parts(traceparent: &str) -> (&str, &str, &str) {
    let parts: Vec<&str> = traceparent.split('-').collect();
    let hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let [version, trace, span, flags] = parts[..] else { panic!("{traceparent}") };
    assert!(version == "00" && hex(trace, 32) && hex(span, 16) && hex(flags, 2), "{traceparent}");
    assert!(trace.contains(|c| c != '0') && span.contains(|c| c != '0'));
    (trace, span, flags)
}

#[test]
fn an_incoming_trace_is_continued_with_a_new_span() {
    let one = One::new("");
    let (shown, state) = one.shown(&[("traceparent", PARENT), ("tracestate", "a=1,b=2")]);
    let shown = shown.unwrap();
    let (trace, span, flags) = parts(&shown);
    assert_eq!((trace, flags), (TRACE, "01"));
    assert_ne!(span, "00f067aa0ba902b7");
    assert_eq!(state, ["a=1,b=2"]);
    let (again, _) = one.shown(&[("traceparent", PARENT), ("connection", "traceparent, tracestate")]);
    let again = again.unwrap();
    assert_ne!(parts(&again).1, span, "a span for each request");
}

#[test]
fn a_malformed_trace_is_replaced_by_a_new_one() {
    let one = One::new("");
    let mut ids = std::collections::HashSet::new();
    for bad in [
        "",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        "nonsense",
    ] {
        let (shown, state) = one.shown(&[("traceparent", bad), ("tracestate", "a=1")]);
        let shown = shown.unwrap();
        let (trace, _, flags) = parts(&shown);
        assert!(trace != TRACE && flags == "00" && state.is_empty(), "{bad}: {shown} {state:?}");
        assert!(ids.insert(trace.to_owned()), "a trace for each request");
    }
    let twice = one.shown(&[("traceparent", PARENT), ("traceparent", PARENT)]).0.unwrap();
    assert_ne!(parts(&twice).0, TRACE);
    assert_ne!(parts(&one.shown(&[]).0.unwrap()).0, TRACE);
}

#[test]
fn the_size_of_tracestate_is_limited() {
    let one = One::new("");
    let entries: Vec<String> = (0..80).map(|n| format!("vendor{n:02}=12345")).collect();
    let (_, state) = one.shown(&[("traceparent", PARENT), ("tracestate", &entries.join(","))]);
    assert!(
        state.len() == 1 && state[0].len() <= 512 && state[0].starts_with("vendor00=12345,vendor01"),
        "{state:?}"
    );
}

#[test]
fn trust_in_incoming_traces_is_configured() {
    let sampled = One::new("trace: {accept: nobody, sampled: 100%}");
    let shown = sampled.shown(&[("traceparent", PARENT)]).0.unwrap();
    assert!(parts(&shown).0 != TRACE && parts(&shown).2 == "01");
    let none = One::new("trace: {create: false}");
    assert_eq!(none.shown(&[("tracestate", "a=1")]), (None, vec![]));
    assert_eq!(parts(&none.shown(&[("traceparent", PARENT)]).0.unwrap()).0, TRACE);
    let proxies = One::new("trace: {accept: trusted_proxies}\nclient_ip: {trusted_proxies: [127.0.0.2]}");
    assert_ne!(parts(&proxies.shown(&[("traceparent", PARENT)]).0.unwrap()).0, TRACE);
    let proxies = One::new("trace: {accept: trusted_proxies}\nclient_ip: {trusted_proxies: [127.0.0.1]}");
    assert_eq!(parts(&proxies.shown(&[("traceparent", PARENT)]).0.unwrap()).0, TRACE);
}

/// What a trusted proxy calls a request is its id everywhere: upstream and in every answer of the gateway's own.
#[test]
fn the_id_of_a_trusted_proxy_is_kept() {
    let behind = One::new("client_ip: {trusted_proxies: [127.0.0.1]}");
    let ask = |target, id| behind.gateway.ask("GET", target, &[("x-request-id", id)]);
    ask("/", "from-the-proxy.1");
    assert_eq!(behind.upstream.last().head.one("x-request-id"), Some("from-the-proxy.1"));
    assert_eq!(ask("/limited", "a").status, 200);
    let refused = ask("/limited", "refused-1");
    assert_eq!((refused.status, refused.problem()["request_id"].as_str()), (429, Some("refused-1")));
    let malformed = ask("/%2f", "bad-1");
    assert_eq!((malformed.status, malformed.problem()["request_id"].as_str()), (400, Some("bad-1")));
    for id in ["", "with space", "quo\"te", "<b>", &"x".repeat(129)] {
        let refused = ask("/limited", id);
        let own = refused.problem()["request_id"].as_str().map(str::to_owned);
        assert!(own.as_deref() != Some(id) && own.unwrap().len() == 16, "{id}");
    }
    let alone = One::new("");
    alone.gateway.get("/limited");
    let refused = alone.gateway.ask("GET", "/limited", &[("x-request-id", "mine")]);
    assert_ne!(refused.problem()["request_id"], "mine");
}
