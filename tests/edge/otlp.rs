//! Traces and metrics for a collector of OpenTelemetry, which here decodes what it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::{Gateway, Seen, Setup, Upstream, deadline, until};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A collector that answers 200.
fn collector() -> Upstream {
    Upstream::scripted(|exchange| {
        exchange.body().unwrap();
        exchange.answer(200, &[("content-type", "application/json")], b"{}");
    })
}

fn file(collector: &str, more: &str) -> String {
    format!(
        "access_log: off\ntelemetry: {{otlp: {{url: \"http://{collector}\"{more}}}}}\n\
         limits: {{one: {{key: api_key, rate: 1/day, on_missing: skip}}, watched: {{key: ip, rate: 1/day, mode: shadow}}}}\n\
         upstreams: {{gone: {{servers: ['http://127.0.0.1:9']}}}}\n\
         routes:\n  - {{name: orders, match: {{path: /orders/*}}, respond: {{status: 200}}, limits: [one, watched]}}\n  \
         - {{name: gone, match: {{path: /gone}}, upstream: gone}}\n"
    )
}

fn gateway(collector: &Upstream, more: &str) -> Gateway {
    Setup::default().value("collector", collector.address).start(&file("{collector}", more))
}

/// The bodies that came for a signal. That of a request is empty until all of it has come.
fn messages(collector: &Upstream, signal: &str) -> Vec<Value> {
    let has_come = |seen: &Seen| seen.target.ends_with(signal) && !seen.body.is_empty();
    let seen = collector.seen().into_iter().filter(has_come);
    seen.map(|seen| serde_json::from_slice(&seen.body).unwrap()).collect()
}

