//! What the upstream is told of the user. It believes these headers, so no client ever writes one.

use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, TRAILER};

use super::Verified;

/// Removes the headers `told` as clients may have written them, and writes what the token says.
pub(super) fn tell(headers: &mut HeaderMap, told: &[(HeaderName, String)], user: Option<&Verified>) {
    if told.is_empty() {
        return;
    }
    let mut alike: Vec<HeaderName> = Vec::new();
    for name in headers.keys() {
        if told.iter().any(|(header, _)| reads_like(name, header)) {
            alike.push(name.clone());
        }
    }
    for name in alike {
        headers.remove(name);
    }
    unlist(headers, CONNECTION, told);
    unlist(headers, TRAILER, told);
    for (name, value) in user.map_or(&[][..], |user| &user.forward) {
        headers.insert(name.clone(), value.clone());
    }
}

/// Whether an upstream may take one name for the other: CGI and its heirs turn hyphens into underscores.
fn reads_like(name: &HeaderName, header: &HeaderName) -> bool {
    let plain = |b: u8| if b == b'_' { b'-' } else { b };
    name.as_str().len() == header.as_str().len()
        && name.as_str().bytes().map(plain).eq(header.as_str().bytes().map(plain))
}

/// Takes the names out of a header that lists names. What Connection lists is removed on the way, and a client must
/// not remove what the gateway says; what Trailer does not list does not come through behind a body.
fn unlist(headers: &mut HeaderMap, list: HeaderName, told: &[(HeaderName, String)]) {
    let is_told = |name: &[u8]| {
        let name = HeaderName::from_bytes(name.trim_ascii());
        name.is_ok_and(|name| told.iter().any(|(header, _)| reads_like(&name, header)))
    };
    let lines = || headers.get_all(&list).iter().flat_map(|line| line.as_bytes().split(|b| *b == b','));
    if !lines().any(is_told) {
        return;
    }
    let kept: Vec<&[u8]> = lines().filter(|name| !is_told(name)).map(<[u8]>::trim_ascii).collect();
    match HeaderValue::from_bytes(&kept.join(&b", "[..])) {
        Ok(kept) => _ = headers.insert(list, kept),
        Err(_) => _ = headers.remove(list), // made of pieces of values, it is one
    }
}
