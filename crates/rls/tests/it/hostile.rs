//! Whatever bytes come in, there is an answer or an error.

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use sluicegate_rls::plan::{Domains, Outcome};
use sluicegate_rls::wire::ratelimit::{
    Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, RateLimitResponse,
};
use sluicegate_rls::wire::well_known::UInt64Value;
use sluicegate_rls::wire::{decode, frame};
use sluicegate_rls::{descriptors, json};

use super::domain;

const MOST: usize = decode::MAX_MESSAGE;

/// Answers a request, if it is one.
fn answer(message: Bytes) {
    let Ok(request) = decode::rate_limit(message) else { return };
    let file = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1, name: n}}, {key: b, value: '*', \
                quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1, replaces: [{name: n}]}}]\n";
    let domains = Domains::new(vec![domain(file)]).unwrap();
    let Ok(plan) = domains.plan(&request) else { return };
    let outcome = Outcome { admitted: false, remaining: u64::MAX, reset: std::time::Duration::MAX };
    let response = plan.answer(&vec![outcome; plan.asks.len()]).unwrap();
    assert_eq!(response.statuses.len(), request.descriptors.len());
    let framed = frame::encode(&response);
    let message = frame::message(&framed, framed.len()).unwrap();
    assert_eq!(RateLimitResponse::decode(message).unwrap(), response);
    json::response(&response);
}

fn requests() -> impl Strategy<Value = RateLimitRequest> {
    let entry = (prop::sample::select(vec!["a", "b", "c"]), prop::collection::vec(any::<u8>(), 0..4));
    let entry = entry.prop_map(|(key, value)| Entry::new(key, value));
    let limit = (any::<u32>(), -1..9_i32);
    let limit = limit.prop_map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit });
    let hits = any::<u64>().prop_map(|value| UInt64Value { value });
    let entries = prop::collection::vec(entry, 0..4);
    let descriptor = (entries, prop::option::of(limit), prop::option::of(hits), any::<bool>());
    let descriptor = descriptor.prop_map(|(entries, limit, hits_addend, is_negative_hits)| {
        RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits }
    });
    let domain = prop::sample::select(vec!["d", "e", ""]);
    (domain, prop::collection::vec(descriptor, 0..5), any::<u32>()).prop_map(|(domain, descriptors, hits)| {
        RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: hits }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        answer(bytes.clone());
        let _ = decode::authorization(bytes.clone());
        let _ = decode::health(bytes.clone());
        let _ = json::request(&bytes);
        if let Ok(message) = frame::message(&bytes, MOST) {
            prop_assert_eq!(message.len() + frame::PREFIX, bytes.len());
        }
        let text = String::from_utf8_lossy(&bytes);
        let mut report = sluicegate_config::Report::default();
        prop_assert_eq!(descriptors::parse(&text, &mut report).is_none(), !report.errors.is_empty());
    }

    #[test]
    fn requests_come_back_as_they_were(request in requests(), at in any::<prop::sample::Index>(), byte: u8) {
        let bytes = request.encode_to_vec();
        match decode::rate_limit(bytes.clone().into()) {
            Ok(decoded) => prop_assert_eq!(&decoded, &request),
            Err(status) => prop_assert!(request.domain.is_empty() || request.descriptors.is_empty(), "{status}"),
        }
        answer(bytes.clone().into());
        // The same with another byte somewhere.
        let mut changed = bytes;
        if !changed.is_empty() {
            let at = at.index(changed.len());
            changed[at] = byte;
        }
        answer(changed.into());
    }
}
