//! Headers added, set and removed.

use http::header::{self, HeaderName};
use smallvec::SmallVec;

use super::{Facts, Template};
use crate::auth::{disown, reads_like};
use crate::fields::Fields;

/// A change of one header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderChange {
    /// Its name.
    pub name: HeaderName,
    /// What is done to it.
    pub change: Change,
}

/// What is done to a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// All its lines are removed.
    Remove,
    /// It has this one line.
    Set(Template),
    /// It has one more line.
    Add(Template),
}

/// The values of those templates that have variables, in the order of the changes.
pub type Values = SmallVec<[Option<Vec<u8>>; 0]>;

impl HeaderChange {
    /// The text that it writes, if it writes one.
    pub const fn template(&self) -> Option<&Template> {
        match &self.change {
            Change::Remove => None,
            Change::Set(template) | Change::Add(template) => Some(template),
        }
    }

    /// Whether what is there goes. The host is only ever replaced: a request has one.
    fn clears(&self) -> bool {
        !matches!(self.change, Change::Add(_)) && self.name != header::HOST
    }
}

/// The values for one request of what varies.
pub fn render(changes: &[HeaderChange], facts: &Facts<'_>) -> Values {
    let templates = changes.iter().filter_map(HeaderChange::template);
    templates.filter(|template| template.fixed().is_none()).map(|template| template.value(facts)).collect()
}

/// Makes the changes in their order. A value that a request does not have is not written.
pub fn apply(changes: &[HeaderChange], values: &Values, headers: &mut Fields) {
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
pub fn disown_changed(changes: &[HeaderChange], headers: &mut Fields) {
    if changes.iter().any(HeaderChange::clears) {
        disown(headers, |name| {
            changes.iter().any(|change| change.clears() && reads_like(name, change.name.as_ref()))
        });
    }
}
