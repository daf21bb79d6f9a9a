//! What callers of the crate see.

#![allow(missing_docs, clippy::unwrap_used)]

mod files;
mod golden;
mod hostile;
mod json;
mod lookup;
mod model;
mod plans;

use sluicegate_config::Report;
use sluicegate_rls::descriptors::{Domain, parse};
use sluicegate_rls::wire::ratelimit::{Entry, RateLimitDescriptor, RateLimitRequest};

/// The domain of a file without mistakes.
fn domain(text: &str) -> Domain {
    let mut report = Report::default();
    let domain = parse(text, &mut report);
    domain.unwrap_or_else(|| panic!("{}", report.render("limits.yaml", text)))
}

/// A descriptor of a request.
fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entries = entries.iter().map(|(key, value)| Entry::new((*key).to_owned(), (*value).to_owned()));
    RateLimitDescriptor { entries: entries.collect(), ..RateLimitDescriptor::default() }
}

/// A request with these descriptors.
fn request(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}
