//! Values of a request by name: a header, a query parameter, a cookie, the API key.
//!
//! An empty value counts as absent, and so does a repeated one: a client could otherwise choose which of two values it is
//! counted by, while the upstream reads the other.

use std::borrow::Cow;

use http::header;
use smallvec::SmallVec;

use sluicegate_config::{ApiKeySource, form_decode};
use sluicegate_wire::Headers;

/// A value that the request does not contain literally.
pub type Bytes = SmallVec<[u8; 16]>;

/// A value: most are bytes of the request itself.
pub enum RequestValue<'a> {
    /// A part of the request.
    Borrowed(&'a [u8]),
    /// A value that was decoded.
    Owned(Bytes),
}

impl RequestValue<'_> {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// The API key of a request, from the header or query parameter of `source`. Two that differ count as none.
pub fn api_key<'a>(
    source: &'a ApiKeySource,
    headers: &'a Headers,
    query: Option<&'a str>,
) -> Option<RequestValue<'a>> {
    let of_header = |name| headers.only(name).filter(|key| !key.is_empty()).map(RequestValue::Borrowed);
    match (&source.header, &source.query) {
        (Some(name), None) => of_header(name),
        (None, Some(name)) => query_parameter(query?, name),
        (Some(header), Some(parameter)) => {
            let in_query = query.filter(|query| parameters(query, parameter).next().is_some());
            match (headers.contains_key(header), in_query) {
                (_, None) => of_header(header),
                (false, Some(query)) => query_parameter(query, parameter),
                (true, Some(query)) => {
                    let other = query_parameter(query, parameter)?;
                    of_header(header).filter(|key| key.bytes() == other.bytes())
                }
            }
        }
        (None, None) => None,
    }
}

/// The value of a cookie, without its quotes. It may be empty.
pub fn cookie<'a>(headers: &'a Headers, name: &str) -> Option<&'a [u8]> {
    let mut found = headers.get_all(header::COOKIE).flat_map(|line| line.split(|b| *b == b';'));
    let mut values = found.by_ref().filter_map(|pair| {
        let pair = pair.trim_ascii();
        let equals = pair.iter().position(|b| *b == b'=')?;
        (pair[..equals].trim_ascii_end() == name.as_bytes()).then(|| pair[equals + 1..].trim_ascii())
    });
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    Some(value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value))
}

/// The values of a query parameter, as they are written.
fn parameters<'a>(query: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    query.split('&').filter_map(move |pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        (form_decode(found).as_ref() == name.as_bytes()).then_some(value)
    })
}

/// A query parameter, decoded: otherwise `%61` would be another value than `a`.
pub fn query_parameter<'a>(query: &'a str, name: &str) -> Option<RequestValue<'a>> {
    let mut values = parameters(query, name);
    let value = values.next()?;
    if value.is_empty() || values.next().is_some() {
        return None;
    }
    Some(match form_decode(value) {
        Cow::Borrowed(bytes) => RequestValue::Borrowed(bytes),
        Cow::Owned(bytes) => RequestValue::Owned(Bytes::from_vec(bytes)),
    })
}
