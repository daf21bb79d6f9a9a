//! Certificates and keys in PEM files, which are watched: what they hold, and what is wrong with them.

use std::fmt;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, RootCertStore};

use super::pair::PairFile;
use crate::file_watch::{Source, Unusable, Watched};

/// A PEM file. No way of printing it tells what it holds.
pub struct Pem {
    text: String,
    source: Option<Source>,
}

/// Why PEM files cannot be used: what is wrong, and perhaps a way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemMistake {
    /// What is wrong.
    pub message: String,
    /// A way out.
    pub help: Option<&'static str>,
}

impl Watched for Pem {
    const LARGEST: u64 = crate::file::SMALL;

    fn parse(text: &str, _file: &str) -> Result<Self, Unusable> {
        Ok(Self { text: text.to_owned(), source: None }) // what is wrong depends on what it is for
    }

    fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }

    fn read_from(self, source: Source) -> Self {
        Self { source: Some(source), ..self }
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pem").finish_non_exhaustive()
    }
}

impl PemMistake {
    fn new(message: String, help: &'static str) -> Self {
        Self { message, help: Some(help) }
    }
}

impl Pem {
    /// What a file with these bytes holds; it is not watched.
    pub fn new(bytes: &[u8]) -> Self {
        Self { text: String::from_utf8_lossy(bytes).into_owned(), source: None }
    }

    /// The certificates that it holds, at least one; `name` is what the file is called.
    ///
    /// # Errors
    /// When there is none, or what is there is broken.
    pub fn certificates(&self, name: &str) -> Result<Vec<CertificateDer<'static>>, PemMistake> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.text.as_bytes()).collect();
        read.ok().filter(|certificates| !certificates.is_empty()).ok_or_else(|| {
            let message = format!("{name} holds no certificate");
            PemMistake::new(message, "expected PEM, -----BEGIN CERTIFICATE-----")
        })
    }

    /// The authorities that it holds, at least one.
    ///
    /// # Errors
    /// When there is none, or one is no certificate.
    pub fn roots(&self, name: &str) -> Result<RootCertStore, PemMistake> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates(name)? {
            roots.add(certificate).map_err(|error| {
                let message = format!("{name} holds a certificate that is none: {error}");
                PemMistake { message, help: None }
            })?;
        }
        Ok(roots)
    }

    /// The private key that it holds.
    ///
    /// # Errors
    /// When there is none.
    pub fn private_key(&self, name: &str) -> Result<PrivateKeyDer<'static>, PemMistake> {
        PrivateKeyDer::from_pem_slice(self.text.as_bytes()).map_err(|_| {
            let message = format!("{name} holds no private key");
            PemMistake::new(message, "expected PEM, -----BEGIN PRIVATE KEY-----, without a passphrase")
        })
    }
}

/// A chain of certificates and the private key of the first one; each comes with the name of its file.
///
/// # Errors
/// All that is wrong, with the file that is at fault.
pub fn pair(
    (cert, cert_name): (&Pem, &str),
    (key, key_name): (&Pem, &str),
) -> Result<CertifiedKey, Vec<(PairFile, PemMistake)>> {
    let (chain, private) = match (cert.certificates(cert_name), key.private_key(key_name)) {
        (Ok(chain), Ok(private)) => (chain, private),
        (chain, private) => {
            let cert = chain.err().map(|mistake| (PairFile::Cert, mistake));
            let key = private.err().map(|mistake| (PairFile::Key, mistake));
            return Err(cert.into_iter().chain(key).collect());
        }
    };
    CertifiedKey::from_der(chain, private, &aws_lc_rs::default_provider()).map_err(|error| {
        vec![match error {
            Error::InconsistentKeys(_) => {
                let message = format!("{key_name} is not the key of {cert_name}");
                let help = "`cert` begins with the certificate of this very key";
                (PairFile::Key, PemMistake::new(message, help))
            }
            error => {
                let message = format!("{cert_name} and {key_name} cannot be used: {error}");
                (PairFile::Cert, PemMistake { message, help: None })
            }
        }]
    })
}
