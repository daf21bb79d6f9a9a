//! Requests by consumer in the metrics.

use aws_lc_rs::digest::{SHA256, digest};

use crate::harness::{Setup, Upstream, until};

/// An entry whose key is its name with `sk-` before it.
fn entry(name: &str) -> String {
    let digest = digest(&SHA256, format!("sk-{name}").as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("- {{name: {name}, key: sha256:{hex}}}\n")
}

/// With `metrics.by_consumer`, those with the most traffic are shown by name; a reload changes how many.
#[test]
fn requests_are_counted_by_consumer() {
    let upstream = Upstream::answering("hello");
    let text = format!(
        "auth: {{api_key: {{consumers: consumers.yaml, required: true}}}}\nlimits: {{l: {{key: consumer, rate: 2/day}}}}\n\
         routes: [{{name: all, upstream: api, limits: [l]}}]\nupstreams: {{api: {{servers: [\"http://{}\"]}}}}\n",
        upstream.address
    );
    let gateway = Setup::default().file("consumers.yaml", &(entry("acme") + &entry("beta"))).start(&text);
    assert!(!gateway.admin_get("/metrics").text().contains("consumer_requests"), "it is off by default");
    gateway.reload(&format!("{text}metrics: {{by_consumer: 1}}\n"));
    let send = |name: &str, count| {
        gateway.statuses(count, "/", &[("x-api-key", &format!("sk-{name}"))]);
    };
    let shown = |consumer: &str, outcome: &str| {
        let labels = [("consumer", consumer), ("outcome", outcome)];
        gateway.metric("sluicegate_consumer_requests_total", &labels)
    };
    send("acme", 5);
    send("beta", 1);
    until("all requests have ended", || (shown("acme", "answered") == 2.0).then_some(()));
    assert_eq!((shown("acme", "refused"), shown("acme", "failed")), (3.0, 0.0));
    assert_eq!((shown("other", "answered"), shown("other", "refused")), (1.0, 0.0));
    gateway.reload(&format!("{text}metrics: {{by_consumer: 10}}\n"));
    send("beta", 3);
    until("all requests have ended", || (shown("beta", "refused") == 2.0).then_some(()));
    assert_eq!((shown("beta", "answered"), shown("other", "answered")), (1.0, 1.0));
    assert_eq!(shown("acme", "refused"), 3.0, "nothing is lost");
}
