//! The life of one request, from its head to the last byte of the answer.
//!
//! Start with [`pipeline`]: match → authenticate → select limits → decide → forward | answer → settle.
//!
//! - [`matching`]: the route, the identity of the sender and the limits of a request, step by step
//! - `limit_selection`: which limits apply, with which key and cost (`cost`)
//! - [`early_reject`]: requests that are answered before all of their limits are evaluated
//! - [`verdict`]: what was found out about a request, and what its limits decided
//! - `queueing`: requests that are queued (`message`, `owner`, `prefer`), [delivered](Delivery), and whose state is asked for (`queue_status`)
//! - [`serve`]: a request of a client, and by `served` the question of another proxy about a request that it forwards
//! - [`Services`]: what a worker thread has for requests; [`View`]: the configuration in force as the worker sees it
//! - [`context`]: holds and facts of a request, and its [`Exchange`](sluicegate_upstream::Exchange); dropping it settles them
//! - `ending`: what a request keeps of the configuration until its last byte
//! - [`ResponseBody`]: the body of the response, which ends the request when it is dropped

pub mod context;
pub mod cost;
mod decide;
mod deliver;
mod disposition;
pub mod early_reject;
mod ending;
mod head_checks;
mod inputs;
pub mod limit_selection;
pub mod matching;
mod message;
mod owner;
pub mod pipeline;
mod prefer;
mod queue_rule;
pub(crate) mod queue_status;
mod queueing;
mod remember;
mod response_body;
pub mod serve;
mod served;
mod services;
pub mod verdict;
mod view;

pub use context::RequestContext;
pub use deliver::{Deferred, Delivery, Outcome, retry_after};
pub use inputs::Inputs;
pub use queue_rule::{Place, may_queue_request, queued_by};
pub use queueing::seconds_to_place;
pub use response_body::{Response, ResponseBody, Tunnel};
pub use services::Services;
pub use view::View;
