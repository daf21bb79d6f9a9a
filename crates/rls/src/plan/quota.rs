//! Groups of limits with `quota_mode`, of which one has to be left.

use crate::wire::ratelimit::RateLimitDescriptor;

/// The entry that names a backend.
pub(super) const BACKEND: &str = "backend_name";
/// The entry that names a model.
pub(super) const MODEL: &str = "model_name_override";

/// The group of a descriptor whose limit has `quota_mode`. A group refuses if one of its descriptors does; descriptors are of one
/// group if they have the same `backend_name` and `model_name_override`, or, without those, the same entries.
pub fn quota_group(descriptor: &RateLimitDescriptor) -> String {
    match backend(descriptor) {
        Some((backend, model)) => format!("{}:{backend}|{model}", backend.len()),
        None => {
            let entries = descriptor.entries.iter();
            entries
                .map(|entry| {
                    let (key, value) = (entry.key(), entry.value());
                    format!("{}:{key}{}:{value}", key.len(), value.len())
                })
                .collect()
        }
    }
}

/// The backend and the model that a descriptor names; none if it names neither.
pub(super) fn backend(descriptor: &RateLimitDescriptor) -> Option<(String, String)> {
    let value = |name: &str| {
        let found = descriptor.entries.iter().rev().find(|entry| &entry.key[..] == name.as_bytes());
        found.map(|entry| entry.value().into_owned()).unwrap_or_default()
    };
    let (backend, model) = (value(BACKEND), value(MODEL));
    (!backend.is_empty() || !model.is_empty()).then_some((backend, model))
}
