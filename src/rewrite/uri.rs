//! Paths and URLs made of requests: what is forwarded to, and where clients are sent.
//!
//! Whatever a client puts into a variable, it stays inside: it can neither leave the folder that the template names,
//! nor begin a query, nor become the host of a redirect.

use http::uri::PathAndQuery;

use super::Facts;
use sluicegate_config::{PathChange, Piece, RegexPiece, UriTemplate, Variable, normalize};
use sluicegate_wire::headers::is_value;

/// That a path cannot be written as the route says: what came would lead out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwritable;

/// Where a value comes to stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Origin,
    Path,
    Query,
}

/// Path and query of the request as it is forwarded; `None` if nothing changes.
///
/// # Errors
/// When the path would be one that servers read in different ways, or another than the route says.
pub fn target(change: &PathChange, facts: &Facts<'_>) -> Result<Option<PathAndQuery>, Unwritable> {
    let path = || normalize(facts.parts.target.path()).map_err(|_| Unwritable);
    let own = facts.parts.target.query();
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

/// Where a client is sent.
pub fn location(to: &UriTemplate, facts: &Facts<'_>) -> Vec<u8> {
    let mut url = bytes(&to.origin, Place::Origin, facts);
    if url.ends_with(b"/") {
        url.clear(); // a request of HTTP/1.0 that names no host stays where it is
    }
    let path = bytes(&to.path, Place::Path, facts);
    // Of `//host` and `/\host` browsers make another host.
    let begins = path.iter().position(|byte| !matches!(byte, b'/' | b'\\')).unwrap_or(path.len());
    url.push(b'/');
    url.extend_from_slice(&path[begins..]);
    let query = match &to.query {
        Some(query) => Some(bytes(query, Place::Query, facts)),
        None => facts.parts.target.query().map(|query| {
            let mut own = Vec::with_capacity(query.len());
            encode(&mut own, query.as_bytes(), is_of_uri);
            own
        }),
    };
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        url.push(b'?');
        url.extend_from_slice(&query);
    }
    // Everything in it is a character of URLs.
    if is_value(&url) { url } else { b"/".to_vec() }
}

/// A path and a query that can be forwarded.
fn path_and_query(path: &str, query: Option<&[u8]>) -> Result<PathAndQuery, Unwritable> {
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    // Resolving them would lead elsewhere than the template says.
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(Unwritable);
    }
    let mut text = normalize(&path).map_err(|_| Unwritable)?.into_owned().into_bytes();
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        text.push(b'?');
        text.extend_from_slice(query);
    }
    PathAndQuery::from_maybe_shared(text).map_err(|_| Unwritable)
}

/// The text of a template, each value so written that it stays a value in its place.
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
            // Only the host stands there, and the scheme: both were checked when the request came.
            (Place::Origin, _) => out.extend_from_slice(&value),
            (Place::Path, variable) if variable.is_of_path() => out.extend_from_slice(&value),
            (Place::Query, Variable::Query) => encode(&mut out, &value, is_of_uri),
            // Escapes that are there already stay what they are.
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

/// What may stand in a URL as it came.
const fn is_of_uri(byte: u8) -> bool {
    byte.is_ascii_graphic()
        && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | b'#')
}
