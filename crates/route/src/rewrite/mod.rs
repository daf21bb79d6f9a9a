//! Changes of admitted requests and of responses: headers, path, redirects.
//!
//! Routes and the keys of limits are evaluated before, on the request as it was received.

mod facts;
mod headers;
mod template;
mod uri;

pub use facts::Facts;
pub use headers::{Values, apply, disown_changed, render};
pub use uri::{Unwritable, location, target};

use http::uri::PathAndQuery;
use sluicegate_wire::RequestTarget;

/// The target with this path, its own query and its own authority.
pub fn with_path(target: &RequestTarget, path: &str) -> RequestTarget {
    let text = match target.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    // A normalized path has only characters that are valid in a URI.
    PathAndQuery::try_from(text).map_or_else(|_| target.clone(), |path| target.with(&path))
}
