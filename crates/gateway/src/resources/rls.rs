//! Limits for other proxies: the files of envoyproxy/ratelimit, and the limits that they add to the configuration.

use std::sync::Arc;

use super::limit_files::{self, MAX_HITS, NewLimit};
use sluicegate_config::{LimitConfig, Report, RlsConfig};
use sluicegate_rls::descriptors::{Amount, Rule, parse};
use sluicegate_rls::plan::Domains;

/// The limit of the rates that requests carry.
const OVERRIDE: &str = "rls.override";
/// Its rate, which no request has.
const OVERRIDE_RATE: (u32, u64) = (1, 1);

/// Limits for other proxies.
#[derive(Clone, Debug)]
pub struct RlsLimits {
    /// The domains with their rules.
    pub domains: Domains,
    /// For each rule the index of its limit in the configuration; `None` if it admits everything or nothing.
    pub limits: Vec<Option<usize>>,
    /// The index of the limit of the rates that requests carry.
    pub of_requests: usize,
}

/// Reads the files, and adds their limits to those of the configuration; `None` if any of them cannot be used, which is
/// reported.
pub(super) fn load(
    config: &RlsConfig,
    limits: &mut Vec<LimitConfig>,
    report: &mut Report,
) -> Option<Arc<RlsLimits>> {
    let files = &config.limits;
    let read = limit_files::read_all(files, report, parse)?;
    let paths: Vec<_> = read.iter().map(|(path, domain)| (path.clone(), domain.name().to_owned())).collect();
    let domains = match Domains::new(read.into_iter().map(|(_, domain)| domain).collect()) {
        Ok(domains) => domains,
        Err(name) => {
            let of_name = paths.iter().filter(|(_, domain)| *domain == name).map(|(path, _)| path);
            let of_name: Vec<_> = of_name.map(|path| path.display().to_string()).collect();
            let text = format!("several files have the domain `{name}`: {}", of_name.join(", "));
            limit_files::problem(files, text, Some("a domain has one file"), report);
            return None;
        }
    };
    let (hits, seconds) = OVERRIDE_RATE;
    limits.push(files.limit(OVERRIDE, hits, seconds, false).ok()?);
    let of_requests = limits.len() - 1;
    let limits = limit_files::add("rls", files, domains.rules().iter().map(counted), limits, report)?;
    Some(Arc::new(RlsLimits { domains, limits, of_requests }))
}

/// The limit of a rule; `None` if it admits everything or nothing.
fn counted(rule: &Rule) -> Option<NewLimit<'_>> {
    let (hits, seconds) = match rule.amount {
        Amount::Limited { requests_per_unit: hits @ 1.., unit } => {
            (hits.min(MAX_HITS), unit.seconds().unwrap_or(1))
        }
        Amount::Limited { .. } | Amount::Unlimited => return None,
    };
    // A limit with `quota_mode` refuses alone no request.
    let shadow = rule.shadow_mode || rule.quota_mode;
    Some(NewLimit { path: &rule.path, hits, seconds, shadow, has_one_key: rule.is_literal })
}
