//! 3: host, path, method and headers -> the route. The first that matches wins.

#[cfg(test)]
mod fixture;
mod host;
mod hosts;
mod misses;
mod near;
mod preflight;
mod spelling;
mod table;
mod tree;
mod wider;

pub use host::{NoHost, host};
pub use misses::Misses;
pub use near::Near;
pub use preflight::preflight;
pub use spelling::{folded, is_doubtful, is_plain};
pub use table::{Asked, RouteTable};
pub(crate) use wider::Wider;
