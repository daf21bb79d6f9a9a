//! The request that is to be explained.

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Method, Uri, Version, header};
use sluicegate_wire::{Headers, RequestHead};

/// A request as people write it.
#[derive(Clone, Debug)]
pub struct Question {
    /// The method.
    pub method: String,
    /// A URL, or a path with the query.
    pub url: String,
    /// Header fields as `Name: value`.
    pub headers: Vec<String>,
    /// The address that the request comes from.
    pub from: IpAddr,
    /// The listener that it comes in on; `None` for the first.
    pub listener: Option<String>,
    /// The consumer who sends it, in place of credentials in the headers.
    pub consumer: Option<String>,
}

impl Question {
    /// The head of the request.
    ///
    /// # Errors
    /// What is wrong with the question.
    pub fn head(&self) -> Result<RequestHead, String> {
        let method = Method::from_bytes(self.method.as_bytes())
            .map_err(|_| format!("`{}` is not a method", self.method.escape_debug()))?;
        let mut fields: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for line in &self.headers {
            fields.push(field(line)?);
        }
        let bad = |why: &dyn std::fmt::Display| {
            format!(
                "`{}` is not a URL: {why}; write /path?query or https://host/path",
                self.url.escape_debug()
            )
        };
        let uri: Uri = self.url.parse().map_err(|error| bad(&error))?;
        let Some(path) = uri.path_and_query().filter(|path| path.as_str().starts_with('/')) else {
            return Err(bad(&"it has no path"));
        };
        if !fields.iter().any(|(name, _)| name == header::HOST) {
            let host = uri.authority().map_or("localhost", |authority| authority.as_str());
            let host = host.rsplit('@').next().unwrap_or_default();
            fields.push((header::HOST, HeaderValue::from_str(host).map_err(|error| bad(&error))?));
        }
        let mut headers = Headers::new();
        fields.into_iter().for_each(|(name, value)| headers.append_value(name, &value));
        Ok(RequestHead { method, target: path.into(), version: Version::HTTP_11, headers })
    }
}

/// A header field of `Name: value`.
fn field(line: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = line
        .split_once(':')
        .ok_or_else(|| format!("`{}` is not a header; write it as 'Name: value'", line.escape_debug()))?;
    let wrong = || format!("`{}` is a header that HTTP does not allow", line.escape_debug());
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
    Ok((name, value))
}
