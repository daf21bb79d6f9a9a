//! Finds the route of a request by host, path, method and headers: the first that matches.
//!
//! - [`keys`]: what is counted separately: the keys of limits
//! - [`rewrite`]: changes of headers and paths

mod coverage;
mod encoded_slash;
#[cfg(test)]
mod fixture;
mod host;
mod hosts;
pub mod keys;
mod lax_match;
mod misses;
mod path_variants;
mod preflight;
mod query;
mod regex_guards;
pub mod rewrite;
mod table;
mod tree;

pub use coverage::warn_of_unreachable;
pub use encoded_slash::NormalPath;
pub use host::{NoHost, host, prefer_target};
pub use lax_match::LaxMatch;
pub use misses::Misses;
pub use path_variants::{folded, is_doubtful, is_plain};
pub use preflight::{is_exempt_preflight, preflight};
pub use query::RouteQuery;
pub use table::RouteTable;
