//! Certificates and client authorities of listeners: a changed file comes into force without a reload.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::supervisor::Supervisor;
use super::watched_files::TlsFileSet;
use crate::resources::LoadedConfig;
use crate::snapshot::Snapshot;
use sluicegate_base::clock::today;
use sluicegate_base::file_watch::Unusable;
use sluicegate_base::tls::{ClientRoots, KeyPair, ListenerFiles, PairFile};
use sluicegate_config::TlsConfig;

impl Supervisor {
    /// Loads the certificates and authorities that have changed. They apply to new connections.
    pub(super) async fn check_tls_files(&mut self) {
        let mut at = 0;
        while let Some(files) = self.files.tls.get_mut(at) {
            at += 1;
            if files.watch.may_have_changed().await || files.early {
                let set = files.set.clone();
                let (snapshot, of) = (self.shared.snapshot.load_full(), set.clone());
                let read =
                    sluicegate_base::boxed_future::spawn_blocking(move || read_tls(&snapshot, &of)).await;
                let Ok(read) = read else { continue };
                if files.watch.has_changed_again().await {
                    continue;
                }
                let early = self.apply_tls(&set, read).await;
                if let Some(files) = self.files.tls.iter_mut().find(|files| files.set == set) {
                    files.early = early;
                }
            }
        }
    }

    /// Applies what was read. Returns whether it is a certificate that is not valid yet and has to be tried again later.
    async fn apply_tls(&mut self, set: &TlsFileSet, read: Result<ReadTls, NotApplied>) -> bool {
        let early = matches!(read, Err(NotApplied { early: true, .. }));
        let files: Vec<&Path> = match set {
            TlsFileSet::Pair { cert, key } => vec![cert, key],
            TlsFileSet::Authorities(file) => vec![file],
        };
        let not_applied = read.as_ref().err();
        let files: Vec<_> = files
            .into_iter()
            .map(|file| (file, not_applied.filter(|not| not.blamed == *file).map(|not| &not.wrong)))
            .collect();
        let change = |config: &mut LoadedConfig| {
            let Ok(read) = &read else { return false };
            let mut changed = false;
            let LoadedConfig { config: described, resources, .. } = config;
            for (listener, files) in described.listeners.iter().zip(&mut resources.listeners) {
                if let Some((tls, files)) = listener.tls.as_ref().zip(files.as_mut()) {
                    changed |= read.put_into(tls, files, set);
                }
            }
            changed
        };
        self.apply(&files, change).await;
        early
    }
}

/// The content of the files, or which of them cannot be used.
fn read_tls(snapshot: &Snapshot, set: &TlsFileSet) -> Result<ReadTls, NotApplied> {
    let in_force = &snapshot.config;
    match set {
        TlsFileSet::Pair { cert, key } => {
            let known = in_force.certificate(cert, key);
            let pair = KeyPair::load(cert, key, known, today()).map_err(|error| {
                let file = if error.file == PairFile::Cert { cert } else { key };
                NotApplied::new(file, error.message, false)
            })?;
            let name = cert.display().to_string();
            match known.and_then(|known| pair.is_early(known, &name, today())) {
                Some(early) => Err(NotApplied::new(cert, early, true)),
                None => Ok(ReadTls::Pair(pair)),
            }
        }
        TlsFileSet::Authorities(file) => ClientRoots::load(file, in_force.client_roots(file))
            .map(ReadTls::Roots)
            .map_err(|(message, _)| NotApplied::new(file, message, false)),
    }
}

/// Why the content of the files is not applied.
struct NotApplied {
    blamed: PathBuf,
    wrong: Unusable,
    /// Whether the only reason is that the certificate is not valid yet.
    early: bool,
}

impl NotApplied {
    fn new(blamed: &Path, message: String, early: bool) -> Self {
        Self { blamed: blamed.to_owned(), wrong: Unusable { message, details: Vec::new() }, early }
    }
}

/// The content of the files.
enum ReadTls {
    Pair(Arc<KeyPair>),
    Roots(Arc<ClientRoots>),
}

impl ReadTls {
    /// Puts it into a listener's TLS. Returns whether that changed it.
    fn put_into(&self, tls: &TlsConfig, files: &mut ListenerFiles, set: &TlsFileSet) -> bool {
        let mut changed = false;
        match (self, set) {
            (Self::Pair(pair), TlsFileSet::Pair { cert, key }) => {
                for (named, known) in tls.certificates.iter().zip(&mut files.certificates) {
                    if named.cert.path == *cert && named.key.path == *key && known != pair {
                        *known = Arc::clone(pair);
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
            (Self::Roots(roots), TlsFileSet::Authorities(file)) => {
                let named = tls.client.as_ref().is_some_and(|client| client.ca.path == *file);
                if let Some(known) = files.client_roots.as_mut().filter(|known| named && *known != roots) {
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
