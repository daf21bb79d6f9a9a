//! The certificates of a store. They are tried here, so that a wrong file is a mistake of the configuration and not
//! a store that fails when it is needed.

use std::path::Path;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, RootCertStore};

use super::super::raw_store::RawRedisTls;
use super::super::read::At;
use super::super::report::Report;
use super::super::store::RedisTls;
use super::file;

pub(super) fn tls(raw: &RawRedisTls, folder: &Path, report: &mut Report) -> Option<RedisTls> {
    let before = report.errors.len();
    let ca = raw.ca.as_ref().and_then(|path| ca(path, folder, report));
    let client = match (&raw.cert, &raw.key) {
        (Some(cert), Some(key)) => client(cert, key, folder, report),
        (Some(given), None) if !raw.wrong.contains(&"key") => {
            report.error(given.problem("`cert` needs its `key`").help("the private key of the certificate"));
            None
        }
        (None, Some(given)) if !raw.wrong.contains(&"cert") => {
            report.error(given.problem("`key` needs its `cert`").help("the certificate of the private key"));
            None
        }
        _ => None,
    };
    (report.errors.len() == before).then_some(RedisTls { ca, client })
}

/// Authorities, as PEM.
pub(super) fn ca(path: &At<String>, folder: &Path, report: &mut Report) -> Option<Vec<u8>> {
    let pem = file(path, folder, report)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, &pem, report)? {
        if let Err(error) = roots.add(certificate) {
            report.error(path.problem(format!("{} holds a certificate that is none: {error}", path.value)));
            return None;
        }
    }
    Some(pem)
}

fn client(
    cert: &At<String>,
    key: &At<String>,
    folder: &Path,
    report: &mut Report,
) -> Option<(Vec<u8>, Vec<u8>)> {
    let (chain_pem, key_pem) = (file(cert, folder, report), file(key, folder, report));
    let chain = chain_pem.as_ref().and_then(|pem| certificates(cert, pem, report));
    let private = key_pem.as_ref().and_then(|pem| {
        let private = PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
            let problem = key.problem(format!("{} holds no private key", key.value));
            report.error(problem.help("expected PEM, -----BEGIN PRIVATE KEY-----, without a passphrase"));
        });
        private.ok()
    });
    match CertifiedKey::from_der(chain?, private?, &aws_lc_rs::default_provider()) {
        Ok(_) => {}
        Err(Error::InconsistentKeys(_)) => {
            let problem = key.problem(format!("{} is not the key of {}", key.value, cert.value));
            report.error(problem.help("`cert` begins with the certificate of this very key"));
        }
        Err(error) => {
            report.error(cert.problem(format!("{} and {} cannot be used: {error}", cert.value, key.value)))
        }
    }
    Some((chain_pem?, key_pem?))
}

/// The certificates of a file, at least one.
fn certificates(path: &At<String>, pem: &[u8], report: &mut Report) -> Option<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Some(certificates),
        _ => {
            let problem = path.problem(format!("{} holds no certificate", path.value));
            report.error(problem.help("expected PEM, -----BEGIN CERTIFICATE-----"));
            None
        }
    }
}
