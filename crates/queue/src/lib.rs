//! Requests that are delivered later, at the pace of a limit: what is stored of them, what may become of them, and when they
//! are tried again. No I/O, no clocks, no HTTP: a request and its answer are bytes here, times are milliseconds since 1970.
//!
//! - [`Message`]: a request as it is stored; [`Id`] names it
//! - [`Accepted`], [`Refused`]: whether it is stored; [`Bounds`]: how much may be
//! - [`Claims`], [`Claimed`], [`End`]: an attempt to deliver it, and how that ended; [`Retries`] says what follows a failure
//! - [`Entry`], [`State`]: what can be seen of it

mod entry;
mod id;
mod message;
mod retries;

pub use self::entry::{Entry, Figures, State};
pub use self::id::Id;
pub use self::message::{
    Accepted, Bounds, Cancelled, Claimed, Claims, DeadLetters, End, Idempotency, MAX_DEAD_LETTERS,
    MAX_OF_KEY, Message, Order, Overdue, Refused,
};
pub use self::retries::{LONGEST_WAIT, Next, Retries};
