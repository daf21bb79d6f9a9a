//! A rule as a row of a table.

use rusqlite::Row;
use sluicegate_rules::{Rule, Stored};

use crate::error::ReadError;

/// The columns of `rules` that [`stored`] reads.
pub(crate) const COLUMNS: &str = "id, body, version";

/// The rule of a row that begins with [`COLUMNS`].
pub(crate) fn stored(row: &Row<'_>) -> Result<Stored, ReadError> {
    let id: String = row.get(0)?;
    let text: Result<String, _> = row.get(1);
    let text = text.map_err(|error| ReadError::Content { id: id.clone(), detail: error.to_string() })?;
    let rule = rule(&id, &text)?;
    Ok(Stored { rule, version: row.get::<_, i64>(2)?.cast_unsigned() })
}

/// A rule from its JSON.
pub(crate) fn rule(id: &str, body: &str) -> Result<Rule, ReadError> {
    let wrong = |detail: String| ReadError::Content { id: id.to_owned(), detail };
    let rule: Rule = serde_json::from_str(body).map_err(|error| wrong(error.to_string()))?;
    // Someone has copied or renamed a row by hand: which of the two names is meant?
    if rule.id != id { Err(wrong(format!("its body is of the rule {:?}", rule.id))) } else { Ok(rule) }
}

/// A rule as JSON.
pub(crate) fn body(rule: &Rule) -> Result<String, ReadError> {
    serde_json::to_string(rule)
        .map_err(|error| ReadError::Content { id: rule.id.clone(), detail: error.to_string() })
}
