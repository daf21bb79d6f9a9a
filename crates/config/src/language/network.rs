//! Networks as configurations and lists write them.

use std::net::IpAddr;

use ipnet::IpNet;

/// An address or a network, as configurations write them.
///
/// # Errors
/// A sentence that says what was expected.
pub fn parse_network(text: &str) -> Result<IpNet, String> {
    let bad = || format!("expected an address or a network such as 10.0.0.0/8, found `{text}`");
    match text.parse::<IpNet>() {
        Ok(network) => Ok(canonical(network.trunc())),
        Err(_) => {
            text.parse::<IpAddr>().map(|address| IpNet::from(address.to_canonical())).map_err(|_| bad())
        }
    }
}

/// A network of IPv4 that is written as IPv6 is one of IPv4, as its addresses are.
fn canonical(network: IpNet) -> IpNet {
    let v4 = match network.addr().to_canonical() {
        v4 @ IpAddr::V4(_) if network.addr().is_ipv6() => network.prefix_len().checked_sub(96).zip(Some(v4)),
        _ => None,
    };
    v4.and_then(|(prefix, v4)| IpNet::new(v4, prefix).ok()).unwrap_or(network)
}
