//! What an import knows while it walks through the routers.

use std::collections::HashMap;

use crate::fields::Field;
use crate::marks::Marks;
use crate::sections::Sections;
use crate::yaml::{Node, list, text};

pub(super) struct Context<'a> {
    pub(super) marks: Marks,
    pub(super) sections: Sections,
    pub(super) services: Vec<(&'a str, &'a Field)>,
    pub(super) middlewares: Vec<(&'a str, &'a Field)>,
    /// How many routers use a middleware: each has counters of its own.
    pub(super) users: HashMap<&'a str, usize>,
    /// How clients are found, as the first middleware that says it wants it.
    pub(super) client_ip: Option<Node>,
    /// The services that routers use.
    pub(super) used_services: Vec<String>,
    /// Whether the entry points name proxies that are believed.
    pub(super) trusts_proxies: bool,
    /// Whether a router has a rate limit.
    pub(super) limits: bool,
}

/// A name without its provider, such as `@file`.
pub(super) fn local(name: &str) -> &str {
    name.strip_suffix("@file").unwrap_or(name)
}

/// A list of the texts of a field.
pub(super) fn texts(field: &Field) -> Node {
    list(field.texts().into_iter().map(text)).source(&field.source)
}
