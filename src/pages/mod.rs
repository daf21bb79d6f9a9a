//! What the pages for browsers share: the admin page and the report of `replay`.

/// The script that makes elements of text only.
pub(crate) const DOM: &str = include_str!("dom.js");
