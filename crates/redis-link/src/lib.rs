//! One connection to the server that holds the keys of one hash tag, for all callers of a process: one server, the master that
//! sentinels name, or a node of a cluster. It is kept open; a server that is away is tried again after 50 to 250 ms, for ever.
//!
//! - [`Line`]: the connection that is open now; [`call_repeatable`](Line::call_repeatable), [`call_once`](Line::call_once)
//!   and [`call_once_then`](Line::call_once_then) call a [`Script`] within a deadline
//! - [`keep`]: the task that opens it again
//! - [`CallError`]: why a call has no result, and whether it may have been executed

mod call;
mod call_error;
mod keeper;
mod link;
mod script;

pub use self::call::one_line;
pub use self::call_error::CallError;
pub use self::keeper::keep;
pub use self::link::{Line, Link, PING_INTERVAL, State, pause, ping_timeout};
pub use self::script::Script;
