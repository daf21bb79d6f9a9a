//! API keys: where a request has its key, and which are known.

use super::checks::{header_name, value};
use crate::model::api_key::{ApiKeyConfig, ApiKeySource, ConsumersConfig};
use crate::raw::RawApiKey;
use crate::read::at::{At, Folder};
use crate::read::is_wrong;
use crate::read::report::Report;

/// Whether the file wants known keys, rightly written or not.
pub(super) fn has_consumers(raw: Option<&At<RawApiKey>>) -> bool {
    raw.is_some_and(|raw| raw.value.consumers.is_some() || is_wrong!(raw.value, consumers))
}

pub(super) fn api_key(raw: Option<&At<RawApiKey>>, folder: Folder<'_>, report: &mut Report) -> ApiKeyConfig {
    let source = source(raw, report);
    let Some(raw) = raw else { return ApiKeyConfig { source, consumers: None } };
    if !has_consumers(Some(raw)) {
        for (field, given) in [("required", &raw.value.required), ("forward", &raw.value.forward)] {
            if let Some(given) = given.as_ref().filter(|given| given.value) {
                report.error(
                    given
                        .problem(format!("`{field}: true` needs `consumers`: without them no key is known"))
                        .help(
                            "such as `consumers: consumers.yaml`; `sluicegate consumers add NAME` writes it",
                        ),
                );
            }
        }
    }
    let consumers = raw.value.consumers.as_ref().and_then(|file| {
        if file.value.is_empty() {
            report.error(file.problem("the file of consumers needs a name").help("such as consumers.yaml"));
            return None;
        }
        Some(ConsumersConfig {
            file: folder.file(file),
            required: raw.value.required.as_ref().is_some_and(|given| given.value),
            forward: raw.value.forward.as_ref().is_none_or(|given| given.value),
        })
    });
    ApiKeyConfig { source, consumers }
}

fn source(raw: Option<&At<RawApiKey>>, report: &mut Report) -> ApiKeySource {
    let header = raw.and_then(|raw| raw.value.header.as_ref());
    let query = raw.and_then(|raw| raw.value.query.as_ref());
    if let Some(name) = query.filter(|name| name.value.is_empty()) {
        report.error(name.problem("the query parameter needs a name").help("such as `query: key`"));
    }
    let usual = query.is_none().then(|| http::HeaderName::from_static("x-api-key"));
    ApiKeySource {
        header: header.and_then(|name| value(name, report, header_name)).or(usual),
        query: query.map(|name| name.value.clone()),
    }
}
