//! The certificates of listeners and the authorities of their clients. They are tried here, so that a wrong file is a
//! mistake of the configuration and not a handshake that fails.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use super::loaded::LoadedConfig;
use sluicegate_base::tls::{ClientRoots, KeyPair, ListenerFiles, PairFile};
use sluicegate_config::{CertificateConfig, ClientAuthConfig, ListenerConfig, Mistake, Report, TlsConfig};

/// What the files of a listener's TLS hold; `None` if one of them cannot be used, which is reported.
pub(super) fn files(
    tls: &TlsConfig,
    before: Option<&LoadedConfig>,
    now: Timestamp,
    report: &mut Report,
) -> Option<ListenerFiles> {
    let mut certificates = Vec::new();
    for (index, certificate) in tls.certificates.iter().enumerate() {
        let pair = pair(certificate, before, now, report);
        if pair.as_ref().is_some_and(|pair| index > 0 && pair.names.is_empty()) {
            let text = &certificate.cert.written;
            report.warning(
                text.problem(format!("{} names no host, so no client is ever shown it", text.value))
                    .help("only the first certificate is for clients that ask for a name that no other has"),
            );
        }
        certificates.push(pair);
    }
    let roots = tls.client.as_ref().map(|client| roots(client, before, report));
    Some(ListenerFiles {
        certificates: certificates.into_iter().collect::<Option<_>>()?,
        client_roots: match roots {
            Some(roots) => Some(roots?),
            None => None,
        },
    })
}

fn pair(
    CertificateConfig { cert, key }: &CertificateConfig,
    before: Option<&LoadedConfig>,
    now: Timestamp,
    report: &mut Report,
) -> Option<Arc<KeyPair>> {
    let known = before.and_then(|before| before.certificate(&cert.path, &key.path));
    match KeyPair::load(&cert.path, &key.path, known, now) {
        Ok(pair) => {
            let name = cert.path.display().to_string();
            if let Some((known, early)) =
                known.and_then(|known| Some((known, pair.is_early(known, &name, now)?)))
            {
                report.warning(cert.problem(early));
                return Some(Arc::clone(known));
            }
            if let Some(doubt) = pair.doubt(&name, now) {
                report.warning(cert.problem(doubt));
            }
            Some(pair)
        }
        Err(error) => {
            let file = match error.file {
                PairFile::Cert => cert,
                PairFile::Key => key,
            };
            report.error(Mistake { message: error.message, help: error.help }.at(file.written.at));
            None
        }
    }
}

fn roots(
    client: &ClientAuthConfig,
    before: Option<&LoadedConfig>,
    report: &mut Report,
) -> Option<Arc<ClientRoots>> {
    let known = before.and_then(|before| before.client_roots(&client.ca.path));
    ClientRoots::load(&client.ca.path, known)
        .map_err(|(message, help)| {
            let help = help.map(ToOwned::to_owned);
            report.error(Mistake { message, help }.at(client.ca.written.at));
        })
        .ok()
}

impl LoadedConfig {
    /// The certificate that some listener read from these files.
    pub fn certificate(&self, cert: &Path, key: &Path) -> Option<&Arc<KeyPair>> {
        self.tls_of_listeners().find_map(|(_, tls, files)| {
            let is_it = |one: &CertificateConfig| one.cert.path == cert && one.key.path == key;
            files.certificates.get(tls.certificates.iter().position(is_it)?)
        })
    }

    /// The authorities that some listener read from this file.
    pub fn client_roots(&self, ca: &Path) -> Option<&Arc<ClientRoots>> {
        let mut all = self.tls_of_listeners();
        all.find_map(|(_, tls, files)| {
            tls.client.as_ref().filter(|client| client.ca.path == ca)?;
            files.client_roots.as_ref()
        })
    }

    /// The listeners with TLS: what the configuration says, and what the files hold.
    pub fn tls_of_listeners(&self) -> impl Iterator<Item = (&ListenerConfig, &TlsConfig, &ListenerFiles)> {
        let listeners = self.config.listeners.iter().zip(&self.resources.listeners);
        listeners.filter_map(|(listener, files)| Some((listener, listener.tls.as_ref()?, files.as_ref()?)))
    }
}
