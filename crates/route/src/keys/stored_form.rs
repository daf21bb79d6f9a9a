//! The form in which a rule for a key is stored: that in which requests have the key. What an operator writes in another form is
//! converted, or refused if no request can have it.

use std::borrow::Cow;
use std::net::IpAddr;

use super::network_of;
use crate::folded;
use sluicegate_config::{KeySpec, Part, ValueForm, host_name, normalize};

/// What the forms of a limit's keys depend on, besides its key.
#[derive(Clone, Copy, Debug)]
pub struct Forms {
    /// Bits of an IPv6 address that make one client.
    pub ipv6_prefix: u8,
    /// Whether all routes of the limit take all spellings of a path for one.
    pub folds: bool,
}

/// The stored form of the key text of a rule, which may be a pattern.
///
/// # Errors
/// Why no request can have such a key, and the form that works.
pub fn stored_form(spec: &KeySpec, text: &str, forms: Forms) -> Result<String, String> {
    let parts = spec.alternatives();
    let components: Vec<&str> = if parts.len() == 1 { vec![text] } else { text.split(',').collect() };
    if components.len() != parts.len() {
        let names: Vec<&str> =
            parts.iter().filter_map(|alternatives| Some(alternatives.first()?.name())).collect();
        let stars = vec!["*"; parts.len()].join(",");
        return Err(format!(
            "a key has {} values joined by commas ({}); `*` stands for any value, as in `{stars}`",
            parts.len(),
            names.join(",")
        ));
    }
    let converted =
        components.iter().zip(parts).map(|(text, alternatives)| component(alternatives, text, forms));
    Ok(converted.collect::<Result<Vec<_>, _>>()?.join(","))
}

fn component(alternatives: &[Part], text: &str, forms: Forms) -> Result<String, String> {
    if let Some((part, value)) = alternatives.iter().find_map(|part| Some((part, behind_name(part, text)?))) {
        return Ok(format!("{}:{}", part.name(), value_of(part, value, forms)?));
    }
    let is_address = |part: &&Part| part.values() == ValueForm::Address;
    let address = alternatives.iter().find(is_address);
    let mut others = alternatives.iter().filter(|part| !is_address(part));
    match (address, others.next(), others.next()) {
        (Some(part), _, _) if text.parse::<IpAddr>().is_ok() || network(text).is_some() => {
            value_of(part, text, forms)
        }
        (Some(part), None, _) | (None, Some(part), None) => match part {
            Part::Global => Ok(format!("global:{}", value_of(part, text, forms)?)),
            part => value_of(part, text, forms),
        },
        (Some(_), Some(part), None) => value_of(part, text, forms),
        _ => Ok(text.to_owned()), // it may be any of several
    }
}

/// What stands behind the name of a part, as requests have it (`x-tenant:acme`) or as the file writes it (`header:X-Tenant:acme`).
fn behind_name<'t>(part: &Part, text: &'t str) -> Option<&'t str> {
    let behind = |name: &str| {
        let (start, rest) = text.split_at_checked(name.len())?;
        let same = start == name || (part.header().is_some() && start.eq_ignore_ascii_case(name));
        rest.strip_prefix(':').filter(|_| same)
    };
    behind(part.name()).or_else(|| behind(&part.to_string()))
}

fn value_of(part: &Part, text: &str, forms: Forms) -> Result<String, String> {
    let is_pattern = text.contains('*');
    match part.values() {
        ValueForm::Address => address(part, text, is_pattern, forms.ipv6_prefix),
        ValueForm::Nothing => match text {
            "" | "global" => Ok(String::new()),
            "*" => Ok("*".to_owned()),
            _ => Err("a limit with `key: global` has one key, `global`".to_owned()),
        },
        ValueForm::Host if is_pattern => Ok(text.to_ascii_lowercase()),
        ValueForm::Host => {
            host_name(text.as_bytes()).map(Cow::into_owned).filter(|name| !name.is_empty()).ok_or_else(|| {
                format!("`{text}` is not a host: write it without a scheme, as in `api.example.com`")
            })
        }
        ValueForm::Method => Ok(text.to_ascii_uppercase()),
        ValueForm::Path if is_pattern && !text.starts_with(['/', '*']) => {
            Err(format!("`{text}` matches no path: a path begins with a slash"))
        }
        ValueForm::Path if is_pattern => {
            Ok(if forms.folds { text.to_ascii_lowercase() } else { text.to_owned() })
        }
        ValueForm::Path => match normalize(text) {
            Ok(path) if forms.folds => Ok(folded(&path).into_owned()),
            Ok(path) => Ok(path.into_owned()),
            Err(error) => Err(format!("`{text}` is not a path that requests can have: {error}")),
        },
        ValueForm::Segment if forms.folds && !is_pattern => Ok(folded(text).into_owned()),
        ValueForm::Fingerprint => {
            let hex = text.replace(':', "").to_ascii_lowercase();
            let is_whole = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
            match is_pattern || is_whole {
                true => Ok(hex),
                false => {
                    Err("a fingerprint is the SHA-256 of a certificate in 64 hexadecimal digits".to_owned())
                }
            }
        }
        ValueForm::Segment | ValueForm::Text => Ok(text.to_owned()),
    }
}

/// An address, as the client at it is counted, or a network of such clients.
fn address(part: &Part, text: &str, is_pattern: bool, ipv6_prefix: u8) -> Result<String, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(network_of(part, address.to_canonical(), ipv6_prefix).to_string());
    }
    match network(text) {
        Some((first, bits)) => {
            let counted = match (part, first) {
                (Part::Ipv4Prefix(counted), IpAddr::V4(_)) => *counted,
                (_, IpAddr::V4(_)) => 32,
                (Part::IpPrefix(counted), IpAddr::V6(_)) => *counted,
                (_, IpAddr::V6(_)) => ipv6_prefix,
            };
            match bits <= counted {
                true => Ok(text.to_owned()),
                false => Err(format!(
                    "`{text}` is smaller than what counts as one client, which is /{counted}: write `{}`",
                    network_of(part, first, ipv6_prefix)
                )),
            }
        }
        None if is_pattern => Ok(text.to_owned()),
        None => Err(format!(
            "`{text}` is neither an address nor a network, such as `203.0.113.9` or `203.0.113.0/24`"
        )),
    }
}

/// A network: its address and its bits. One of IPv4 that is written as IPv6 is one of IPv4, as its addresses are.
fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?);
    let most = if address.is_ipv4() { 32 } else { 128 };
    let canonical = address.to_canonical();
    let bits = if canonical.is_ipv4() && address.is_ipv6() { bits.checked_sub(96)? } else { bits };
    (bits <= most).then_some((canonical, bits))
}
