//! Names of headers that clients may not use as they like.

use http::header::{self, HeaderName};

use sluicegate_wire::Headers;

/// What a proxy says of its client, besides all that begins with `x-forwarded`.
const OF_PROXIES: [&[u8]; 35] = [
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

/// What asks some upstreams for another path or method than the request's own.
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

/// What a name is to a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A proxy's word on its client.
    OfProxies,
    /// `Proxy`, which CGI makes HTTP_PROXY of (CVE-2016-5385): nobody means well with it.
    Proxy,
    /// It asks for another path or method.
    Override,
}

/// What known names look like, a bit each, by their first letter: nearly all other names are told apart by that alone.
const LOOKS: [u64; 256] = {
    let mut looks = [0; 256];
    let mut at = 0;
    while at < OF_PROXIES.len() + OVERRIDES.len() {
        let name = if at < OF_PROXIES.len() { OF_PROXIES[at] } else { OVERRIDES[at - OF_PROXIES.len()] };
        looks[name[0] as usize] |= look(name);
        at += 1;
    }
    looks[b'p' as usize] |= look(b"proxy");
    looks
};

/// A bit for the length and the last letter of a name.
const fn look(name: &[u8]) -> u64 {
    1 << ((name.len() * 7 + name[name.len() - 1] as usize) & 63)
}

/// What all names of one family begin with.
const FORWARDED: &[u8] = b"x-forwarded";

/// What a name is; `None` for nearly all.
pub(super) fn kind(name: &[u8]) -> Option<Kind> {
    let [first, ..] = name else { return None };
    let is_of_family = *first == b'x' && name.len() >= FORWARDED.len();
    if LOOKS[usize::from(*first)] & look(name) == 0 && !is_of_family {
        return None;
    }
    kind_of(name)
}

fn kind_of(name: &[u8]) -> Option<Kind> {
    let is_in = |names: &[&[u8]]| names.iter().any(|known| known.len() == name.len() && *known == name);
    match name {
        b"proxy" => Some(Kind::Proxy),
        _ if name.starts_with(FORWARDED) || is_in(&OF_PROXIES) => Some(Kind::OfProxies),
        _ => is_in(&OVERRIDES).then_some(Kind::Override),
    }
}

/// Whether a Connection header names what a message is nothing without, to have it removed on the way: the host,
/// what describes the content, who is asking, or one of `own`, which routes and limits look at. What a proxy writes
/// anew is no such name.
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
        let of_proxies = OF_PROXIES.map(|name| std::str::from_utf8(name).unwrap());
        for name in of_proxies.iter().chain(&["X-Forwarded-For", "x-forwarded", "X-Forwarded-Ssl"]) {
            assert_eq!(kind_of_text(name), Some(Kind::OfProxies), "{name}");
        }
        for name in OVERRIDES.map(|name| std::str::from_utf8(name).unwrap()) {
            assert_eq!(kind_of_text(name), Some(Kind::Override), "{name}");
        }
        for name in ["host", "accept", "x-request-id", "x-api-key", "content-type", "forward"] {
            assert_eq!(kind_of_text(name), None, "{name}");
        }
    }

    #[test]
    fn what_a_request_is_nothing_without_cannot_be_nominated() {
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
