//! Clients' certificates: whose are accepted, and who they say the client is.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::pair::bounded;
use super::provider;
use super::subject;
use crate::file_watch::{Digest, sha256};

/// The authorities that clients' certificates have to come from.
#[derive(Debug)]
pub struct ClientRoots {
    /// Turns clients without a certificate away.
    required: Arc<dyn ClientCertVerifier>,
    /// Does not.
    optional: Arc<dyn ClientCertVerifier>,
    /// Of the file.
    digest: Digest,
}

/// Who a client is by its certificate, which was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject (RFC 4514).
    pub subject: String,
    /// SHA-256 of the certificate, in lower-case hexadecimal digits.
    pub fingerprint: String,
}

impl ClientRoots {
    /// Reads a file of authorities; `before` if the file is still the same.
    ///
    /// # Errors
    /// With what is wrong, and what to do about it.
    pub fn load(
        path: &Path,
        before: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, (String, Option<&'static str>)> {
        let pem = bounded(path).map_err(|message| (message, None))?;
        let digest = sha256(&pem);
        if let Some(before) = before.filter(|before| before.digest == digest) {
            return Ok(Arc::clone(before));
        }
        let file = path.display();
        let certificates: Vec<_> =
            CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().unwrap_or_default();
        if certificates.is_empty() {
            let help = "expected PEM, -----BEGIN CERTIFICATE-----";
            return Err((format!("{file} holds no certificate"), Some(help)));
        }
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots
                .add(certificate)
                .map_err(|error| (format!("{file} holds a certificate that is none: {error}"), None))?;
        }
        let cannot = |error| (format!("{file} cannot be used: {error}"), None);
        let roots = Arc::new(roots);
        let verifier = || WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider());
        let required = verifier().build().map_err(cannot)?;
        let optional = verifier().allow_unauthenticated().build().map_err(cannot)?;
        Ok(Arc::new(Self { required, optional, digest }))
    }

    /// What verifies clients.
    pub(super) fn verifier(&self, required: bool) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(if required { &self.required } else { &self.optional })
    }
}

/// Two are the same that were read from the same text.
impl PartialEq for ClientRoots {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for ClientRoots {}

impl ClientCertificate {
    /// Who the owner of a verified certificate is.
    pub(crate) fn by(certificate: &CertificateDer<'_>) -> Self {
        let subject =
            X509Certificate::from_der(certificate).map(|(_, parsed)| subject::text(parsed.subject()));
        let fingerprint = sha256(certificate).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { subject: subject.unwrap_or_default(), fingerprint }
    }
}
