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
