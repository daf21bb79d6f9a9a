//! What the pages for browsers share: the admin page and the report of `replay`.

/// The script that makes elements of text only.
pub const DOM: &str = include_str!("dom.js");
