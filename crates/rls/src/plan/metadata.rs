//! The dynamic metadata of a response, which other filters of the proxy read: what passed, and where a request can still go.

use std::collections::HashMap;

use super::domains::{Plan, Planned};
use super::quota::{BACKEND, MODEL, backend, quota_group};
use crate::wire::ratelimit::{Code, DescriptorStatus, RateLimitDescriptor, Unit};
use crate::wire::well_known::{Kind, Struct, Value};

/// The metadata, if a limit that was asked has `metadata` or `quota_mode`.
pub(super) fn of(
    plan: &Plan<'_>,
    statuses: &[DescriptorStatus],
    groups: &HashMap<String, bool>,
) -> Option<Struct> {
    let rules = || plan.asks.iter().filter_map(|ask| plan.rule(ask));
    if groups.is_empty() && !rules().any(|rule| rule.metadata.is_some()) {
        return None;
    }
    let request = plan.request;
    let mut fields = Struct::default();
    let mut add = |name: &str, value| fields.fields.insert(name.to_owned(), value);
    add("domain", Value::text(&request.domain));
    add("descriptors", Value::list(request.descriptors.iter().map(descriptor).collect()));
    if request.hits_addend != 0 {
        add("hitsAddend", Value::number(f64::from(request.hits_addend)));
    }
    let (mut passed, mut backends) = (Struct::default(), Vec::new());
    for (index, planned) in plan.descriptors.iter().enumerate() {
        let rule = match planned {
            Planned::Asked(ask) => plan.rule(&plan.asks[*ask]),
            Planned::NoMatch | Planned::Replaced => None,
            Planned::Unlimited => continue,
        };
        let over = statuses[index].code == Code::OverLimit as i32;
        let of_quota = rule.is_some_and(|rule| rule.quota_mode);
        let group = || groups.get(&quota_group(&request.descriptors[index])).copied();
        if over || of_quota && group() == Some(true) {
            continue;
        }
        if let Some(metadata) = rule.and_then(|rule| rule.metadata.as_ref()) {
            merge(&mut passed, metadata);
        }
        if let Some(found) = backend(&request.descriptors[index])
            && !groups.is_empty()
            && !backends.contains(&found)
        {
            backends.push(found);
        }
    }
    if !passed.fields.is_empty() {
        add("metadata", Value::object(passed));
    }
    if !backends.is_empty() {
        let object = |(backend, model)| {
            let fields = [(BACKEND, backend), (MODEL, model)];
            let fields = fields.map(|(name, value): (&str, String)| (name.to_owned(), Value::text(value)));
            Value::object(Struct { fields: fields.into() })
        };
        add("passedBackends", Value::list(backends.into_iter().map(object).collect()));
    }
    Some(fields)
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Value {
    let entries = descriptor.entries.iter();
    let entries = entries.map(|entry| Value::text(format!("{}={}", entry.key(), entry.value()))).collect();
    let mut fields = Struct::default();
    fields.fields.insert("entries".to_owned(), Value::list(entries));
    if let Some(limit) = &descriptor.limit {
        let unit = Unit::try_from(limit.unit).unwrap_or(Unit::Unknown).name().to_uppercase();
        let text = format!("requests_per_unit:{} unit:{unit}", limit.requests_per_unit);
        fields.fields.insert("limit".to_owned(), Value::text(text));
    }
    if let Some(hits) = &descriptor.hits_addend {
        fields.fields.insert("hitsAddend".to_owned(), Value::number(hits.value as f64));
    }
    Value::object(fields)
}

/// Adds fields that are not there; objects with the same name are merged.
fn merge(into: &mut Struct, from: &Struct) {
    for (name, value) in &from.fields {
        match (into.fields.get_mut(name), &value.kind) {
            (None, _) => {
                into.fields.insert(name.clone(), value.clone());
            }
            (Some(Value { kind: Some(Kind::Struct(into)) }), Some(Kind::Struct(from))) => merge(into, from),
            (Some(_), _) => {}
        }
    }
}
