//! Limits for other proxies: the limits files of limitador, and the limits that they add to the configuration.

use std::sync::Arc;

use super::limit_files::{self, NewLimit};
use sluicegate_config::{LimitConfig, LimitadorConfig, Report};
use sluicegate_rls::limitador::{Limits, parse};

/// Limits for other proxies.
#[derive(Clone, Debug)]
pub struct LimitadorLimits {
    /// The limits of the files.
    pub limits: Limits,
    /// For each of them the index of its limit in the configuration; `None` if it admits nothing.
    pub indices: Vec<Option<usize>>,
}

/// Reads the files, and adds their limits to those of the configuration; `None` if any of them cannot be used, which is
/// reported.
pub(super) fn load(
    config: &LimitadorConfig,
    limits: &mut Vec<LimitConfig>,
    report: &mut Report,
) -> Option<Arc<LimitadorLimits>> {
    let files = &config.limits;
    let read = limit_files::read_all(files, report, parse)?;
    let of_files = match Limits::new(read.iter().flat_map(|(_, limits)| limits).cloned().collect()) {
        Ok(limits) => limits,
        Err(identity) => {
            let of_limit =
                read.iter().filter(|(_, limits)| limits.iter().any(|limit| limit.identity() == identity));
            let of_limit: Vec<_> = of_limit.map(|(path, _)| path.display().to_string()).collect();
            let text = format!("several files have the limit `{identity}`: {}", of_limit.join(", "));
            let help = "limits with the same namespace, seconds, conditions and variables are one";
            limit_files::problem(files, text, Some(help), report);
            return None;
        }
    };
    let all = of_files.all();
    let paths: Vec<String> = all.iter().map(|limit| limit.identity()).collect();
    let counted = all.iter().zip(&paths).map(|(limit, path)| {
        let (hits, seconds) = (limit.max_value, limit.seconds);
        let has_one_key = limit.variables.is_empty();
        (hits > 0).then_some(NewLimit { path, hits, seconds, shadow: false, has_one_key })
    });
    let indices = limit_files::add("limitador", files, counted, limits, report)?;
    Some(Arc::new(LimitadorLimits { limits: of_files, indices }))
}
