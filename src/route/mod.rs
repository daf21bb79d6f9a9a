//! 3: host, path, method and headers -> the route. The first that matches wins.

mod host;
mod path;
mod pattern;
mod preflight;
mod table;

pub use host::{NoHost, host};
pub use path::{PathError, normalize};
pub use pattern::{HostPattern, Params, PathPattern, PatternError};
pub use preflight::preflight;
pub use table::{Asked, RouteTable};
