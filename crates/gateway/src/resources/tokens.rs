//! The keys that user tokens are verified with.

use std::sync::Arc;

use super::upstream::check_roots;
use sluicegate_auth::jwt::KeySet;
use sluicegate_base::file;
use sluicegate_config::{At, FileRef, JwtKeys, Problem, Report, Secret};

/// The keys, as far as they are known without asking the issuer; what is wrong with them is reported.
pub(super) fn keys(source: &JwtKeys, report: &mut Report) -> Option<Arc<KeySet>> {
    let mut fixed = |text: &At<Secret>, read: fn(&[u8]) -> Result<KeySet, String>, help| {
        let keys = read(text.value.reveal().as_bytes());
        keys.map_err(|why| report.error(Problem::new(text.at, why).help(help))).ok()
    };
    let keys = match source {
        JwtKeys::Secret(text) => fixed(text, KeySet::secret, "such as `openssl rand -base64 48` makes"),
        JwtKeys::PublicKey(text) => {
            fixed(text, KeySet::public_key, "`openssl pkey -pubin -in FILE -text` shows what a file holds")
        }
        JwtKeys::File(file) => key_set(file, report),
        JwtKeys::Url(url) => {
            url.ca.iter().for_each(|ca| check_roots(ca, report));
            None
        }
    };
    keys.map(Arc::new)
}

fn key_set(file: &FileRef, report: &mut Report) -> Option<KeySet> {
    let json = file::read(&file.path, file::SMALL);
    let (json, _) = json
        .map_err(|error| {
            report.error(file.problem(format!("cannot read {}: {error}", file.path.display())));
        })
        .ok()?;
    KeySet::jwks(&json)
        .map_err(|why| report.error(file.problem(format!("{} cannot be used: {why}", file.written.value))))
        .ok()
}
