//! Certificates and authorities of listeners: whoever renews one need not touch gateway.yaml.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Supervisor;
use crate::clock::today;
use crate::config::{CertificateConfig, ClientAuthConfig, Config, TlsConfig};
use crate::file_watch::{Several, Unusable};
use crate::server::tls::{ClientRoots, KeyPair, PairFile};
use crate::snapshot::Snapshot;

/// Files of a listener's TLS.
pub(super) struct TlsFiles {
    what: What,
    watch: Several,
    /// Whether the certificate waits for the time from which it is valid.
    early: bool,
}

/// Which they are.
#[derive(Clone, PartialEq, Eq)]
enum What {
    Pair { cert: PathBuf, key: PathBuf },
    Authorities(PathBuf),
}

impl TlsFiles {
    /// Those of a configuration, each once.
    pub(super) fn of(config: &Config) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for tls in config.listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
            let pair = |CertificateConfig { cert, key, .. }: &CertificateConfig| What::Pair {
                cert: cert.clone(),
                key: key.clone(),
            };
            let authorities = tls.client.iter().map(|client| What::Authorities(client.ca.clone()));
            for what in tls.certificates.iter().map(pair).chain(authorities) {
                if all.iter().any(|known| known.what == what) {
                    continue;
                }
                let watch = Several::new(match &what {
                    What::Pair { cert, key } => vec![cert.clone(), key.clone()],
                    What::Authorities(file) => vec![file.clone()],
                });
                all.push(Self { what, watch, early: false });
            }
        }
        all
    }
}

impl Supervisor {
    /// Loads the certificates and authorities that have changed, for the connections that come after.
    pub(super) async fn look_at_tls_files(&mut self) {
        let mut at = 0;
        while let Some(files) = self.files.tls.get_mut(at) {
            at += 1;
            if files.watch.may_have_changed().await || files.early {
                let what = files.what.clone();
                let early = self.take_tls(&what).await;
                if let Some(files) = self.files.tls.iter_mut().find(|files| files.what == what) {
                    files.early = early;
                }
            }
        }
    }

    /// Takes what the files hold now; whether that is a certificate that is to be asked for again later.
    async fn take_tls(&mut self, what: &What) -> bool {
        let (snapshot, of) = (self.shared.snapshot.load_full(), what.clone());
        let read = tokio::task::spawn_blocking(move || read_tls(&snapshot, &of)).await;
        let Ok(read) = read else { return false };
        let early = matches!(read, Err(NotTaken { early: true, .. }));
        let files: Vec<&Path> = match what {
            What::Pair { cert, key } => vec![cert, key],
            What::Authorities(file) => vec![file],
        };
        let mut waiting = false;
        for file in files {
            let wrong = read.as_ref().err().filter(|not| not.blamed == *file).map(|not| &not.wrong);
            waiting |= self.note(&file.display().to_string(), wrong);
        }
        let Ok(read) = read else { return early };
        if waiting {
            let _ = self.reload().await; // a configuration that was refused may have waited for it
        }
        let before = self.shared.snapshot.load_full();
        let mut config = before.config.clone();
        let mut changed = false;
        for tls in config.listeners.iter_mut().filter_map(|listener| listener.tls.as_mut()) {
            changed |= read.put_into(tls, what);
        }
        if changed {
            self.put_in_force(config, &before).await;
        }
        false
    }
}

/// What the files hold now, or which of them is wrong.
fn read_tls(snapshot: &Snapshot, what: &What) -> Result<ReadTls, NotTaken> {
    let mut in_force = snapshot.config.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    match what {
        What::Pair { cert, key } => {
            let known = in_force
                .flat_map(|tls| &tls.certificates)
                .find(|known| known.cert == *cert && known.key == *key);
            let pair =
                KeyPair::load(cert, key, known.map(|known| &known.known), today()).map_err(|error| {
                    let file = if error.file == PairFile::Cert { cert } else { key };
                    NotTaken::new(file, error.message, false)
                })?;
            let name = cert.display().to_string();
            match known.and_then(|known| pair.is_early(&known.known, &name, today())) {
                Some(early) => Err(NotTaken::new(cert, early, true)),
                None => Ok(ReadTls::Pair(pair)),
            }
        }
        What::Authorities(file) => {
            let known = in_force.find_map(|tls| tls.client.as_ref().filter(|known| known.ca == *file));
            let roots = ClientRoots::load(file, known.map(|known| &known.known));
            roots.map(ReadTls::Roots).map_err(|(message, _)| NotTaken::new(file, message, false))
        }
    }
}

/// Why what the files hold is not taken.
struct NotTaken {
    blamed: PathBuf,
    wrong: Unusable,
    /// Whether only its time has not come.
    early: bool,
}

impl NotTaken {
    fn new(blamed: &Path, message: String, early: bool) -> Self {
        Self { blamed: blamed.to_owned(), wrong: Unusable { message, details: Vec::new() }, early }
    }
}

/// What the files hold.
enum ReadTls {
    Pair(Arc<KeyPair>),
    Roots(Arc<ClientRoots>),
}

impl ReadTls {
    /// Puts it where a listener's TLS has something else; whether it had.
    fn put_into(&self, tls: &mut TlsConfig, what: &What) -> bool {
        let mut changed = false;
        match (self, what) {
            (Self::Pair(pair), What::Pair { cert, key }) => {
                for place in tls.certificates.iter_mut().filter(|one| one.cert == *cert && one.key == *key) {
                    if place.known != *pair {
                        place.known = Arc::clone(pair);
                        changed = true;
                    }
                }
                if changed {
                    tracing::info!("{} is in force, until {}", cert.display(), pair.not_after);
                    if let Some(doubt) = pair.doubt(&cert.display().to_string(), today()) {
                        tracing::warn!("{doubt}");
                    }
                }
            }
            (Self::Roots(roots), What::Authorities(file)) => {
                if let Some(ClientAuthConfig { known, .. }) =
                    tls.client.as_mut().filter(|client| client.ca == *file && client.known != *roots)
                {
                    *known = Arc::clone(roots);
                    changed = true;
                    tracing::info!("{} is in force", file.display());
                }
            }
            _ => {}
        }
        changed
    }
}
