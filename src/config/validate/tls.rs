//! TLS of listeners. Files are tried here, so that a wrong one is a mistake of the configuration and not a handshake
//! that fails.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use super::super::listener::{CertificateConfig, ClientAuthConfig, MinTls, TlsConfig};
use super::super::model::Config;
use super::super::raw_listen::{RawCertificate, RawTls};
use super::super::read::At;
use super::super::relative;
use super::super::report::{Mistake, Report};
use super::super::values;
use super::{empty, missing, value, word};
use crate::tls::{ClientRoots, KeyPair, PairFile};

/// The longest that a handshake may take when nothing else is said.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Where the files are, and what is known of them already.
#[derive(Clone, Copy)]
pub(super) struct Files<'a> {
    pub(super) folder: &'a Path,
    /// The configuration in force.
    pub(super) before: Option<&'a Config>,
    pub(super) now: Timestamp,
}

pub(super) fn tls(raw: &RawTls, files: Files<'_>, report: &mut Report) -> Option<TlsConfig> {
    let errors = report.errors.len();
    let certificates = certificates(raw, files, report);
    let client = client(raw, files, report);
    let versions = [("1.2", MinTls::V1_2), ("1.3", MinTls::V1_3)];
    let min_version =
        raw.min_version.as_ref().and_then(|text| word(text, "version of TLS", &versions, report));
    let timeout = raw.handshake_timeout.as_ref().and_then(|text| value(text, report, handshake_timeout));
    (report.errors.len() == errors).then_some(TlsConfig {
        certificates,
        client,
        min_version: min_version.unwrap_or(MinTls::V1_2),
        handshake_timeout: timeout.unwrap_or(HANDSHAKE),
    })
}

fn handshake_timeout(text: &str) -> Result<Duration, Mistake> {
    let span = values::duration(text)?;
    if (Duration::from_millis(100)..=Duration::from_secs(300)).contains(&span) {
        return Ok(span);
    }
    Err(Mistake::new(format!("`handshake_timeout` is between 100ms and 5min, not {text}")))
}

fn certificates(raw: &RawTls, files: Files<'_>, report: &mut Report) -> Vec<CertificateConfig> {
    let Some(given) = &raw.certificates else {
        missing(raw.at, "tls", ("certificates", "[{cert: edge.pem, key: edge.key}]"), &raw.wrong, report);
        return Vec::new();
    };
    if given.value.0.is_empty() {
        empty(given.at, "certificates", "such as [{cert: edge.pem, key: edge.key}]", report);
    }
    let mut all: Vec<CertificateConfig> = Vec::new();
    for raw in &given.value.0 {
        let Some(certificate) = certificate(raw, files, report) else { continue };
        if let Some(text) = raw.cert.as_ref().filter(|_| all.iter().any(|one| one.cert == certificate.cert)) {
            report.error(text.problem(format!("{} is given twice", text.value)).help("keep one of them"));
        }
        let names = &certificate.known.names;
        if let Some(text) = raw.cert.as_ref().filter(|_| !all.is_empty() && names.is_empty()) {
            report.warning(
                text.problem(format!("{} names no host, so no client is ever shown it", text.value))
                    .help("only the first certificate is for clients that ask for a name that no other has"),
            );
        }
        all.push(certificate);
    }
    all
}

fn certificate(raw: &RawCertificate, files: Files<'_>, report: &mut Report) -> Option<CertificateConfig> {
    if raw.cert.is_none() {
        missing(raw.at, "a certificate", ("cert", "edge.pem"), &raw.wrong, report);
    }
    if raw.key.is_none() {
        missing(raw.at, "a certificate", ("key", "edge.key"), &raw.wrong, report);
    }
    let (cert_text, key_text) = (raw.cert.as_ref()?, raw.key.as_ref()?);
    let (cert, key) = (path(cert_text, files, report), path(key_text, files, report));
    let (cert, key) = (cert?, key?);
    let known = listeners_tls(files)
        .flat_map(|tls| &tls.certificates)
        .find(|known| known.cert == cert && known.key == key);
    match KeyPair::load(&cert, &key, known.map(|known| &known.known), files.now) {
        Ok(pair) => {
            let name = cert.display().to_string();
            let early = known.and_then(|known| Some((known, pair.is_early(&known.known, &name, files.now)?)));
            if let Some((known, early)) = early {
                report.warning(cert_text.problem(early));
                return Some(known.clone());
            }
            if let Some(doubt) = pair.doubt(&name, files.now) {
                report.warning(cert_text.problem(doubt));
            }
            Some(CertificateConfig { cert, key, known: pair })
        }
        Err(error) => {
            let text = match error.file {
                PairFile::Cert => cert_text,
                PairFile::Key => key_text,
            };
            report.error(Mistake { message: error.message, help: error.help }.at(text.at));
            None
        }
    }
}

fn client(raw: &RawTls, files: Files<'_>, report: &mut Report) -> Option<ClientAuthConfig> {
    let words = [("required", true), ("optional", false)];
    let required = raw.client_auth.as_ref().map(|text| word(text, "client_auth", &words, report));
    let Some(text) = &raw.client_ca else {
        if let Some(given) = raw.client_auth.as_ref().filter(|_| !raw.wrong.contains(&"client_ca")) {
            report.error(
                given
                    .problem("`client_auth` needs `client_ca`")
                    .help("a file of the authorities that clients' certificates come from"),
            );
        }
        return None;
    };
    let ca = path(text, files, report)?;
    let known = listeners_tls(files).filter_map(|tls| tls.client.as_ref()).find(|known| known.ca == ca);
    match ClientRoots::load(&ca, known.map(|known| &known.known)) {
        Ok(known) => Some(ClientAuthConfig { ca, required: required.unwrap_or(Some(true))?, known }),
        Err((message, help)) => {
            let help = help.map(ToOwned::to_owned);
            report.error(Mistake { message, help }.at(text.at));
            None
        }
    }
}

fn listeners_tls<'a>(files: Files<'a>) -> impl Iterator<Item = &'a TlsConfig> {
    let listeners = files.before.map_or(&[][..], |before| &before.listeners);
    listeners.iter().filter_map(|listener| listener.tls.as_ref())
}

fn path(text: &At<String>, files: Files<'_>, report: &mut Report) -> Option<PathBuf> {
    if text.value.is_empty() {
        report.error(text.problem("a file needs a name").help("such as edge.pem"));
        return None;
    }
    Some(relative(files.folder, &text.value))
}
