//! A listener's side of handshakes: which certificate is shown, and what a handshake has told.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, ServerConfig, ServerConnection};

use super::{ClientCertificate, KeyPair, ListenerFiles, provider};
use sluicegate_config::{MinTls, TlsConfig};

/// What is spoken above TLS, best first.
const PROTOCOLS: [&[u8]; 2] = [H2, b"http/1.1"];
const H2: &[u8] = b"h2";

/// How a listener speaks TLS.
#[derive(Debug)]
pub struct ServerTls {
    /// For handshakes.
    pub config: Arc<ServerConfig>,
    /// The longest that one may take.
    pub timeout: Duration,
    chooser: Arc<Chooser>,
    /// What it was made of.
    made_of: (TlsConfig, ListenerFiles),
}

/// What a handshake has told of a connection.
#[derive(Debug)]
pub struct TlsSession {
    /// Whether HTTP/2 was agreed on (RFC 9113 §3.2).
    pub h2: bool,
    /// Whether it went on from an earlier one.
    pub resumed: bool,
    /// Who the client is by its certificate, if it has shown one.
    pub client: Option<ClientCertificate>,
    /// The host that the client asked for; without one, what it was shown was no choice.
    name: Option<String>,
    chooser: Arc<Chooser>,
}

/// Chooses a certificate by the name that a client asks for.
#[derive(Debug)]
struct Chooser(Vec<Arc<KeyPair>>);

impl ServerTls {
    /// How a listener speaks TLS as `config` says, with what its files hold. The session tickets of `before` stay valid
    /// as long as clients have to present the same certificates.
    pub fn next(config: &TlsConfig, files: &ListenerFiles, before: Option<&Arc<Self>>) -> Arc<Self> {
        if let Some(same) = before.filter(|before| before.made_of.0 == *config && before.made_of.1 == *files)
        {
            return Arc::clone(same);
        }
        let tickets = before.filter(|before| {
            before.made_of.0.client == config.client && before.made_of.1.client_roots == files.client_roots
        });
        let tickets = tickets.map(|before| Arc::clone(&before.config.ticketer)).or_else(new_tickets);
        let chooser = Arc::new(Chooser(files.certificates.clone()));
        let versions = match config.min_version {
            MinTls::V1_2 => &[&TLS13, &TLS12][..],
            MinTls::V1_3 => &[&TLS13],
        };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("the provider has suites for both versions");
        let builder = match config.client.as_ref().zip(files.client_roots.as_ref()) {
            Some((client, roots)) => builder.with_client_cert_verifier(roots.verifier(client.required)),
            None => builder.with_no_client_auth(),
        };
        let mut server = builder.with_cert_resolver(Arc::clone(&chooser) as Arc<dyn ResolvesServerCert>);
        server.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        // Any of the suites will do; scanners want to see that somebody has an order.
        server.ignore_client_order = true;
        // Tickets hold what is remembered of a client, so that clients cannot fill the memory with it.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        if let Some(tickets) = tickets {
            server.ticketer = tickets;
        }
        Arc::new(Self {
            config: Arc::new(server),
            timeout: config.handshake_timeout,
            chooser,
            made_of: (config.clone(), files.clone()),
        })
    }

    /// What a finished handshake has told.
    pub fn session(&self, connection: &ServerConnection) -> TlsSession {
        let own = connection.peer_certificates().and_then(<[_]>::first);
        TlsSession {
            h2: connection.alpn_protocol() == Some(H2),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            client: own.map(|certificate| ClientCertificate::by(certificate)),
            name: connection.server_name().map(str::to_ascii_lowercase),
            chooser: Arc::clone(&self.chooser),
        }
    }
}

/// Keys for tickets that change every six hours and are forgotten six hours later; `None` if the system has no
/// randomness for them, and then every handshake is a full one.
fn new_tickets() -> Option<Arc<dyn ProducesTickets>> {
    aws_lc_rs::Ticketer::new().map_err(|error| tracing::warn!("TLS sessions are not resumed: {error}")).ok()
}

impl TlsSession {
    /// The session of a request that was accepted earlier, of a client that had shown this certificate, if any.
    pub fn of_accepted(client: Option<ClientCertificate>) -> Self {
        Self { h2: false, resumed: false, client, name: None, chooser: Arc::new(Chooser(Vec::new())) }
    }

    /// Whether a request for this host should have come on another connection: the certificate that this one began with
    /// is not for it, and another of the listener is (RFC 9110 §15.5.20).
    pub fn is_misdirected(&self, host: &str) -> bool {
        let Some(name) = self.name.as_deref().filter(|name| *name != host) else { return false };
        !self.chooser.for_name(name).any(|pair| pair.names.cover(host))
            && self.chooser.0.iter().any(|pair| pair.names.cover(host))
    }
}

impl Chooser {
    /// The pairs for a name: those that name it, else those with a wildcard for it, else the first of all.
    fn for_name(&self, name: &str) -> impl Iterator<Item = &Arc<KeyPair>> {
        let exact = self.0.iter().any(|pair| pair.names.has(name));
        let wild = !exact && self.0.iter().any(|pair| pair.names.has_wildcard_for(name));
        self.0.iter().enumerate().filter_map(move |(index, pair)| {
            let fits = match (exact, wild) {
                (true, _) => pair.names.has(name),
                (_, true) => pair.names.has_wildcard_for(name),
                _ => index == 0,
            };
            fits.then_some(pair)
        })
    }
}

impl Chooser {
    /// The pair that takes the place of the first one for a client that asks for no name, or for one that no pair has, and
    /// cannot verify the first one's key: for the same names if there is one.
    fn stand_in(&self, name: &str, verifiable: impl Fn(&&Arc<KeyPair>) -> bool) -> Option<&Arc<KeyPair>> {
        if self.0.iter().any(|pair| pair.names.cover(name)) {
            return None;
        }
        let is_same = |pair: &&Arc<KeyPair>| pair.names == self.0[0].names;
        let others = || self.0.iter().filter(&verifiable);
        others().find(is_same).or_else(|| others().next())
    }
}

impl ResolvesServerCert for Chooser {
    /// Of several for the name, the first that the client can verify: one may have an RSA key, another an elliptic one.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase).unwrap_or_default();
        let verifiable =
            |pair: &&Arc<KeyPair>| pair.key.key.choose_scheme(hello.signature_schemes()).is_some();
        let pair = self
            .for_name(&name)
            .find(verifiable)
            .or_else(|| self.stand_in(&name, verifiable))
            .or_else(|| self.for_name(&name).next())?;
        Some(Arc::clone(&pair.key))
    }
}
