//! Certificates made for a test, and TLS termination in front of a server that has none.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

/// Certificates made for a test.
pub struct Authority {
    issuer: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    pub fn new() -> Self {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, format!("{:x?}", &key.public_key_raw()[..9]));
        Self { issuer: rcgen::CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for these names and its key, as PEM.
    pub fn issue(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(names).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// A server with a certificate for these names, which speaks `protocols` and perhaps asks for a certificate that
    /// `clients` signed.
    pub fn server(
        &self,
        names: &[&str],
        protocols: &[&str],
        clients: Option<&Self>,
    ) -> Arc<rustls::ServerConfig> {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let (cert, key) = self.issue(names);
        let chain = CertificateDer::pem_slice_iter(cert.as_bytes()).collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(clients.pem().as_bytes()).unwrap()).unwrap();
                let verifier =
                    rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.session_storage = rustls::server::ServerSessionMemoryCache::new(256);
        Arc::new(config)
    }
}

/// The properties of a TLS connection.
#[derive(Clone, Debug)]
pub struct Handshake {
    pub name: Option<String>,
    pub protocol: Option<String>,
    pub resumed: bool,
    pub has_certificate: bool,
}

impl Handshake {
    pub fn of(connection: &rustls::ServerConnection) -> Self {
        Self {
            name: connection.server_name().map(str::to_owned),
            protocol: connection.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned()),
            resumed: connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
            has_certificate: connection.peer_certificates().is_some(),
        }
    }
}

/// Terminates TLS in front of a server that has none. Stops when it is dropped.
pub struct TlsFront {
    pub address: SocketAddr,
    handshakes: Arc<Mutex<Vec<Handshake>>>,
    _end: oneshot::Sender<()>,
}

impl TlsFront {
    pub fn before(server: SocketAddr, config: Arc<rustls::ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let handshakes = Arc::new(Mutex::new(Vec::new()));
        let (_end, over) = oneshot::channel::<()>();
        let noted = Arc::clone(&handshakes);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let accept = async {
                    loop {
                        let Ok((stream, _)) = listener.accept().await else { continue };
                        let (acceptor, noted) = (TlsAcceptor::from(Arc::clone(&config)), Arc::clone(&noted));
                        tokio::task::spawn_local(async move {
                            let Ok(mut outer) = acceptor.accept(stream).await else { return };
                            noted.lock().unwrap().push(Handshake::of(outer.get_ref().1));
                            let Ok(mut inner) = tokio::net::TcpStream::connect(server).await else { return };
                            let _ = tokio::io::copy_bidirectional(&mut outer, &mut inner).await;
                        });
                    }
                };
                tokio::select! {
                    () = accept => {}
                    _ = over => {}
                }
            });
        });
        Self { address, handshakes, _end }
    }

    pub fn handshakes(&self) -> Vec<Handshake> {
        self.handshakes.lock().unwrap().clone()
    }
}
