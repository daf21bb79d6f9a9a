//! The files that the configuration in force refers to, each with the state in which it was last read.

use std::path::PathBuf;

use crate::resources::{LimitFileStamps, LoadedConfig};
use sluicegate_auth::Consumers;
use sluicegate_auth::lists::AddressList;
use sluicegate_base::file_watch::{Watch, WatchGroup};
use sluicegate_base::tls::Pem;
use sluicegate_config::{CertificateConfig, Config};

/// The files that the configuration in force refers to.
#[derive(Default)]
pub(super) struct WatchedFiles {
    pub(super) consumers: Option<(PathBuf, Watch<Consumers>)>,
    /// Address lists by name.
    pub(super) lists: Vec<(String, PathBuf, Watch<AddressList>)>,
    pub(super) tls: Vec<TlsFiles>,
    /// The files of limits for other proxies.
    pub(super) limits: LimitFileStamps,
    /// The certificates of upstreams by the upstream's name.
    pub(super) upstream_tls: Vec<(String, Vec<Watch<Pem>>)>,
}

impl WatchedFiles {
    /// The files of a configuration that has just come into force.
    pub(super) fn of(config: &LoadedConfig) -> Self {
        let consumers = config.known_consumers();
        let lists = config.all_lists().filter_map(|(list, known)| {
            let file = &list.file()?.path;
            Some((list.name.clone(), file.clone(), Watch::new(file, known)))
        });
        let tls = config.upstreams.iter().zip(&config.resources.upstreams).filter_map(|(upstream, tls)| {
            let files = tls.as_ref()?.files.all();
            Some((upstream.name.clone(), files.map(|file| Watch::new(&file.path, &*file.pem)).collect()))
        });
        Self {
            upstream_tls: tls.collect(),
            consumers: consumers
                .map(|(named, known)| (named.file.path.clone(), Watch::new(&named.file.path, known))),
            lists: lists.collect(),
            limits: config.resources.limit_files.clone(),
            tls: TlsFiles::of(config),
        }
    }
}

/// Files of a listener's TLS that belong together.
pub(super) struct TlsFiles {
    pub(super) set: TlsFileSet,
    pub(super) watch: WatchGroup,
    /// Whether the certificate is not valid yet and is loaded again later.
    pub(super) early: bool,
}

/// The files of a certificate, or of the authorities that sign client certificates.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum TlsFileSet {
    Pair { cert: PathBuf, key: PathBuf },
    Authorities(PathBuf),
}

impl TlsFiles {
    /// The files of a configuration, without duplicates.
    pub(super) fn of(config: &Config) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for tls in config.listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
            let pair = |CertificateConfig { cert, key }: &CertificateConfig| TlsFileSet::Pair {
                cert: cert.path.clone(),
                key: key.path.clone(),
            };
            let authorities = tls.client.iter().map(|client| TlsFileSet::Authorities(client.ca.path.clone()));
            for set in tls.certificates.iter().map(pair).chain(authorities) {
                if all.iter().any(|known| known.set == set) {
                    continue;
                }
                let watch = WatchGroup::new(match &set {
                    TlsFileSet::Pair { cert, key } => vec![cert.clone(), key.clone()],
                    TlsFileSet::Authorities(file) => vec![file.clone()],
                });
                all.push(Self { set, watch, early: false });
            }
        }
        all
    }
}
