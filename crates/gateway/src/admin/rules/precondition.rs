//! On which condition a request changes a rule: If-Match and If-None-Match (RFC 9110 §13.1).

use http::{HeaderMap, HeaderName, HeaderValue, header};
use sluicegate_rules::Precondition;

/// The entity tag of a version.
pub(super) fn etag(version: u64) -> HeaderValue {
    // Digits in quotes are valid in a header.
    HeaderValue::try_from(format!("\"{version}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

/// The condition of a request.
///
/// # Errors
/// If a header cannot be read, or both are given.
pub(super) fn of(headers: &HeaderMap) -> Result<Precondition, String> {
    let text = |name: HeaderName| {
        let readable = |value: &'_ HeaderValue| value.to_str().map(str::to_owned);
        headers.get(&name).map(readable).transpose().map_err(|_| format!("{name} cannot be read"))
    };
    match (text(header::IF_MATCH)?.as_deref(), text(header::IF_NONE_MATCH)?.as_deref()) {
        (None, None) => Ok(Precondition::None),
        (Some(_), Some(_)) => Err("give one of If-Match and If-None-Match".to_owned()),
        (None, Some("*")) => Ok(Precondition::Absent),
        (None, Some(_)) => Err("If-None-Match can only be `*`: the rule must not exist".to_owned()),
        (Some("*"), None) => Ok(Precondition::Exists),
        (Some(tags), None) => {
            // A tag that this API never gave, also a weak one, matches nothing.
            let versions = tags.split(',').filter_map(|tag| {
                let tag = tag.trim().strip_prefix('"')?.strip_suffix('"')?;
                tag.parse().ok()
            });
            Ok(Precondition::Version(versions.collect()))
        }
    }
}
