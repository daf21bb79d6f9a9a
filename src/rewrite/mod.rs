//! 6b: requests and answers shaped: headers, the path, redirects.
//!
//! Everything here is about an admitted request on its way out, or an answer on its way back: which route a request
//! takes and what it is counted as was found before, from the request as it came.

mod facts;
mod headers;
mod template;
mod uri;

pub use facts::Facts;
pub use headers::{Values, apply, disown_changed, render};
pub use uri::{Unwritable, location, target};
