//! Who may see and cancel a queued request: whoever has the same credential, and the same key under the limit.

use aws_lc_rs::digest::{Context, SHA256};
use http::header::AUTHORIZATION;
use sluicegate_auth::Identity;
use sluicegate_base::incoming::Request;
use sluicegate_base::request_value;
use sluicegate_config::{Config, KeySpec, Part, PartSource};
use sluicegate_route::keys::parts_of;

/// A digest of the owner of a request. `key` is its key in full under the limit.
pub(super) fn owner(request: Request<'_>, identity: &Identity<'_>, key: &[u8], config: &Config) -> [u8; 32] {
    let mut digest = Context::new(&SHA256);
    let mut add = |name: &str, value: &[u8]| {
        digest.update(name.as_bytes());
        digest.update(&(value.len() as u64).to_be_bytes());
        digest.update(value);
    };
    let user = identity.token.as_deref().and_then(|token| token.user());
    let certificate = request.peer.tls.and_then(|tls| tls.client.as_ref());
    let proved = [
        ("consumer", identity.consumer().map(str::as_bytes)),
        ("user", user.map(str::as_bytes)),
        ("certificate", certificate.map(|certificate| certificate.fingerprint.as_bytes())),
    ];
    for (name, value) in proved {
        value.into_iter().for_each(|value| add(name, value));
    }
    if proved.iter().all(|(_, value)| value.is_none()) {
        // Nobody has verified these, but whoever knows them is likely to be the same.
        let head = request.head;
        let sent = request_value::api_key(&config.api_key.source, &head.headers, head.target.query());
        sent.iter().for_each(|sent| add("api_key", sent.bytes()));
        head.headers.only(AUTHORIZATION).into_iter().for_each(|value| add("authorization", value));
    }
    for (part, value) in parts_of(key).filter(|(part, _)| is_of_client(part)) {
        add(&format!("key:{part:?}"), value);
    }
    let mut owner = [0; 32];
    owner.copy_from_slice(digest.finish().as_ref());
    owner
}

/// Whether another request of the same client has the same value.
fn is_of_client(part: &Part) -> bool {
    match part.source() {
        PartSource::Address
        | PartSource::Header
        | PartSource::Cookie
        | PartSource::ApiKey
        | PartSource::Consumer
        | PartSource::Token
        | PartSource::Certificate => true,
        PartSource::Nothing
        | PartSource::Route
        | PartSource::PathParameter
        | PartSource::Query
        | PartSource::Question => false,
    }
}

/// The parts of a key that [`owner`] takes.
pub(super) fn parts_of_client(key: &KeySpec) -> KeySpec {
    let of_client = |alternatives: &&Vec<Part>| alternatives.iter().any(is_of_client);
    KeySpec::new(key.alternatives().iter().filter(of_client).cloned().collect())
}
