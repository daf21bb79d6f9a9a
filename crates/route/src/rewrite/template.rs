//! Renders templates for a request.

use super::Facts;
use sluicegate_config::{Piece, Template};
use sluicegate_wire::headers::is_value;

/// The value for a request; `None` if it is empty or not a valid field value.
pub(super) fn value(template: &Template, facts: &Facts<'_>) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    for piece in template.pieces() {
        match piece {
            Piece::Text(text) => value.extend_from_slice(text.as_bytes()),
            Piece::Variable(variable) => {
                value.extend_from_slice(&facts.value(variable).unwrap_or_default());
            }
        }
    }
    (!value.is_empty() && is_value(&value)).then_some(value)
}
