//! How servers prove who they are, and how the gateway does. No way of printing it tells a private key.

use std::cell::OnceCell;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::pair::PairFile;
use super::pem::{Pem, PemMistake, pair};
use crate::file_watch::{Unusable, Watched};
use sluicegate_config::Protocol;

/// TLS to the servers of an upstream.
#[derive(Clone)]
pub struct UpstreamTls {
    /// What it is made of.
    pub files: TlsFiles,
    /// The name that certificates have to be for; `None` for the host of the server.
    pub server_name: Option<ServerName<'static>>,
    /// Whether certificates are verified.
    pub verify: bool,
    protocol: Protocol,
    client: Arc<ClientConfig>,
}

/// The PEM files of an upstream, with what they held when they were read.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// The authorities that are believed; `None` for those of the system.
    pub ca: Option<TlsFile>,
    /// The gateway's certificate chain and its private key.
    pub client: Option<(TlsFile, TlsFile)>,
}

/// A PEM file.
#[derive(Clone, Debug)]
pub struct TlsFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it is called in reports.
    pub name: String,
    /// What it held.
    pub pem: Arc<Pem>,
}

/// Which of the files is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPart {
    /// The authorities.
    Ca,
    /// The gateway's certificate.
    Cert,
    /// The gateway's private key.
    Key,
}

/// What is wrong with which of the files.
pub type TlsMistakes = Vec<(TlsPart, PemMistake)>;

impl UpstreamTls {
    /// TLS made of these files. `system` are the authorities of the system, which upstreams without a file share.
    ///
    /// # Errors
    /// All that is wrong with the files.
    pub fn new(
        files: TlsFiles,
        server_name: Option<ServerName<'static>>,
        verify: bool,
        protocol: Protocol,
        system: &SystemRoots,
    ) -> Result<Self, TlsMistakes> {
        let mut client = client(&files, verify, system)?;
        client.alpn_protocols = vec![protocol.alpn().to_vec()];
        Ok(Self { files, server_name, verify, protocol, client: Arc::new(client) })
    }

    /// What a handshake goes by. Sessions are remembered by whoever asks for it.
    pub fn client(&self) -> ClientConfig {
        ClientConfig::clone(&self.client)
    }

    /// The same with what the files hold now.
    ///
    /// # Errors
    /// What is wrong with them, each with its path.
    pub fn again(&self) -> Result<Self, Vec<(PathBuf, Unusable)>> {
        let mut wrong = Vec::new();
        let mut read = |file: &TlsFile| match Pem::load(&file.path, Some(&file.pem)) {
            Ok(pem) => Some(TlsFile { pem, ..file.clone() }),
            Err(unusable) => {
                wrong.push((file.path.clone(), unusable));
                None
            }
        };
        let ca = self.files.ca.as_ref().map(&mut read);
        let client = self.files.client.as_ref().map(|(cert, key)| (read(cert), read(key)));
        let files = TlsFiles { ca: ca.flatten(), client: client.and_then(|(cert, key)| cert.zip(key)) };
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let system = SystemRoots::default();
        let made = Self::new(files, self.server_name.clone(), self.verify, self.protocol, &system);
        made.map_err(|mistakes| {
            let of_part = |(part, mistake): (TlsPart, PemMistake)| {
                let unusable = Unusable { message: mistake.message, details: Vec::new() };
                self.files.path(part).map(|path| (path, unusable))
            };
            mistakes.into_iter().filter_map(of_part).collect()
        })
    }
}

impl TlsFiles {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &TlsFile> {
        self.ca.iter().chain(self.client.iter().flat_map(|(cert, key)| [cert, key]))
    }

    fn path(&self, part: TlsPart) -> Option<PathBuf> {
        let file = match part {
            TlsPart::Ca => self.ca.as_ref(),
            TlsPart::Cert => self.client.as_ref().map(|(cert, _)| cert),
            TlsPart::Key => self.client.as_ref().map(|(_, key)| key),
        };
        file.map(|file| file.path.clone())
    }
}

fn client(files: &TlsFiles, verify: bool, system: &SystemRoots) -> Result<ClientConfig, TlsMistakes> {
    let roots = match &files.ca {
        Some(ca) => ca.pem.roots(&ca.name).map(Arc::new).map_err(|mistake| vec![(TlsPart::Ca, mistake)]),
        None => Ok(if verify { system.get() } else { Arc::new(RootCertStore::empty()) }),
    };
    let own = files.client.as_ref().map(|(cert, key)| {
        pair((&cert.pem, &cert.name), (&key.pem, &key.name)).map_err(|mistakes| {
            let part = |file| if file == PairFile::Cert { TlsPart::Cert } else { TlsPart::Key };
            mistakes.into_iter().map(|(file, mistake)| (part(file), mistake)).collect::<TlsMistakes>()
        })
    });
    let (roots, own) = match (roots, own.transpose()) {
        (Ok(roots), Ok(own)) => (roots, own),
        (roots, own) => return Err([roots.err(), own.err()].into_iter().flatten().flatten().collect()),
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| vec![(TlsPart::Ca, PemMistake { message: error.to_string(), help: None })])?;
    let builder = match verify {
        true => builder.with_root_certificates(roots),
        false => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))),
    };
    Ok(match own {
        Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own))),
        None => builder.with_no_client_auth(),
    })
}

/// The authorities of the system, which are read when the first upstream needs them: that takes some ten milliseconds.
#[derive(Default)]
pub struct SystemRoots(OnceCell<Arc<RootCertStore>>);

impl SystemRoots {
    /// The authorities; none if the system has none, and then no server is believed.
    fn get(&self) -> Arc<RootCertStore> {
        let load = || {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                tracing::warn!(
                    "this machine has no certificates of authorities, so no https:// server is believed"
                );
            }
            Arc::new(roots)
        };
        Arc::clone(self.0.get_or_init(load))
    }
}

/// Takes any certificate, as `verify: false` says. That the server has the key of the one that it shows is verified
/// all the same.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl PartialEq for TlsFile {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.pem.is_same(&other.pem)
    }
}

impl Eq for TlsFile {}

impl PartialEq for UpstreamTls {
    fn eq(&self, other: &Self) -> bool {
        self.files.ca == other.files.ca
            && self.files.client == other.files.client
            && (&self.server_name, self.verify, self.protocol)
                == (&other.server_name, other.verify, other.protocol)
    }
}

impl Eq for UpstreamTls {}

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls").field("files", &self.files).finish_non_exhaustive()
    }
}
