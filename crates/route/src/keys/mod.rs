//! 4: parts of a request -> one fingerprint per limit.
//!
//! A key is never kept: it is hashed with a secret of this process, so that a table holds eight bytes of it,
//! whatever a client sends, and nobody outside can make two keys collide.

mod network;
mod stored_form;
mod text;

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;

pub use sluicegate_counters::{Fingerprint, KeySecret, KeyText};
use smallvec::{SmallVec, smallvec};

use crate::folded;
use sluicegate_auth::Identified;
use sluicegate_base::file_watch::{hex, sha256};
use sluicegate_base::incoming::{Peer, Routed};
use sluicegate_base::request_value::{self, Bytes, RequestValue, cookie, query_parameter};
use sluicegate_config::{KeySpec, Part, ValueForm};
use sluicegate_wire::RequestHead;

pub use self::network::{mask, network};
pub use self::stored_form::{Forms, stored_form};
pub use self::text::parts_of;

/// The fingerprint of the request's key, or `None` if it lacks one of the parts. With `text`, the key in full
/// is appended there.
pub fn fingerprint(
    spec: &KeySpec,
    request: Identified<'_>,
    secret: &KeySecret,
    mut text: Option<&mut KeyText>,
) -> Option<Fingerprint> {
    let mut hasher = secret.build_hasher();
    for alternatives in spec.alternatives() {
        let (index, found) = first(alternatives, request)?;
        write_part(&mut hasher, index, found.bytes());
        if let Some(text) = text.as_deref_mut() {
            text::write(&alternatives[index], found.bytes(), text);
        }
    }
    Some(Fingerprint::from_hash(hasher.finish()))
}

/// A hash of the request's key that is the same on every gateway, or `None` if it lacks one of the parts. It is
/// no secret: whoever chooses keys can have them meet.
pub fn affinity(spec: &KeySpec, request: Identified<'_>) -> Option<u64> {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    for alternatives in spec.alternatives() {
        let (index, found) = first(alternatives, request)?;
        write_part(&mut hasher, index, found.bytes());
    }
    Some(hasher.finish())
}

/// Whether what a request lacks of its key can be had with a token.
pub fn lacks_user(spec: &KeySpec, request: Identified<'_>) -> bool {
    let lacking = spec.alternatives().iter().find(|alternatives| first(alternatives, request).is_none());
    lacking.is_some_and(|alternatives| alternatives.iter().any(Part::is_of_user))
}

/// The longest descriptor that is kept as it is.
const MAX_DESCRIPTOR: usize = 512;

/// The key of a descriptor with which another proxy asks, and its text. Of a long descriptor these are the beginning and a digest.
pub fn of_descriptor(descriptor: &str, secret: &KeySecret) -> (Fingerprint, KeyText) {
    let descriptor = match descriptor.len() {
        ..=MAX_DESCRIPTOR => Cow::Borrowed(descriptor),
        _ => {
            let end =
                (0..MAX_DESCRIPTOR - 70).rev().find(|end| descriptor.is_char_boundary(*end)).unwrap_or(0);
            Cow::Owned(format!("{}… {}", &descriptor[..end], hex(&sha256(descriptor.as_bytes()))))
        }
    };
    let (mut hasher, mut whole) = (secret.build_hasher(), KeyText::new());
    write_part(&mut hasher, 0, descriptor.as_bytes());
    text::write(&Part::Descriptor, descriptor.as_bytes(), &mut whole);
    (Fingerprint::from_hash(hasher.finish()), whole)
}

/// The fingerprint that all requests without the key share.
pub fn fingerprint_of_missing(secret: &KeySecret) -> Fingerprint {
    Fingerprint::from_hash(secret.hash_one("requests without the key"))
}

