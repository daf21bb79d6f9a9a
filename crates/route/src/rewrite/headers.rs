//! Headers added, set and removed.

use smallvec::SmallVec;

use super::Facts;
use super::template::value;
use sluicegate_auth::{disown, reads_like};
use sluicegate_config::{Change, HeaderChange};
use sluicegate_wire::Headers;

/// The rendered values of the templates with variables, in the order of the changes.
pub type Values = SmallVec<[Option<Vec<u8>>; 0]>;

/// Renders the templates with variables for a request.
pub fn render(changes: &[HeaderChange], facts: &Facts<'_>) -> Values {
    let templates = changes.iter().filter_map(HeaderChange::template);
    templates.filter(|template| template.fixed().is_none()).map(|template| value(template, facts)).collect()
}

/// Applies the changes in their order. Headers without a value are not written.
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

/// Removes the headers of the client with names that are set or removed, also names that an upstream may take for these.
pub fn disown_changed(changes: &[HeaderChange], headers: &mut Headers) {
    if changes.iter().any(HeaderChange::clears) {
        disown(headers, |name| {
            changes.iter().any(|change| change.clears() && reads_like(name, change.name.as_ref()))
        });
    }
}
