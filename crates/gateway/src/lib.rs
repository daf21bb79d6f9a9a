//! The gateway: requests, their limits, its answers, and the process around them.
//!
//! The modules, top to bottom; each imports only modules below it:
//!
//! 1. [`runtime`]: the life of the process; [`admin`]: the API for operators; [`explain`]: what would happen to a request
//! 2. [`server`]: accept, handshake, and the serve loops of HTTP/1.1 and HTTP/2
//! 3. [`request`]: **read first** ([`request::pipeline`]): route → identify → limits → forward | refuse
//! 4. [`process_state`]: what all threads share; [`found_keys`]: the keys that an operator's text means
//! 5. [`snapshot`]: a configuration in force; [`diff`]: what a reload changes
//! 6. [`respond`]: local answers; [`limit`]: the limits in force; [`resources`]: the files that a configuration names
//! 7. [`rules`]: other numbers for single keys; [`store_settings`], [`pages`]: leaves

pub mod admin;
pub mod delivery;
pub mod diff;
pub mod explain;
pub mod found_keys;
pub mod limit;
pub mod pages;
pub mod process_state;
pub mod queue;
pub mod request;
pub mod resources;
pub mod respond;
pub mod rules;
pub mod runtime;
pub mod server;
pub mod snapshot;
pub mod store_settings;
