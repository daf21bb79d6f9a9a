//! Certificates and authorities of connections that the gateway opens: to upstreams, to Redis, to token issuers. They
//! are tried here, so that a wrong file is a mistake of the configuration and not a connection that fails.

use sluicegate_base::file_watch::Watched;
use sluicegate_base::tls::{
    PairFile, Pem, PemMistake, SystemRoots, TlsFile, TlsFiles, TlsPart, UpstreamTls, pair,
};
use sluicegate_config::{FileContent, FileRef, Problem, Protocol, RedisTls, Report, UpstreamTlsConfig};

/// TLS to the servers of an upstream; `None` if a file cannot be used, which is reported.
pub(super) fn tls(
    tls: &UpstreamTlsConfig,
    protocol: Protocol,
    system: &SystemRoots,
    report: &mut Report,
) -> Option<UpstreamTls> {
    let ca = tls.ca.as_ref().map(|file| read(file, report));
    let client = tls.client.as_ref().map(|(cert, key)| (read(cert, report), read(key, report)));
    let files = TlsFiles {
        ca: match ca {
            Some(ca) => Some(ca?),
            None => None,
        },
        client: match client {
            Some((cert, key)) => Some((cert?, key?)),
            None => None,
        },
    };
    let made = UpstreamTls::new(files, tls.server_name.clone(), tls.verify, protocol, system);
    made.map_err(|mistakes| {
        for (part, mistake) in mistakes {
            let file = match part {
                TlsPart::Ca => tls.ca.as_ref(),
                TlsPart::Cert => tls.client.as_ref().map(|(cert, _)| cert),
                TlsPart::Key => tls.client.as_ref().map(|(_, key)| key),
            };
            if let Some(file) = file {
                report.error(problem(file, mistake));
            }
        }
    })
    .ok()
}

fn read(file: &FileRef, report: &mut Report) -> Option<TlsFile> {
    match Pem::load(&file.path, None) {
        Ok(pem) => Some(TlsFile { path: file.path.clone(), name: file.written.value.clone(), pem }),
        Err(unusable) => {
            report.error(file.problem(unusable.message));
            None
        }
    }
}

/// Reports what is wrong with the certificates of a store.
pub(super) fn check_redis(tls: &RedisTls, report: &mut Report) {
    tls.ca.iter().for_each(|ca| check_roots(ca, report));
    if let Some((cert, key)) = &tls.client {
        let (cert_pem, key_pem) = (Pem::new(&cert.bytes), Pem::new(&key.bytes));
        let names = (&*cert.file.written.value, &*key.file.written.value);
        for (side, mistake) in pair((&cert_pem, names.0), (&key_pem, names.1)).err().unwrap_or_default() {
            let file = match side {
                PairFile::Cert => &cert.file,
                PairFile::Key => &key.file,
            };
            report.error(problem(file, mistake));
        }
    }
}

/// Reports what is wrong with a file of authorities.
pub(super) fn check_roots(ca: &FileContent, report: &mut Report) {
    if let Err(mistake) = Pem::new(&ca.bytes).roots(&ca.file.written.value) {
        report.error(problem(&ca.file, mistake));
    }
}

fn problem(file: &FileRef, mistake: PemMistake) -> Problem {
    let problem = file.problem(mistake.message);
    match mistake.help {
        Some(help) => problem.help(help),
        None => problem,
    }
}
