//! The objects of documents; those in a List, too.

use crate::fields::Field;

/// An object.
pub(super) struct Object<'a> {
    pub(super) kind: &'a str,
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) field: &'a Field,
}

pub(super) fn objects(documents: &[Field]) -> Vec<Object<'_>> {
    let mut found = Vec::new();
    for document in documents {
        let kind = document.text_of("kind").unwrap_or_default();
        match document.get("items") {
            Some(items) if kind.ends_with("List") => found.extend(items.items().iter().map(object)),
            _ => found.push(object(document)),
        }
    }
    found
}

fn object(field: &Field) -> Object<'_> {
    let text = |names: &[&str]| field.at(names).and_then(Field::text);
    Object {
        kind: field.text_of("kind").unwrap_or_default(),
        name: text(&["metadata", "name"]).unwrap_or("unnamed"),
        namespace: text(&["metadata", "namespace"]).unwrap_or("default"),
        field,
    }
}
