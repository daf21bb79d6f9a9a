//! Names of headers that clients may not use as they like.

use http::header::{self, HeaderMap, HeaderName};

/// What a proxy says of its client, besides all that begins with `x-forwarded`. Sorted.
const OF_PROXIES: [&str; 34] = [
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "client-ip",
    "fastly-client-ip",
    "forwarded",
    "forwarded-for",
    "forwarded-for-ip",
    "proxy-host",
    "real-ip",
    "remote-addr",
    "true-client-ip",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-custom-ip-authorization",
    "x-envoy-external-address",
    "x-forward",
    "x-forward-for",
    "x-forwarder-for",
    "x-host",
    "x-http-host-override",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-remote-addr",
    "x-originally-forwarded-for",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-true-client-ip",
    "x-true-ip",
];

/// What asks some upstreams for another path or method than the request's own.
const OVERRIDES: [&str; 10] = [
    "x-http-destinationurl",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-path",
    "x-original-uri",
    "x-original-url",
    "x-override-url",
    "x-rewrite-uri",
    "x-rewrite-url",
];

/// What a name is to a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A proxy's word on its client.
    OfProxies,
    /// The same with underscores, which CGI and its heirs take for the other: nobody means well with it.
    Disguised,
    /// It asks for another path or method.
    Override,
}

/// What a name is; `None` for nearly all.
pub(super) fn kind(name: &HeaderName) -> Option<Kind> {
    let name = name.as_str();
    if !matches!(name.as_bytes()[0], b'x' | b'f' | b'c' | b'p' | b'r' | b't') {
        return None;
    }
    if !name.contains('_') {
        return kind_of(name);
    }
    kind_of(&name.replace('_', "-")).map(|_| Kind::Disguised)
}

fn kind_of(name: &str) -> Option<Kind> {
    if name.starts_with("x-forwarded") || OF_PROXIES.binary_search(&name).is_ok() {
        return Some(Kind::OfProxies);
    }
    match name {
        "proxy" => Some(Kind::Disguised), // HTTP_PROXY to CGI (CVE-2016-5385)
        _ => OVERRIDES.binary_search(&name).is_ok().then_some(Kind::Override),
    }
}

/// Whether a Connection header names what a message is nothing without, to have it removed on the way: the host,
/// what describes the content, who is asking, or one of `own`, which routes and limits look at. What a proxy writes
/// anew is no such name.
pub fn nominates(headers: &HeaderMap, own: &[HeaderName]) -> bool {
    let lines = headers.get_all(header::CONNECTION).iter();
    let mut names = lines.flat_map(|line| line.as_bytes().split(|b| *b == b',')).map(<[u8]>::trim_ascii);
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
        kind(&HeaderName::from_bytes(name.as_bytes()).unwrap())
    }

    #[test]
    fn names_are_known_however_they_are_written() {
        assert!(OF_PROXIES.is_sorted() && OVERRIDES.is_sorted());
        for name in OF_PROXIES.iter().chain(&["X-Forwarded-For", "x-forwarded", "X-Forwarded-Ssl"]) {
            assert_eq!(kind_of_text(name), Some(Kind::OfProxies), "{name}");
            if name.contains('-') {
                assert_eq!(kind_of_text(&name.replacen('-', "_", 1)), Some(Kind::Disguised), "{name}");
            }
        }
        for name in OVERRIDES {
            assert_eq!(kind_of_text(name), Some(Kind::Override), "{name}");
        }
        for name in ["host", "accept", "x-request-id", "x-api-key", "x_custom", "content-type", "forward"] {
            assert_eq!(kind_of_text(name), None, "{name}");
        }
    }

    #[test]
    fn what_a_request_is_nothing_without_cannot_be_nominated() {
        let own = [HeaderName::from_static("x-tenant")];
        let nominated = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.append("connection", "keep-alive".parse().unwrap());
            headers.append("connection", value.parse().unwrap());
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
