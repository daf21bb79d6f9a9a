//! TLS of listeners: the files of certificates and authorities, and how handshakes are made.

use std::time::Duration;

use super::checks::{between, empty, missing, word};
use crate::model::listener::{CertificateConfig, ClientAuthConfig, MinTls, TlsConfig};
use crate::raw::listen::{RawCertificate, RawTls};
use crate::read::at::{At, FileRef, Folder};
use crate::read::is_wrong;
use crate::read::report::Report;

/// The longest that a handshake may take when nothing else is said.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// TLS of a listener. A wrong field is reported and gets its default, so that all files are checked.
pub(super) fn tls(raw: &RawTls, folder: Folder<'_>, report: &mut Report) -> TlsConfig {
    let certificates = certificates(raw, folder, report);
    let client = client(raw, folder, report);
    let versions = [("1.2", MinTls::V1_2), ("1.3", MinTls::V1_3)];
    let min_version =
        raw.min_version.as_ref().and_then(|text| word(text, "version of TLS", &versions, report));
    let (least, most) = ((Duration::from_millis(100), "100ms"), (Duration::from_secs(300), "5min"));
    let timeout = raw.handshake_timeout.as_ref();
    let timeout = timeout.and_then(|text| between(text, "handshake_timeout", least, most, report));
    TlsConfig {
        certificates,
        client,
        min_version: min_version.unwrap_or(MinTls::V1_2),
        handshake_timeout: timeout.unwrap_or(HANDSHAKE),
    }
}

fn certificates(raw: &RawTls, folder: Folder<'_>, report: &mut Report) -> Vec<CertificateConfig> {
    let Some(given) = &raw.certificates else {
        missing(raw.at, "tls", ("certificates", "[{cert: edge.pem, key: edge.key}]"), &raw.wrong, report);
        return Vec::new();
    };
    if given.value.0.is_empty() {
        empty(given.at, "certificates", "such as [{cert: edge.pem, key: edge.key}]", report);
    }
    let mut all: Vec<CertificateConfig> = Vec::new();
    for raw in &given.value.0 {
        let Some(certificate) = certificate(raw, folder, report) else { continue };
        if all.iter().any(|one| one.cert == certificate.cert) {
            let text = &certificate.cert.written;
            report.error(text.problem(format!("{} is given twice", text.value)).help("keep one of them"));
        }
        all.push(certificate);
    }
    all
}

fn certificate(raw: &RawCertificate, folder: Folder<'_>, report: &mut Report) -> Option<CertificateConfig> {
    if raw.cert.is_none() {
        missing(raw.at, "a certificate", ("cert", "edge.pem"), &raw.wrong, report);
    }
    if raw.key.is_none() {
        missing(raw.at, "a certificate", ("key", "edge.key"), &raw.wrong, report);
    }
    let (cert_text, key_text) = (raw.cert.as_ref()?, raw.key.as_ref()?);
    let (cert, key) = (file(cert_text, folder, report), file(key_text, folder, report));
    Some(CertificateConfig { cert: cert?, key: key? })
}

fn client(raw: &RawTls, folder: Folder<'_>, report: &mut Report) -> Option<ClientAuthConfig> {
    let words = [("required", true), ("optional", false)];
    let required = raw.client_auth.as_ref().map(|text| word(text, "client_auth", &words, report));
    let Some(text) = &raw.client_ca else {
        if let Some(given) = raw.client_auth.as_ref().filter(|_| !is_wrong!(raw, client_ca)) {
            report.error(
                given
                    .problem("`client_auth` needs `client_ca`")
                    .help("a file of the authorities that clients' certificates come from"),
            );
        }
        return None;
    };
    Some(ClientAuthConfig { ca: file(text, folder, report)?, required: required.flatten().unwrap_or(true) })
}

fn file(text: &At<String>, folder: Folder<'_>, report: &mut Report) -> Option<FileRef> {
    if text.value.is_empty() {
        report.error(text.problem("a file needs a name").help("such as edge.pem"));
        return None;
    }
    Some(folder.file(text))
}

/// A certificate and its key. One without the other is reported, unless the other is among the `wrong` fields.
pub(super) fn key_pair<'a>(
    cert: Option<&'a At<String>>,
    key: Option<&'a At<String>>,
    wrong: &[&str],
    report: &mut Report,
) -> Option<(&'a At<String>, &'a At<String>)> {
    match (cert, key) {
        (Some(given), None) if !wrong.contains(&"key") => {
            report.error(given.problem("`cert` needs its `key`").help("the private key of the certificate"));
        }
        (None, Some(given)) if !wrong.contains(&"cert") => {
            report.error(given.problem("`key` needs its `cert`").help("the certificate of the private key"));
        }
        _ => {}
    }
    cert.zip(key)
}