/// The keys that an operator's text can mean, best first: `k1`, `api_key:k1`, `203.0.113.9`, or values joined by
/// commas for a composite key.
pub fn from_text(
    spec: &KeySpec,
    text: &str,
    ipv6_prefix: u8,
    secret: &KeySecret,
) -> Vec<(Fingerprint, KeyText)> {
    let values: Vec<&str> =
        if spec.alternatives().len() == 1 { vec![text] } else { text.split(',').collect() };
    if values.len() != spec.alternatives().len() {
        return Vec::new();
    }
    let mut readings = vec![(secret.build_hasher(), KeyText::new())];
    for (alternatives, value) in spec.alternatives().iter().zip(values) {
        let values = meant(alternatives, value).flat_map(|(index, part)| {
            values_from_text(part, value, ipv6_prefix).into_iter().map(move |bytes| (index, part, bytes))
        });
        readings = values
            .flat_map(|(index, part, bytes)| {
                readings.iter().cloned().map(move |(mut hasher, mut whole)| {
                    write_part(&mut hasher, index, &bytes);
                    text::write(part, &bytes, &mut whole);
                    (hasher, whole)
                })
            })
            .collect();
    }
    let finished = |(hasher, text): (_, KeyText)| (Fingerprint::from_hash(Hasher::finish(&hasher)), text);
    readings.into_iter().map(finished).collect()
}

/// The fingerprint of a key in full, as requests have it; `None` if it is no key of this specification, or was cut.
pub fn fingerprint_of_text(spec: &KeySpec, text: &[u8], secret: &KeySecret) -> Option<Fingerprint> {
    let mut hasher = secret.build_hasher();
    let mut parts = parts_of(text);
    for alternatives in spec.alternatives() {
        let (part, value) = parts.next()?;
        write_part(&mut hasher, alternatives.iter().position(|own| *own == part)?, value);
    }
    parts.next().is_none().then(|| Fingerprint::from_hash(hasher.finish()))
}

/// Whether an operator's text can mean this value of a part.
pub fn is_meant(part: &Part, value: &[u8], text: &str, ipv6_prefix: u8) -> bool {
    values_from_text(part, text, ipv6_prefix).iter().any(|meant| **meant == *value)
}

/// The text of a value without the name of its part.
pub fn without_name<'t>(part: &Part, text: &'t str) -> &'t str {
    text.strip_prefix(part.name()).and_then(|rest| rest.strip_prefix(':')).unwrap_or(text)
}

/// The parts that an operator's text can mean, with their indices: those that it names (`ip:192.0.2.7`), or those that are addresses if it
/// is one, or all.
fn meant<'p>(alternatives: &'p [Part], text: &str) -> impl Iterator<Item = (usize, &'p Part)> {
    let is_named = alternatives.iter().any(|part| names(part, text));
    let is_address = !is_named && alternatives.iter().any(|part| is_address(part, text));
    let chosen: SmallVec<[(usize, &Part); 2]> = alternatives
        .iter()
        .enumerate()
        .filter(|(_, part)| match (is_named, is_address) {
            (true, _) => names(part, text),
            (_, true) => self::is_address(part, text),
            _ => true,
        })
        .collect();
    chosen.into_iter()
}

/// Whether the value of a part could be read as another of the alternatives: it begins with the name of that one, or it is text that
/// looks like an address beside a part that is one. Such a value is named with its part only, as in `api_key:192.0.2.7`.
pub fn reads_as_another(alternatives: &[Part], own: &Part, value: &[u8]) -> bool {
    let Some(text) = std::str::from_utf8(value).ok().filter(|_| !own.is_of_address()) else { return false };
    alternatives.iter().any(|other| other != own && (names(other, text) || is_address(other, text)))
}

/// Whether a text begins with the name of a part and a colon.
fn names(part: &Part, text: &str) -> bool {
    text.strip_prefix(part.name()).is_some_and(|rest| rest.starts_with(':'))
}

/// Whether a part is an address, and a text as well.
fn is_address(part: &Part, text: &str) -> bool {
    part.values() == ValueForm::Address && text.parse::<IpAddr>().is_ok()
}

/// FNV-1a, which hashes the same everywhere.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.write(&number.to_le_bytes());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The index and the length keep apart what else would read alike: `a|b` from `ab`, a key from an address.
#[inline]
fn write_part(hasher: &mut impl Hasher, index: usize, bytes: &[u8]) {
    hasher.write_u64((index as u64) << 32 | bytes.len() as u64); // heads are far shorter than 4 GiB
    hasher.write(bytes);
}

fn first<'a>(alternatives: &'a [Part], request: Identified<'a>) -> Option<(usize, RequestValue<'a>)> {
    alternatives.iter().enumerate().find_map(|(index, part)| Some((index, value_of(part, request)?)))
}

