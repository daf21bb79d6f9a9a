//! Paths and URLs made of requests: what is forwarded to, and where clients are sent.
//!
//! Whatever a client puts into a variable, it stays inside: it can neither leave the folder that the template names,
//! nor begin a query, nor become the host of a redirect.

use http::uri::PathAndQuery;
use regex::Regex;

use super::template::variables;
use super::{Facts, Piece, Variable};
use crate::fields::is_value;
use crate::route::normalize;

/// That a path cannot be written as the route says: what came would lead out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwritable;

/// What is done to a path before it is forwarded.
#[derive(Clone, Debug, Default)]
pub enum PathChange {
    /// Nothing.
    #[default]
    Keep,
    /// This is taken from its front, at the border of a segment.
    Strip(String),
    /// It is another one.
    Template(UriTemplate),
    /// What matches is replaced.
    Regex {
        /// What is looked for.
        pattern: Regex,
        /// What stands there instead.
        to: Vec<RegexPiece>,
    },
}

/// A piece of what stands in the place of a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegexPiece {
    /// What stands there.
    Text(String),
    /// What a group of the pattern matched.
    Group(usize),
}

/// A path or URL with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UriTemplate {
    /// As the file writes it.
    pub text: String,
    /// Scheme and host; empty for a path alone.
    pub origin: Vec<Piece>,
    /// The path.
    pub path: Vec<Piece>,
    /// The query, without the question mark; `None` leaves the request's own.
    pub query: Option<Vec<Piece>>,
}

/// Where a value comes to stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Origin,
    Path,
    Query,
}

impl PathChange {
    /// The variables in it.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        let template = match self {
            Self::Template(template) => Some(template),
            _ => None,
        };
        template.into_iter().flat_map(UriTemplate::variables)
    }

    /// Path and query of the request as it is forwarded; `None` if nothing changes.
    ///
    /// # Errors
    /// When the path would be one that servers read in different ways, or another than the route says.
    pub fn target(&self, facts: &Facts<'_>) -> Result<Option<PathAndQuery>, Unwritable> {
        let path = || normalize(facts.parts.target.path()).map_err(|_| Unwritable);
        let own = facts.parts.target.query();
        match self {
            Self::Keep => Ok(None),
            Self::Strip(prefix) => {
                let path = path()?;
                let rest = path.strip_prefix(prefix.as_str());
                match rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
                    None => Ok(None),
                    Some(rest) => target(rest, own.map(str::as_bytes)).map(Some),
                }
            }
            Self::Template(template) => {
                let path = bytes(&template.path, Place::Path, facts);
                let path = String::from_utf8(path).map_err(|_| Unwritable)?;
                match &template.query {
                    None => target(&path, own.map(str::as_bytes)),
                    Some(query) => target(&path, Some(&bytes(query, Place::Query, facts))),
                }
                .map(Some)
            }
            Self::Regex { pattern, to } => {
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
                target(&written, own.map(str::as_bytes)).map(Some)
            }
        }
    }
}

impl UriTemplate {
    /// The variables in it.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        let query = self.query.as_deref().unwrap_or_default();
        variables(&self.origin).chain(variables(&self.path)).chain(variables(query))
    }

    /// Where a client is sent.
    pub fn location(&self, facts: &Facts<'_>) -> Vec<u8> {
        let mut url = bytes(&self.origin, Place::Origin, facts);
        if url.ends_with(b"/") {
            url.clear(); // a request of HTTP/1.0 that names no host stays where it is
        }
        let path = bytes(&self.path, Place::Path, facts);
        // Of `//host` and `/\host` browsers make another host.
        let begins = path.iter().position(|byte| !matches!(byte, b'/' | b'\\')).unwrap_or(path.len());
        url.push(b'/');
        url.extend_from_slice(&path[begins..]);
        let query = match &self.query {
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
}

/// A path and a query that can be forwarded.
fn target(path: &str, query: Option<&[u8]>) -> Result<PathAndQuery, Unwritable> {
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
