//! TLS on listeners: certificates and who chooses among them, clients' certificates, the handshake's configuration.

mod client;
mod names;
mod pair;
mod server;
mod subject;

pub use client::{ClientRoots, Identified};
pub use names::Names;
pub use pair::{KeyPair, PairError, PairFile, SOON};
pub use server::{ServerTls, TlsSession};
