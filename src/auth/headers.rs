//! Headers in which the gateway alone tells the upstream who is asking. It believes them, so no client ever writes one.

use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, TRAILER};
use smallvec::SmallVec;

/// Removes from a request what a client says under the gateway's `own` names, also behind the body.
pub fn disown(headers: &mut HeaderMap, own: impl Fn(&HeaderName) -> bool) {
    if headers.keys().any(&own) {
        let said: SmallVec<[HeaderName; 4]> = headers.keys().filter(|name| own(name)).cloned().collect();
        for name in said {
            headers.remove(name);
        }
    }
    unlist(headers, CONNECTION, &own);
    unlist(headers, TRAILER, &own);
}

/// Whether an upstream may take one name for the other: CGI and its heirs turn hyphens into underscores.
pub fn reads_like(name: &HeaderName, own: &HeaderName) -> bool {
    let plain = |b: u8| if b == b'_' { b'-' } else { b };
    name.as_str().len() == own.as_str().len()
        && name.as_str().bytes().map(plain).eq(own.as_str().bytes().map(plain))
}

/// Takes the names out of a header that lists names. What Connection lists is removed on the way, and a client must
/// not remove what the gateway says; what Trailer does not list does not come through behind a body.
fn unlist(headers: &mut HeaderMap, list: HeaderName, own: impl Fn(&HeaderName) -> bool) {
    let is_own = |name: &[u8]| HeaderName::from_bytes(name.trim_ascii()).is_ok_and(|name| own(&name));
    let lines = || headers.get_all(&list).iter().flat_map(|line| line.as_bytes().split(|b| *b == b','));
    if !lines().any(is_own) {
        return;
    }
    let kept: Vec<&[u8]> = lines().filter(|name| !is_own(name)).map(<[u8]>::trim_ascii).collect();
    match HeaderValue::from_bytes(&kept.join(&b", "[..])) {
        Ok(kept) => _ = headers.insert(list, kept),
        Err(_) => _ = headers.remove(list), // made of pieces of values, it is one
    }
}
