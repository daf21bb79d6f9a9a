//! The host that a request names.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use http::uri::Scheme;
use http::{Version, header};

use crate::fields;
use crate::message::RequestHead;

/// That a request names no host, several, or something else than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHost;

/// The one host that a request names: lower case, without port and trailing dot. Absent only in HTTP/1.0.
///
/// # Errors
/// When it names none, several, or something else, or one of another scheme than http and https.
pub fn host(parts: &RequestHead) -> Result<Cow<'_, str>, NoHost> {
    let mut lines = parts.headers.get_all(header::HOST);
    let named = match (lines.next(), lines.next()) {
        (Some(line), None) => Some(fields::text(line).ok_or(NoHost)?),
        (None, _) => None,
        (Some(_), Some(_)) => return Err(NoHost),
    };
    if parts.uri.scheme().is_some_and(|scheme| ![Scheme::HTTP, Scheme::HTTPS].contains(scheme)) {
        return Err(NoHost); // a host of something else
    }
    let name = match (named, parts.uri.authority()) {
        (Some(named), Some(target)) if !named.eq_ignore_ascii_case(target.as_str()) => {
            return Err(NoHost);
        }
        (Some(named), _) => named,
        (None, Some(_)) if parts.version == Version::HTTP_11 => return Err(NoHost), // RFC 9112 §3.2
        (None, Some(target)) => target.as_str(),
        (None, None) if parts.version == Version::HTTP_10 => return Ok(Cow::Borrowed("")),
        (None, None) => return Err(NoHost),
    };
    let name = host_name(name).ok_or(NoHost)?;
    if name.bytes().any(|b| b.is_ascii_uppercase()) {
        return Ok(Cow::Owned(name.to_ascii_lowercase()));
    }
    Ok(name)
}

/// The name in `NAME`, `NAME:PORT` or `[IPV6]:PORT`, without a trailing dot; `None` for all that servers read in
/// several ways.
fn host_name(text: &str) -> Option<Cow<'_, str>> {
    let (name, rest) = match text.strip_prefix('[') {
        Some(inner) => {
            let end = inner.find(']')?;
            let address: Ipv6Addr = inner[..end].parse().ok()?; // which has many spellings, and one
            (Cow::Owned(format!("[{address}]")), &text[end + 2..])
        }
        None => {
            let (name, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
            let name = name.strip_suffix('.').unwrap_or(name);
            let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
            if !name.split('.').all(|label| !label.is_empty() && label.bytes().all(good)) {
                return None;
            }
            (Cow::Borrowed(name), rest)
        }
    };
    let port = rest.strip_prefix(':').unwrap_or(rest);
    let no_port = rest.is_empty() || rest.starts_with(':');
    (no_port && port.bytes().all(|b| b.is_ascii_digit())).then_some(name)
}
