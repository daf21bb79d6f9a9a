//! Renders the paths of forwarded requests and the URLs of redirects.
//!
//! The value of a variable stays within its place: it cannot leave the directory that the template names, begin a query, or
//! become the host of a redirect.

use http::uri::PathAndQuery;

use super::Facts;
use sluicegate_config::{PathChange, Piece, RegexPiece, UriTemplate, Variable};
use sluicegate_wire::headers::is_value;

/// The path template of the route cannot be applied: the result would lead out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwritable;

/// The part of a URL that a value is inserted into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Origin,
    Path,
    Query,
}

/// Path and query of the request as it is forwarded; `None` if nothing changes.
///
/// # Errors
/// If servers could interpret the path in different ways, or if it would lead out of the template.
pub fn target(change: &PathChange, facts: &Facts<'_>) -> Result<Option<PathAndQuery>, Unwritable> {
    let path = || facts.route.normal_path(facts.request.head.target.path()).map_err(|_| Unwritable);
    let path_and_query = |path: &str, query| path_and_query(path, query, facts);
    let own = facts.request.head.target.query();
    match change {
        PathChange::Keep => Ok(None),
        PathChange::Strip(prefix) => {
            let path = path()?;
            let rest = path.strip_prefix(prefix.as_str());
            match rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
                None => Ok(None),
                Some(rest) => path_and_query(rest, own.map(str::as_bytes)).map(Some),
            }
        }
        PathChange::Template(template) => {
            let path = bytes(&template.path, Place::Path, facts);
            let path = String::from_utf8(path).map_err(|_| Unwritable)?;
            match &template.query {
                None => path_and_query(&path, own.map(str::as_bytes)),
                Some(query) => path_and_query(&path, Some(&bytes(query, Place::Query, facts))),
            }
            .map(Some)
        }
        PathChange::Regex { pattern, to } => {
            let path = path()?;
            let Some(found) = pattern.captures(&path) else { return Ok(None) };
            let Some(whole) = found.get(0) else { return Ok(None) };
            let mut written = path[..whole.start()].to_owned();
            for piece in to {
                match piece {
                    RegexPiece::Text(text) => written += text,
                    RegexPiece::Group(group) => {
                        written += found.get(*group).map_or("", |group| group.as_str())
                    }
                }
            }
            written += &path[whole.end()..];
            path_and_query(&written, own.map(str::as_bytes)).map(Some)
        }
    }
}

/// The Location of a redirect.
pub fn location(to: &UriTemplate, facts: &Facts<'_>) -> Vec<u8> {
    let mut url = bytes(&to.origin, Place::Origin, facts);
    if url.ends_with(b"/") {
        url.clear(); // an HTTP/1.0 request without a host gets a relative reference
    }
    let path = bytes(&to.path, Place::Path, facts);
    // Browsers take `//host` and `/\host` for another host.
    let begins = path.iter().position(|byte| !matches!(byte, b'/' | b'\\')).unwrap_or(path.len());
    url.push(b'/');
    url.extend_from_slice(&path[begins..]);
    let query = match &to.query {
        Some(query) => Some(bytes(query, Place::Query, facts)),
        None => facts.request.head.target.query().map(|query| {
            let mut own = Vec::with_capacity(query.len());
            encode(&mut own, query.as_bytes(), is_of_uri);
            own
        }),
    };
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        url.push(b'?');
        url.extend_from_slice(&query);
    }
    // All characters were checked or encoded above.
    if is_value(&url) { url } else { b"/".to_vec() }
}

/// Checks and normalizes a path and a query for forwarding.
fn path_and_query(path: &str, query: Option<&[u8]>, facts: &Facts<'_>) -> Result<PathAndQuery, Unwritable> {
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    // Dot segments would lead out of the template.
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(Unwritable);
    }
    let mut text = facts.route.normal_path(&path).map_err(|_| Unwritable)?.into_owned().into_bytes();
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        text.push(b'?');
        text.extend_from_slice(query);
    }
    PathAndQuery::from_maybe_shared(text).map_err(|_| Unwritable)
}

/// Renders a template. Values are encoded so that they stay within their place.
fn bytes(pieces: &[Piece], place: Place, facts: &Facts<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        let variable = match piece {
            Piece::Text(text) => {
                out.extend_from_slice(text.as_bytes());
                continue;
            }
            Piece::Variable(variable) => variable,
        };
        let value = facts.value(variable).unwrap_or_default();
        match (place, variable) {
            // Only scheme and host occur there; both were checked when the request was received.
            (Place::Origin, _) => out.extend_from_slice(&value),
            (Place::Path, variable) if variable.is_of_path() => out.extend_from_slice(&value),
            (Place::Query, Variable::Query) => encode(&mut out, &value, is_of_uri),
            // Existing escapes are kept.
            (Place::Query, variable) if variable.is_of_path() => {
                encode(&mut out, &value, |byte| is_unreserved(byte) || byte == b'%' || byte == b'/');
            }
            _ => encode(&mut out, &value, is_unreserved),
        }
    }
    out
}

fn encode(out: &mut Vec<u8>, value: &[u8], stays: impl Fn(u8) -> bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in value {
        match stays(*byte) {
            true => out.push(*byte),
            false => out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

/// The characters that never need an escape (RFC 3986 §2.3).
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// The characters that are kept unencoded in a URL.
const fn is_of_uri(byte: u8) -> bool {
    byte.is_ascii_graphic()
        && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | b'#')
}
