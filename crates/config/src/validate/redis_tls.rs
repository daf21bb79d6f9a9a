//! The certificates of a store: files with PEM.

use crate::at::Folder;
use crate::raw_store::RawRedisTls;
use crate::report::Report;
use crate::store::RedisTls;

pub(super) fn tls(raw: &RawRedisTls, folder: Folder<'_>, report: &mut Report) -> RedisTls {
    let ca = raw.ca.as_ref().and_then(|path| folder.content(path, report));
    let client = match (&raw.cert, &raw.key) {
        (Some(cert), Some(key)) => folder.content(cert, report).zip(folder.content(key, report)),
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
    RedisTls { ca, client }
}