/// The request's value. What is empty, or given twice, is not there: a client cannot choose between two.
fn value_of<'a>(part: &'a Part, request: Identified<'a>) -> Option<RequestValue<'a>> {
    let Identified { routed, identity } = request;
    let Routed { request, config, .. } = *routed;
    let Peer { client, .. } = request.peer;
    let RequestHead { headers, target, .. } = request.head;
    let bytes = match part {
        Part::Ip => {
            return Some(RequestValue::Owned(address_bytes(mask(client, config.client_ip.ipv6_prefix))));
        }
        Part::IpPrefix(_) | Part::Ipv4Prefix(_) => {
            let counted = network_of(part, client, config.client_ip.ipv6_prefix);
            return Some(RequestValue::Owned(address_bytes(counted)));
        }
        Part::Global => return Some(RequestValue::Borrowed(b"")),
        // An unknown key is no key, or a new one with each request would be a new counter with each.
        Part::ApiKey if config.api_key.consumers.is_some() && identity.key.is_none() => return None,
        Part::ApiKey => {
            return request_value::api_key(&config.api_key.source, headers, target.query());
        }
        Part::Consumer => identity.consumer()?.as_bytes(),
        Part::Host => routed.host.as_bytes(),
        Part::Method => request.head.method.as_str().as_bytes(),
        Part::Path => return spelled(routed.path, routed.folded),
        Part::Param(name) => {
            let (_, value) = routed.params.iter().find(|(param, _)| param == name)?;
            return spelled(value, routed.folded);
        }
        Part::Route => routed.route().name.as_bytes(),
        Part::Header(name) => headers.only(name)?,
        Part::Query(name) => return query_parameter(target.query()?, name),
        Part::Cookie(name) => cookie(headers, name)?,
        Part::User => identity.token.as_deref()?.user()?.as_bytes(),
        Part::Claim(name) => identity.token.as_deref()?.claim(name)?.as_bytes(),
        Part::TlsSubject => request.certificate()?.subject.as_bytes(),
        Part::TlsFingerprint => request.certificate()?.fingerprint.as_bytes(),
        Part::Descriptor => return None, // it is in the question of a proxy
    };
    (!bytes.is_empty()).then_some(RequestValue::Borrowed(bytes))
}

/// The network that a client at this address is counted as.
fn network_of(part: &Part, client: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match part {
        Part::IpPrefix(bits) => mask(client, *bits),
        Part::Ipv4Prefix(bits) => network(client, *bits, ipv6_prefix),
        _ => mask(client, ipv6_prefix),
    }
}

/// What an operator's text can mean for this part: nothing, one value, or two where routes differ in what they
/// take for one.
fn values_from_text(part: &Part, text: &str, ipv6_prefix: u8) -> SmallVec<[Bytes; 2]> {
    let text = without_name(part, text);
    let as_is = || Bytes::from_slice(text.as_bytes());
    match part.values() {
        ValueForm::Address => {
            let address = text.parse().ok().map(|address| network_of(part, address, ipv6_prefix));
            address.map(address_bytes).into_iter().collect()
        }
        ValueForm::Nothing => smallvec![Bytes::new()],
        ValueForm::Host | ValueForm::Fingerprint => {
            smallvec![Bytes::from_slice(text.to_ascii_lowercase().as_bytes())]
        }
        ValueForm::Path | ValueForm::Segment => match folded(text) {
            Cow::Owned(other) => smallvec![as_is(), Bytes::from_vec(other.into_bytes())],
            Cow::Borrowed(_) => smallvec![as_is()],
        },
        ValueForm::Method | ValueForm::Text => smallvec![as_is()],
    }
}

fn address_bytes(address: IpAddr) -> Bytes {
    match address {
        IpAddr::V4(v4) => Bytes::from_slice(&v4.octets()),
        IpAddr::V6(v6) => Bytes::from_slice(&v6.octets()),
    }
}

/// A path or a part of one; folded, it is the same however it is written.
fn spelled(text: &str, fold: bool) -> Option<RequestValue<'_>> {
    let text = if fold { folded(text) } else { Cow::Borrowed(text) };
    (!text.is_empty()).then(|| match text {
        Cow::Borrowed(text) => RequestValue::Borrowed(text.as_bytes()),
        Cow::Owned(text) => RequestValue::Owned(Bytes::from_vec(text.into_bytes())),
    })
}
