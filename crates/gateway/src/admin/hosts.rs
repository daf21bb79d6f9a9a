//! Under which names the admin API answers. A page of another site can have its own name lead to this address (DNS
//! rebinding), but cannot choose what its browser says in Host.

use std::net::IpAddr;

use http::{HeaderMap, Uri, header};

use sluicegate_config::host_name;

/// Whether a request names hosts that are the API's own: names and addresses of this machine, the address that the
/// client has connected to, and what the configuration lists. Only HTTP/1.0 may name none, and no browser speaks it.
pub(super) fn are_own(uri: &Uri, headers: &HeaderMap, own: IpAddr, listed: &[String]) -> bool {
    let lines = headers.get_all(header::HOST).iter().map(|line| line.as_bytes());
    let target = uri.authority().map(|authority| authority.as_str().as_bytes());
    lines.chain(target).all(|name| host_name(name).is_some_and(|name| is_own(&name, own, listed)))
}

fn is_own(name: &str, own: IpAddr, listed: &[String]) -> bool {
    match name.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => {
            let address = address.to_canonical();
            address.is_loopback() || address == own.to_canonical() || listed.contains(&address.to_string())
        }
        Err(_) => name == "localhost" || name.ends_with(".localhost") || listed.iter().any(|one| one == name),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_name_has_to_be_known() {
        let listed = ["gateway.example".to_owned(), "2001:db8::1".to_owned(), "192.0.2.9".to_owned()];
        let own = "192.0.2.1".parse().unwrap();
        let asked = |name: &'static str| {
            let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(name))]);
            are_own(&Uri::from_static("/"), &headers, own, &listed)
        };
        for name in [
            "localhost",
            "LOCALHOST:9090",
            "gw.localhost",
            "127.0.0.1:9090",
            "127.1.2.3",
            "[::1]:9090",
            "192.0.2.1:80",
            "gateway.example",
            "Gateway.Example.:9090",
            "[2001:db8::1]:9090",
            "192.0.2.9",
        ] {
            assert!(asked(name), "{name}");
        }
        for name in [
            "evil.example",
            "localhost.evil.example",
            "192.0.2.2",
            "[2001:db8::2]",
            "",
            "a b",
            "notlocalhost",
        ] {
            assert!(!asked(name), "{name}");
        }
        let absolute = Uri::from_static("http://evil.example/");
        assert!(!are_own(&absolute, &HeaderMap::new(), own, &listed));
        assert!(are_own(&Uri::from_static("/"), &HeaderMap::new(), own, &listed), "HTTP/1.0");
    }
}
