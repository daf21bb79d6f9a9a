//! What routes match.

use http::Method;
use sluicegate_wire::Headers;

use sluicegate_base::incoming::Request;

/// The parts of a request that routes match.
#[derive(Clone, Copy, Debug)]
pub struct RouteQuery<'a> {
    /// The index of the listener.
    pub listener: usize,
    /// Its host, lower case and without port.
    pub host: &'a str,
    /// Its method.
    pub method: &'a Method,
    /// Its path in normal form.
    pub path: &'a str,
    /// Its headers.
    pub headers: &'a Headers,
    /// Its query as it was sent, without the question mark; empty if there is none.
    pub query: &'a str,
}

impl<'a> RouteQuery<'a> {
    /// The query for a request with this host and this path.
    #[inline]
    pub fn of(request: Request<'a>, host: &'a str, path: &'a str) -> Self {
        let Request { head, peer } = request;
        Self {
            listener: peer.listener,
            host,
            method: &head.method,
            path,
            headers: &head.headers,
            query: head.target.query().unwrap_or_default(),
        }
    }
}
