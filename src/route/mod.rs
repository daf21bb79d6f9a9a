//! 3: host, path, method and headers -> the route. The first that matches wins.

mod host;
mod near;
mod path;
mod pattern;
mod preflight;
mod spelling;
mod table;

pub use host::{NoHost, host};
pub use near::Near;
pub use path::{PathError, normalize};
pub use pattern::{HostPattern, Params, PathPattern, PatternError};
pub use preflight::preflight;
pub use spelling::{folded, is_doubtful, is_plain};
pub use table::{Asked, RouteTable};