/// The spans that came, by the status of the answer: those of several workers come in any order.
fn spans(collector: &Upstream) -> Vec<Value> {
    let all =
        |message: Value| message["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
    let mut spans: Vec<Value> = messages(collector, "/v1/traces").into_iter().flat_map(all).collect();
    spans.sort_by_key(|span| attributes(span)["http.response.status_code"].as_u64());
    spans
}

/// The attributes of a span, a point or a resource by name.
fn attributes(of: &Value) -> Value {
    let value = |value: &Value| {
        let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
        match kind.as_str() {
            "intValue" => value.as_str().unwrap().parse::<u64>().unwrap().into(),
            "arrayValue" => {
                value["values"].as_array().unwrap().iter().map(|one| one["stringValue"].clone()).collect()
            }
            _ => value.clone(),
        }
    };
    let all = of["attributes"].as_array().unwrap().iter();
    all.map(|one| (one["key"].as_str().unwrap().to_owned(), value(&one["value"]))).collect()
}

/// One span for each request of a sampled trace, with the route, the limit and the verdict; none for others.
#[test]
fn a_sampled_request_is_a_span() {
    let collector = collector();
    let gateway = gateway(&collector, ", service_name: edge, headers: {Authorization: Bearer s3cret}");
    let sampled = [("traceparent", PARENT), ("x-api-key", "k1"), ("user-agent", "shop/2.1")];
    assert_eq!(gateway.ask("GET", "/orders/7?card=4111", &sampled).status, 200);
    let refusal = gateway.ask("GET", "/orders/8", &sampled);
    assert_eq!(refusal.status, 429);
    assert_eq!(gateway.ask("GET", "/gone", &[("traceparent", PARENT)]).status, 502);
    assert_eq!(
        gateway.ask("GET", "/orders/9", &[("traceparent", &PARENT.replace("-01", "-00"))]).status,
        200
    );
    assert_eq!(gateway.ask("GET", "/orders/9", &[("x-api-key", "k2")]).status, 200);
    let spans = until("three spans", || Some(spans(&collector)).filter(|spans| spans.len() >= 3));
    assert_eq!(spans.len(), 3, "{spans:#?}");
    for span in &spans {
        assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!((&span["parentSpanId"], &span["kind"]), (&json!("00f067aa0ba902b7"), &json!(2)));
        let id = span["spanId"].as_str().unwrap();
        assert!(id.len() == 16 && id != "0000000000000000");
        let [begun, ended] = ["startTimeUnixNano", "endTimeUnixNano"]
            .map(|name| span[name].as_str().unwrap().parse::<u64>().unwrap());
        assert!(begun > 1_700_000_000_000_000_000 && begun <= ended && ended - begun < 10_000_000_000);
    }
    let [good, refused, failed] = [0, 1, 2].map(|at| attributes(&spans[at]));
    assert_eq!(spans[0]["name"], "GET /orders/*");
    for (name, value) in [
        ("http.request.method", json!("GET")),
        ("url.path", json!("/orders/7")),
        ("http.response.status_code", json!(200)),
        ("client.address", json!("127.0.0.1")),
        ("sluicegate.route", json!("orders")),
        ("sluicegate.outcome", json!("admitted")),
        ("sluicegate.limit.name", json!("one")),
        ("http.route", json!("/orders/*")),
        ("network.protocol.name", json!("http")),
        ("network.protocol.version", json!("1.1")),
        ("network.peer.address", json!("127.0.0.1")),
        ("user_agent.original", json!("shop/2.1")),
        ("sluicegate.limit.remaining", json!(0)),
    ] {
        assert_eq!(good[name], value, "{name}");
    }
    assert_eq!(refused["sluicegate.outcome"], "refused");
    assert_eq!(refused["sluicegate.request_id"], refusal.header("x-request-id").unwrap());
    assert_eq!(
        (&refused["sluicegate.reason"], &refused["sluicegate.limit.name"]),
        (&json!("limit"), &json!("one"))
    );
    assert_eq!(refused["sluicegate.shadow"], json!(["watched"]));
    assert!(refused["sluicegate.retry_after"].as_f64().unwrap() > 80_000.0);
    assert_eq!((&spans[1]["status"], &spans[2]["status"]), (&json!({}), &json!({ "code": 2 })));
    assert_eq!(failed["sluicegate.upstream.name"], "gone");
    assert_eq!(
        (&failed["sluicegate.upstream.server"], &failed["error.type"]),
        (&json!("127.0.0.1:9"), &json!("502"))
    );
    // No attribute is a value and the beginning of another's name: a collector could not store both as one document.
    let names: Vec<String> = [&good, &refused, &failed]
        .iter()
        .flat_map(|span| span.as_object().unwrap().keys().cloned())
        .collect();
    for name in &names {
        let below = names.iter().find(|other| other.starts_with(&format!("{name}.")));
        assert_eq!(below, None, "{name} is a value, too");
    }
    let message = &messages(&collector, "/v1/traces")[0]["resourceSpans"][0];
    assert_eq!(attributes(&message["resource"])["service.name"], "edge");
    let seen = collector.last();
    assert_eq!(seen.head.one("authorization"), Some("Bearer s3cret"));
    assert_eq!((seen.method.as_str(), seen.head.one("content-type")), ("POST", Some("application/json")));
    assert!(!seen.body.windows(4).any(|part| part == b"4111"), "values of the query are not sent");
    let shown = gateway.admin_get("/config").text();
    assert!(shown.contains("(redacted)") && !shown.contains("s3cret"));
}

/// Metrics are those of a scrape, by their names and labels, and histograms add up.
#[test]
fn metrics_are_those_of_a_scrape() {
    let collector = collector();
    let gateway = gateway(&collector, ", traces: false, interval: 1s");
    assert_eq!(gateway.statuses(3, "/orders/1", &[("x-api-key", "k1")]), [200, 429, 429]);
    let (requests, durations) = until("metrics", || {
        let last = messages(&collector, "/v1/metrics").pop()?;
        let metrics = last["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array()?.clone();
        let named = |name: &str| metrics.iter().find(|metric| metric["name"] == name).cloned();
        let requests = named("sluicegate_requests_total")?;
        let of_429 = |point: &&Value| attributes(point) == json!({ "route": "orders", "code": "429" });
        let count = requests["sum"]["dataPoints"].as_array()?.iter().find(of_429)?["asDouble"].clone();
        (count == 2.0).then_some((requests, named("sluicegate_request_duration_seconds")?))
    });
    assert_eq!(
        (&requests["sum"]["isMonotonic"], &requests["sum"]["aggregationTemporality"]),
        (&json!(true), &json!(2))
    );
    assert_eq!((&requests["unit"], &durations["unit"]), (&json!("1"), &json!("s")));
    let points = durations["histogram"]["dataPoints"].as_array().unwrap();
    let orders = points.iter().find(|point| attributes(point) == json!({ "route": "orders" })).unwrap();
    let counts: Vec<u64> = orders["bucketCounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|count| count.as_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(counts.iter().sum::<u64>(), 3);
    assert_eq!(
        (&orders["count"], counts.len()),
        (&json!("3"), orders["explicitBounds"].as_array().unwrap().len() + 1)
    );
    assert!(spans(&collector).is_empty());
}

/// A message that a collector cannot take now is sent again; one that it never takes is given up and counted.
#[test]
fn what_is_not_taken_is_sent_again() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    let collector = Upstream::scripted(move |exchange| {
        let body = String::from_utf8(exchange.body().unwrap()).unwrap();
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 => exchange.answer(503, &[("retry-after", "0")], b""),
            1 => exchange.answer(
                200,
                &[],
                b"{\"partialSuccess\":{\"rejectedSpans\":\"1\",\"errorMessage\":\"odd\"}}",
            ),
            _ if body.contains("/never") => exchange.answer(400, &[], b""),
            _ => exchange.answer(200, &[], b"{}"),
        }
    });
    let gateway = gateway(&collector, ", metrics: false");
    let ask = |path: &str| assert_eq!(gateway.ask("GET", path, &[("traceparent", PARENT)]).status, 200);
    let messages = |outcome| {
        gateway.metric("sluicegate_otlp_messages_total", &[("signal", "traces"), ("outcome", outcome)])
    };
    let dropped = || gateway.metric("sluicegate_otlp_spans_dropped_total", &[]);
    ask("/orders/again");
    until("the second attempt", || (messages("sent") == 1.0).then_some(()));
    assert_eq!((attempts.load(Ordering::SeqCst), messages("failed"), dropped()), (2, 0.0, 1.0));
    ask("/orders/never");
    until("it is given up", || (messages("failed") == 1.0).then_some(()));
    assert_eq!((attempts.load(Ordering::SeqCst), dropped()), (3, 2.0));
    ask("/orders/last");
    until("the next is taken", || (messages("sent") == 2.0).then_some(()));
}

/// No request waits for a collector that does not answer; spans that do not fit are counted.
#[test]
fn a_collector_that_hangs_costs_spans_only() {
    let collector = Upstream::scripted(|exchange| exchange.silence());
    let gateway = gateway(&collector, ", metrics: false, queue: 64, timeout: 1min");
    let mut client = gateway.client();
    for _ in 0..2_000 {
        assert_eq!(client.ask("GET", "/orders/1", &[("traceparent", PARENT)]).status, 200);
        if gateway.metric("sluicegate_otlp_spans_dropped_total", &[]) > 0.0 {
            return;
        }
    }
    panic!("nothing was dropped");
}

/// What was not sent yet is sent at the end, and after a reload to the new collector.
#[test]
fn the_last_spans_are_sent() {
    let (old, new) = (collector(), collector());
    let setup = Setup::default().value("old", old.address).value("new", new.address);
    let mut gateway = setup.start(&file("{old}", ""));
    let ask = |gateway: &Gateway, path: &str| gateway.ask("GET", path, &[("traceparent", PARENT)]).status;
    ask(&gateway, "/orders/old");
    gateway.reload(&file("{new}", ""));
    let paths = |collector: &Upstream| -> Vec<Value> {
        spans(collector).iter().map(|span| attributes(span)["url.path"].clone()).collect()
    };
    // The end waits for what goes to the new collector.
    until("the old collector has its span", || (paths(&old).len() == 1).then_some(()));
    ask(&gateway, "/orders/new");
    gateway.signal("TERM");
    assert!(gateway.ended(deadline()).success());
    assert_eq!((paths(&old), paths(&new)), (vec![json!("/orders/old")], vec![json!("/orders/new")]));
    assert_eq!(messages(&new, "/v1/metrics").len(), 1, "and the last metrics");
}
