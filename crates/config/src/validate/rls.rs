//! The services for other proxies that have limits of their own.

use super::checks::word;
use super::context::Context;
use super::limit_files::Written;
use super::section::Section;
use crate::model::limit::LimitConfig;
use crate::model::limit_files::{LimitadorConfig, OverLimit, RlsConfig};
use crate::raw::rls::{RawLimitador, RawRls};
use crate::read::at::{At, Folder};
use crate::read::report::Report;

/// The [`Written`] of a section; all have the same fields.
macro_rules! written {
    ($raw:ident, $section:literal, $example:literal) => {
        Written {
            section: $section,
            at: $raw.at,
            files: $raw.value.files.as_ref(),
            example: $example,
            wrong: &$raw.value.wrong,
            algorithm: $raw.value.algorithm.as_ref(),
            scope: $raw.value.scope.as_ref(),
            sync: $raw.value.sync.as_ref(),
            on_store_failure: $raw.value.on_store_failure.as_ref(),
            max_keys: $raw.value.max_keys.as_ref(),
        }
    };
}

/// Envoy's rate limit service.
pub(super) fn rls(
    raw: &At<RawRls>,
    known: (Folder<'_>, Context<'_>),
    limits: &Section<LimitConfig>,
    report: &mut Report,
) -> Option<RlsConfig> {
    let words = [("charge", OverLimit::Charge), ("keep", OverLimit::Keep)];
    let over_limit = raw.value.over_limit.as_ref();
    let over_limit =
        over_limit.map_or(Some(OverLimit::Charge), |text| word(text, "over_limit", &words, report));
    let limits = written!(raw, "rls", "[ratelimit/*.yaml]").limit_files(known, limits, report);
    Some(RlsConfig { limits: limits?, over_limit: over_limit? })
}

/// The services of limitador.
pub(super) fn limitador(
    raw: &At<RawLimitador>,
    known: (Folder<'_>, Context<'_>),
    limits: &Section<LimitConfig>,
    report: &mut Report,
) -> Option<LimitadorConfig> {
    let words = [("none", false), ("draft_version_03", true)];
    let headers = raw.value.response_headers.as_ref();
    let headers = headers.map_or(Some(false), |text| word(text, "response_headers", &words, report));
    let limits = written!(raw, "limitador", "[limits.yaml]").limit_files(known, limits, report);
    Some(LimitadorConfig { limits: limits?, response_headers: headers? })
}
