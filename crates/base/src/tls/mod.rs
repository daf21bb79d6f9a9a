//! TLS on listeners and towards upstreams: certificates, private keys and authorities read from files, which certificate
//! a client is shown, and the configuration of handshakes.

mod client;
mod names;
mod pair;
mod pem;
mod provider;
mod server;
mod stream;
mod subject;
mod upstream;

use std::sync::Arc;

pub use client::{ClientCertificate, ClientRoots};
pub use names::Names;
pub use pair::{KeyPair, PairError, PairFile, SOON};
pub use pem::{Pem, PemMistake, pair};
use provider::provider;
pub use server::{ServerTls, TlsSession};
pub use stream::MaybeTls;
pub use upstream::{SystemRoots, TlsFile, TlsFiles, TlsMistakes, TlsPart, UpstreamTls};

/// What the files of a listener's TLS hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerFiles {
    /// The certificates, in the order of the configuration.
    pub certificates: Vec<Arc<KeyPair>>,
    /// The authorities of clients' certificates; `None` if clients are not asked for any.
    pub client_roots: Option<Arc<ClientRoots>>,
}
