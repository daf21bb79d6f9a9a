//! Parameters of a query.

use sluicegate_config::percent_decode;

/// The first parameter with this name, decoded.
pub(super) fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    pairs(query, name).next()
}

/// All parameters with this name, decoded.
pub(super) fn parameters(query: Option<&str>, name: &str) -> Vec<String> {
    pairs(query, name).collect()
}

fn pairs(query: Option<&str>, name: &str) -> impl Iterator<Item = String> {
    let decoded = |text: &str| percent_decode(&text.replace('+', " "));
    let pairs = query.into_iter().flat_map(|query| query.split('&'));
    pairs.filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(key) == name).then(|| decoded(value))
    })
}
