//! The request of a client as the proxy in front of it describes it.

use std::net::IpAddr;

use http::{Method, Version, header};
use sluicegate_auth::client_address;
use sluicegate_wire::{Headers, RequestHead, RequestTarget};

use crate::request::View;
use crate::respond::LocalError;

const METHOD: &str = "x-forwarded-method";
const URI: &str = "x-forwarded-uri";
const HOST: &str = "x-forwarded-host";

/// Headers that belong to the question, not to the request of the client.
const OF_QUESTION: [&str; 9] =
    [METHOD, URI, HOST, "host", "connection", "content-length", "expect", "te", "transfer-encoding"];

/// The request of a client.
pub(super) struct Described {
    pub(super) head: RequestHead,
    pub(super) client: IpAddr,
    /// The index of the route that the proxy has named.
    pub(super) route: Option<usize>,
}

impl Described {
    /// The request that X-Forwarded-Method, -Uri, -Host and the header of the client address describe; its other headers are
    /// those of the question.
    ///
    /// # Errors
    /// If they do not describe exactly one request.
    pub(super) fn by_headers(view: &View, head: &RequestHead) -> Result<Self, LocalError> {
        let headers = &head.headers;
        let method = headers.only(METHOD).and_then(|method| Method::from_bytes(method).ok());
        let method = method
            .ok_or(LocalError::Malformed("X-Forwarded-Method does not give the method of the request"))?;
        let target = headers.only(URI).and_then(target);
        let target = target.ok_or(LocalError::Malformed(
            "X-Forwarded-Uri does not give the path and query of the request",
        ))?;
        let host = match headers.contains_key(HOST) {
            true => headers.only(HOST).filter(|host| !host.is_empty()),
            false => host_of(head),
        };
        let host =
            host.ok_or(LocalError::Malformed("X-Forwarded-Host does not give the host of the request"))?;
        let mut all = headers_of(headers);
        all.insert(header::HOST, host);
        let head = RequestHead { method, target, version: Version::HTTP_11, headers: all };
        Self::of(view, head)
    }

    /// The request as it came in.
    ///
    /// # Errors
    /// If the header of the client address does not name the client.
    pub(super) fn as_it_is(view: &View, head: &RequestHead) -> Result<Self, LocalError> {
        if !head.target.path().starts_with('/') {
            return Err(LocalError::Malformed("the request has no path"));
        }
        let host = host_of(head).ok_or(LocalError::Malformed("the request names no host"))?;
        let mut headers = headers_of(&head.headers);
        headers.insert(header::HOST, host);
        let target = head.target.in_origin_form();
        let head = RequestHead { method: head.method.clone(), target, version: Version::HTTP_11, headers };
        Self::of(view, head)
    }

    fn of(view: &View, head: RequestHead) -> Result<Self, LocalError> {
        let config = &view.snapshot.config;
        let lists = &config.resources.lists;
        let client = client_address::behind(&config.client_ip, lists, &head.headers);
        let client = client
            .ok_or(LocalError::Malformed("the header of the client address does not name the client"))?;
        Ok(Self { head, client, route: None })
    }
}

/// Whether a header belongs to the question, not to the request of the client.
pub(super) fn is_of_question(name: &[u8]) -> bool {
    OF_QUESTION.iter().any(|other| other.as_bytes() == name)
}

/// The headers without those that belong to the question.
fn headers_of(headers: &Headers) -> Headers {
    let mut all = headers.clone();
    all.remove_all(&OF_QUESTION);
    all
}

/// The host that a request names.
fn host_of(head: &RequestHead) -> Option<&[u8]> {
    match head.target.authority() {
        Some(authority) => Some(authority.as_bytes()),
        None => head.headers.only(header::HOST),
    }
}

/// A path with its query; of a URL, its path with its query.
pub(super) fn target(text: &[u8]) -> Option<RequestTarget> {
    let path = match text.first() {
        Some(b'/') => text,
        _ => {
            let at = text.windows(3).position(|three| three == b"://")? + 3;
            let rest = text.get(at..)?;
            let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'))?;
            rest.get(end..).filter(|path| path.starts_with(b"/"))?
        }
    };
    RequestTarget::origin(path).or_else(|| RequestTarget::encoded(path))
}
