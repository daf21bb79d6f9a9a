//! OTLP/JSON: the messages for `/v1/traces` and `/v1/metrics`.

use serde_json::{Value, json};
use sluicegate_limiter::Time;

use crate::metrics::attribute;

/// Nanoseconds since the epoch.
pub(super) fn nanos(at: Time) -> String {
    at.as_nanos().to_string()
}

/// Who sends.
pub(super) fn resource(service: &str, instance: &str) -> Value {
    let attributes = [
        ("service.name", service),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", instance),
    ];
    json!({ "attributes": attributes.map(|(key, value)| attribute(key, &value.into())) })
}

fn scope() -> Value {
    json!({ "name": "sluicegate", "version": env!("CARGO_PKG_VERSION") })
}

/// The message with these spans, which are JSON already.
pub(super) fn traces(resource: &Value, spans: &[String]) -> String {
    format!(
        "{{\"resourceSpans\":[{{\"resource\":{resource},\"scopeSpans\":[{{\"scope\":{},\"spans\":[{}]}}]}}]}}",
        scope(),
        spans.join(",")
    )
}

/// The message with these metrics.
pub(super) fn metrics(resource: &Value, metrics: &[Value]) -> String {
    json!({ "resourceMetrics": [{ "resource": resource, "scopeMetrics": [{ "scope": scope(), "metrics": metrics }] }] })
        .to_string()
}
