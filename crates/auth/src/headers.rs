//! Headers in which the gateway alone tells the upstream who is asking. It believes them, so no client ever writes one.

use http::header::{CONNECTION, HeaderName, TRAILER};

use sluicegate_wire::Headers;

/// Removes from a request what a client says under the gateway's `own` names, also behind the body.
pub fn disown(headers: &mut Headers, own: impl Fn(&[u8]) -> bool) {
    headers.retain(|name, _| !own(name));
    unlist(headers, CONNECTION, &own);
    unlist(headers, TRAILER, &own);
}

/// Whether an upstream may take one name for the other: CGI and its heirs turn hyphens into underscores.
pub fn reads_like(name: &[u8], own: &[u8]) -> bool {
    let plain = |b: &u8| if *b == b'_' { b'-' } else { *b };
    name.len() == own.len() && name.iter().map(plain).eq(own.iter().map(plain))
}

/// Takes the names out of a header that lists names. What Connection lists is removed on the way, and a client must
/// not remove what the gateway says; what Trailer does not list does not come through behind a body.
fn unlist(headers: &mut Headers, list: HeaderName, own: impl Fn(&[u8]) -> bool) {
    let is_own = |name: &&[u8]| own(&name.trim_ascii().to_ascii_lowercase());
    let lines = || headers.get_all(&list).flat_map(|line| line.split(|b| *b == b','));
    if !lines().any(|name| is_own(&name)) {
        return;
    }
    let kept: Vec<&[u8]> = lines().filter(|name| !is_own(name)).map(<[u8]>::trim_ascii).collect();
    let kept = kept.join(&b", "[..]);
    headers.insert(list, kept);
}
