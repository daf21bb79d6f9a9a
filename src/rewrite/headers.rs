//! Headers added, set and removed.

use smallvec::SmallVec;

use super::Facts;
use super::template::value;
use crate::auth::{disown, reads_like};
use sluicegate_config::{Change, HeaderChange};
use sluicegate_wire::Headers;

/// The values of those templates that have variables, in the order of the changes.
pub type Values = SmallVec<[Option<Vec<u8>>; 0]>;

/// The values for one request of what varies.
pub fn render(changes: &[HeaderChange], facts: &Facts<'_>) -> Values {
    let templates = changes.iter().filter_map(HeaderChange::template);
    templates.filter(|template| template.fixed().is_none()).map(|template| value(template, facts)).collect()
}

/// Makes the changes in their order. A value that a request does not have is not written.
pub fn apply(changes: &[HeaderChange], values: &Values, headers: &mut Headers) {
    let mut values = values.iter();
    for change in changes {
        let value = change.template().and_then(|template| match template.fixed() {
            Some(fixed) => Some(fixed.as_bytes()),
            None => values.next().and_then(Option::as_deref),
        });
        match (&change.change, value) {
            (Change::Add(_), Some(value)) => headers.append(&change.name, value),
            (Change::Set(_), Some(value)) => headers.insert(&change.name, value),
            (Change::Add(_), None) => {}
            (Change::Remove | Change::Set(_), _) if change.clears() => _ = headers.remove(&change.name),
            (Change::Remove | Change::Set(_), _) => {}
        }
    }
}

/// Takes what a client says under the names that are set or removed, also where the upstream only reads it as one of
/// these, or where it comes behind the body.
pub fn disown_changed(changes: &[HeaderChange], headers: &mut Headers) {
    if changes.iter().any(HeaderChange::clears) {
        disown(headers, |name| {
            changes.iter().any(|change| change.clears() && reads_like(name, change.name.as_ref()))
        });
    }
}
