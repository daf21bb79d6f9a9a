//! A certificate with its chain and its private key, read from two files and tried before anybody relies on them.

use std::path::Path;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::names::Names;
use super::provider;
use crate::file;
use crate::file_watch::{Digest, sha256};

/// A certificate that ends so soon is worth a warning.
pub const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);

/// A certificate with its key.
#[derive(Debug)]
pub struct KeyPair {
    /// For handshakes.
    pub key: Arc<CertifiedKey>,
    /// The names that it is for.
    pub names: Names,
    /// When it begins to be valid.
    pub not_before: Timestamp,
    /// When it ends to be valid.
    pub not_after: Timestamp,
    /// Of both files.
    digests: [Digest; 2],
}

/// One of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairFile {
    /// The certificate, and those that lead to its authority.
    Cert,
    /// Its private key.
    Key,
}

/// Why a pair cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairError {
    /// The file to blame.
    pub file: PairFile,
    /// What is wrong with it.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl PairError {
    fn new(file: PairFile, message: impl Into<String>, help: Option<&str>) -> Self {
        Self { file, message: message.into(), help: help.map(ToOwned::to_owned) }
    }
}

impl KeyPair {
    /// Reads a pair; `before` if the files are still the same as when that was read.
    ///
    /// # Errors
    /// When a file cannot be read, the key is not that of the certificate, or the certificate has expired and was
    /// not in force before.
    pub fn load(
        cert: &Path,
        key: &Path,
        before: Option<&Arc<Self>>,
        now: Timestamp,
    ) -> Result<Arc<Self>, PairError> {
        let (chain, private) = (read(cert, PairFile::Cert)?, read(key, PairFile::Key)?);
        let digests = [sha256(&chain), sha256(&private)];
        if let Some(before) = before.filter(|before| before.digests == digests) {
            // One that expires in force is not to keep all other changes from coming into force.
            return Ok(Arc::clone(before));
        }
        let pair = Self::parse(&chain, &private, digests, (cert, key))?;
        if pair.not_after < now {
            let message = format!("{} has expired on {}", cert.display(), pair.not_after);
            return Err(PairError::new(PairFile::Cert, message, Some("no client accepts it; renew it")));
        }
        Ok(Arc::new(pair))
    }

    /// Why it is not to take the place of `before` yet: clients accept that one, and would not accept this.
    pub fn is_early(&self, before: &Self, file: &str, now: Timestamp) -> Option<String> {
        let is_valid = |pair: &Self| pair.not_before <= now && now <= pair.not_after;
        (self.not_before > now && is_valid(before)).then(|| {
            format!(
                "{file} is not valid before {}; the certificate before it serves until then",
                self.not_before
            )
        })
    }

    fn parse(
        chain: &[u8],
        private: &[u8],
        digests: [Digest; 2],
        (cert, key): (&Path, &Path),
    ) -> Result<Self, PairError> {
        let (cert, key) = (cert.display(), key.display());
        let blame_cert = |message: String, help| PairError::new(PairFile::Cert, message, help);
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().unwrap_or_default();
        let Some(own) = chain.first().cloned() else {
            let help = Some("expected PEM, -----BEGIN CERTIFICATE-----");
            return Err(blame_cert(format!("{cert} holds no certificate"), help));
        };
        let private = PrivateKeyDer::from_pem_slice(private).map_err(|_| {
            let help = Some("expected PEM, -----BEGIN PRIVATE KEY-----, without a passphrase");
            PairError::new(PairFile::Key, format!("{key} holds no private key"), help)
        })?;
        let (_, parsed) = X509Certificate::from_der(&own)
            .map_err(|_| blame_cert(format!("{cert} holds a certificate that is none"), None))?;
        let at = |seconds| Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
        let not_before = at(parsed.validity().not_before.timestamp());
        let not_after = at(parsed.validity().not_after.timestamp());
        let alternative = parsed.subject_alternative_name().ok().flatten();
        let names =
            Names::new(alternative.iter().flat_map(|extension| &extension.value.general_names).filter_map(
                |name| match name {
                    GeneralName::DNSName(name) => Some(*name),
                    _ => None,
                },
            ));
        match CertifiedKey::from_der(chain, private, &provider()) {
            Ok(certified) => Ok(Self { key: Arc::new(certified), names, not_before, not_after, digests }),
            Err(rustls::Error::InconsistentKeys(_)) => {
                let help = Some("`cert` begins with the certificate of this very key");
                Err(PairError::new(PairFile::Key, format!("{key} is not the key of {cert}"), help))
            }
            Err(error) => Err(blame_cert(format!("{cert} and {key} cannot be used: {error}"), None)),
        }
    }

    /// What is doubtful about it at this time, if anything is.
    pub fn doubt(&self, file: &str, now: Timestamp) -> Option<String> {
        match () {
            () if self.not_after < now => Some(format!("{file} has expired on {}", self.not_after)),
            () if self.not_before > now => Some(format!("{file} is not valid before {}", self.not_before)),
            () if self.not_after < now.saturating_add(SOON).unwrap_or(Timestamp::MAX) => {
                Some(format!("{file} expires on {}", self.not_after))
            }
            () => None,
        }
    }
}

/// Two are the same that were read from the same texts.
impl PartialEq for KeyPair {
    fn eq(&self, other: &Self) -> bool {
        self.digests == other.digests
    }
}

impl Eq for KeyPair {}

fn read(path: &Path, file: PairFile) -> Result<Vec<u8>, PairError> {
    super::pair::bounded(path).map_err(|message| PairError { file, message, help: None })
}

/// What a small file holds.
pub(super) fn bounded(path: &Path) -> Result<Vec<u8>, String> {
    let read = file::read(path, file::SMALL).map(|(bytes, _)| bytes);
    read.map_err(|error| format!("cannot read {}: {error}", path.display()))
}
