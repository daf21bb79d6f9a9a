//! Header names that only trusted proxies may send.

use http::header::{self, HeaderName};

use sluicegate_wire::Headers;

/// Headers in which proxies describe their client, besides those that begin with `x-forwarded`.
const FORWARDED: [&[u8]; 35] = [
    b"cf-connecting-ip",
    b"cf-connecting-ipv6",
    b"client-ip",
    b"fastly-client-ip",
    b"fly-client-ip",
    b"forwarded",
    b"forwarded-for",
    b"forwarded-for-ip",
    b"proxy-host",
    b"real-ip",
    b"remote-addr",
    b"true-client-ip",
    b"x-appengine-user-ip",
    b"x-azure-clientip",
    b"x-azure-socketip",
    b"x-client-ip",
    b"x-cluster-client-ip",
    b"x-custom-ip-authorization",
    b"x-envoy-external-address",
    b"x-forward",
    b"x-forward-for",
    b"x-forwarder-for",
    b"x-host",
    b"x-http-host-override",
    b"x-original-forwarded-for",
    b"x-original-host",
    b"x-original-remote-addr",
    b"x-originally-forwarded-for",
    b"x-originating-ip",
    b"x-proxyuser-ip",
    b"x-real-ip",
    b"x-remote-addr",
    b"x-remote-ip",
    b"x-true-client-ip",
    b"x-true-ip",
];

/// Headers by which some upstreams replace the path or the method of a request.
const OVERRIDES: [&[u8]; 10] = [
    b"x-http-destinationurl",
    b"x-http-method",
    b"x-http-method-override",
    b"x-method-override",
    b"x-original-path",
    b"x-original-uri",
    b"x-original-url",
    b"x-override-url",
    b"x-rewrite-uri",
    b"x-rewrite-url",
];

/// The kind of a header name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A proxy describes its client in it.
    Forwarded,
    /// `Proxy`, which CGI converts to the variable HTTP_PROXY (CVE-2016-5385). It has no legitimate use.
    Proxy,
    /// It replaces the path or the method.
    Override,
}

/// A Bloom filter of the known names, indexed by first letter. It excludes nearly all other names.
const FILTER: [u64; 256] = {
    let mut filter = [0; 256];
    let mut at = 0;
    while at < FORWARDED.len() + OVERRIDES.len() {
        let name = if at < FORWARDED.len() { FORWARDED[at] } else { OVERRIDES[at - FORWARDED.len()] };
        filter[name[0] as usize] |= bit(name);
        at += 1;
    }
    filter[b'p' as usize] |= bit(b"proxy");
    filter
};

/// A bit for the length and the last letter of a name.
const fn bit(name: &[u8]) -> u64 {
    1 << ((name.len() * 7 + name[name.len() - 1] as usize) & 63)
}

/// The common prefix of further names.
const FORWARDED_PREFIX: &[u8] = b"x-forwarded";

/// The kind of a name; `None` for nearly all.
pub(super) fn kind(name: &[u8]) -> Option<Kind> {
    let [first, ..] = name else { return None };
    let may_have_prefix = *first == b'x' && name.len() >= FORWARDED_PREFIX.len();
    if FILTER[usize::from(*first)] & bit(name) == 0 && !may_have_prefix {
        return None;
    }
    kind_of(name)
}

fn kind_of(name: &[u8]) -> Option<Kind> {
    let is_in = |names: &[&[u8]]| names.iter().any(|known| known.len() == name.len() && *known == name);
    match name {
        b"proxy" => Some(Kind::Proxy),
        _ if name.starts_with(FORWARDED_PREFIX) || is_in(&FORWARDED) => Some(Kind::Forwarded),
        _ => is_in(&OVERRIDES).then_some(Kind::Override),
    }
}

/// Whether Connection names a field without which the message would have another meaning: the host, a field that describes the
/// content, credentials, or one of `own`, which routes and limits evaluate. Fields that proxies write anew do not count.
pub fn nominates(headers: &Headers, own: &[HeaderName]) -> bool {
    let lines = headers.get_all(header::CONNECTION);
    let mut names = lines.flat_map(|line| line.split(|b| *b == b',')).map(<[u8]>::trim_ascii);
    names.any(|name| {
        if matches!(name, b"keep-alive" | b"close" | b"Keep-Alive" | b"Upgrade" | b"upgrade" | b"TE" | b"te")
        {
            return false;
        }
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let begins =
            |with: &str| name.get(..with.len()).is_some_and(|n| n.eq_ignore_ascii_case(with.as_bytes()));
        is("host")
            || is("authorization")
            || is("cookie")
            || begins("content-")
            || own.iter().any(|own| is(own.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of_text(name: &str) -> Option<Kind> {
        kind(name.to_ascii_lowercase().as_bytes())
    }

    #[test]
    fn names_are_known_however_they_are_written() {
        let forwarded = FORWARDED.map(|name| std::str::from_utf8(name).unwrap());
        for name in forwarded.iter().chain(&["X-Forwarded-For", "x-forwarded", "X-Forwarded-Ssl"]) {
            assert_eq!(kind_of_text(name), Some(Kind::Forwarded), "{name}");
        }
        for name in OVERRIDES.map(|name| std::str::from_utf8(name).unwrap()) {
            assert_eq!(kind_of_text(name), Some(Kind::Override), "{name}");
        }
        for name in ["host", "accept", "x-request-id", "x-api-key", "content-type", "forward"] {
            assert_eq!(kind_of_text(name), None, "{name}");
        }
    }

    #[test]
    fn essential_fields_cannot_be_nominated() {
        let own = [HeaderName::from_static("x-tenant")];
        let nominated = |value: &str| {
            let headers = [("connection", "keep-alive"), ("connection", value)].into_iter().collect();
            nominates(&headers, &own)
        };
        for value in
            ["Host", "close, CONTENT-LENGTH", "content-md5,", "x,Authorization", "cookie", "X-Tenant"]
        {
            assert!(nominated(value), "{value}");
        }
        for value in
            ["", "close, X-Foo", "upgrade", "TE, trailers", "X-Forwarded-For", "hos", "content", ",,"]
        {
            assert!(!nominated(value), "{value}");
        }
    }
}
