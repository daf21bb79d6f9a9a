//! The services that proxies ask: Envoy's rate limit service with the files of envoyproxy/ratelimit, Kuadrant's, and external
//! authorization.
//!
//! - [`wire`]: their messages, decoded within bounds and encoded, and the framing of gRPC.
//! - [`descriptors`]: a file of envoyproxy/ratelimit, read unmodified, and the limit that applies to a descriptor.
//! - [`plan`]: the limits of a request, and the response after they have decided.
//! - [`limitador`]: the limits file of limitador, and the limits that apply to a request.
//! - [`json`]: the same request and response in the JSON of `POST /json`.
//!
//! What this crate never does: it reads no clock and no file, opens no socket and counts nothing. The gateway has the listeners
//! and the counters, and tests and fuzz targets run the same code without them.
//!
//! ```
//! use std::time::Duration;
//!
//! use sluicegate_config::Report;
//! use sluicegate_rls::descriptors::parse;
//! use sluicegate_rls::plan::{Domains, Outcome};
//! use sluicegate_rls::wire::ratelimit::{Entry, RateLimitDescriptor, RateLimitRequest};
//!
//! let file = "domain: web\ndescriptors: [{key: client, rate_limit: {unit: minute, requests_per_unit: 10}}]\n";
//! let mut report = Report::default();
//! let domain = parse(file, &mut report).ok_or_else(|| report.render("web.yaml", file))?;
//! let domains = Domains::new(vec![domain])?;
//!
//! let entries = vec![Entry::new("client", "192.0.2.1")];
//! let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
//! let request = RateLimitRequest { domain: "web".to_owned(), descriptors, hits_addend: 0 };
//!
//! let plan = domains.plan(&request).map_err(|status| status.to_string())?;
//! assert_eq!(plan.asks[0].key, "web|client=192.0.2.1");
//! // Whoever has the counters decides.
//! let outcome = Outcome { admitted: true, remaining: 9, reset: Duration::from_millis(5_400) };
//! let response = plan.answer(&[outcome]).map_err(|status| status.to_string())?;
//! assert!(!response.is_over_limit());
//! # Ok::<(), String>(())
//! ```

pub mod descriptors;
pub mod json;
pub mod limitador;
pub mod plan;
pub mod wire;
