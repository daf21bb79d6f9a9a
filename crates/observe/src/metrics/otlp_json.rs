//! A scrape as OTLP/JSON (opentelemetry-proto 1.x, "JSON Protobuf Encoding": enums are numbers, 64-bit integers are texts).

use prometheus::proto::{Metric, MetricFamily, MetricType};
use serde_json::{Value, json};
use sluicegate_limiter::Time;

use super::exposition::Scrape;

/// AGGREGATION_TEMPORALITY_CUMULATIVE.
const CUMULATIVE: u8 = 2;

impl Scrape {
    /// All families, counted since `begun`.
    pub fn otlp(self, begun: Time, now: Time) -> Vec<Value> {
        let times = [begun, now].map(|at| at.as_nanos().to_string());
        let families = self.into_families().into_iter().filter(|family| !family.get_metric().is_empty());
        families.map(|family| one(&family, &times)).collect()
    }
}

/// A key with its value: a text, a number, or several texts.
pub(crate) fn attribute(key: &str, value: &Value) -> Value {
    json!({ "key": key, "value": any(value) })
}

fn any(value: &Value) -> Value {
    match value {
        Value::Bool(flag) => json!({ "boolValue": flag }),
        Value::Number(number) if number.is_f64() => json!({ "doubleValue": number }),
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        Value::Array(values) => {
            json!({ "arrayValue": { "values": values.iter().map(any).collect::<Vec<_>>() } })
        }
        Value::String(text) => json!({ "stringValue": text }),
        other => json!({ "stringValue": other.to_string() }),
    }
}

fn one(family: &MetricFamily, times: &[String; 2]) -> Value {
    let points: Vec<Value> =
        family.get_metric().iter().map(|metric| point(family.get_field_type(), metric, times)).collect();
    let (kind, data) = match family.get_field_type() {
        MetricType::COUNTER => (
            "sum",
            json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true }),
        ),
        MetricType::HISTOGRAM => {
            ("histogram", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE }))
        }
        _ => ("gauge", json!({ "dataPoints": points })),
    };
    json!({ "name": family.name(), "description": family.help(), "unit": unit(family.name()), kind: data })
}

/// The unit in the name of a family, as UCUM writes it; 1 for counts and ratios.
fn unit(name: &str) -> &'static str {
    match name {
        _ if name.contains("_seconds") => "s",
        _ if name.contains("_bytes") => "By",
        _ => "1",
    }
}

fn point(kind: MetricType, metric: &Metric, [begun, now]: &[String; 2]) -> Value {
    let labels: Vec<Value> =
        metric.get_label().iter().map(|label| attribute(label.name(), &label.value().into())).collect();
    let mut point = json!({ "attributes": labels, "timeUnixNano": now });
    if kind != MetricType::GAUGE {
        point["startTimeUnixNano"] = begun.as_str().into();
    }
    match kind {
        MetricType::COUNTER => point["asDouble"] = metric.get_counter().get_value().into(),
        MetricType::HISTOGRAM => {
            let histogram = metric.get_histogram();
            let bounded = histogram.get_bucket();
            let bounds: Vec<f64> = bounded.iter().map(|bucket| bucket.upper_bound()).collect();
            let cumulative = bounded.iter().map(|bucket| bucket.cumulative_count());
            let all = cumulative.chain([histogram.get_sample_count()]);
            let mut below = 0;
            let counts: Vec<String> =
                all.map(|count| (count - std::mem::replace(&mut below, count)).to_string()).collect();
            point["count"] = histogram.get_sample_count().to_string().into();
            point["sum"] = histogram.get_sample_sum().into();
            point["bucketCounts"] = counts.into();
            point["explicitBounds"] = bounds.into();
        }
        _ => point["asDouble"] = metric.get_gauge().get_value().into(),
    }
    point
}
