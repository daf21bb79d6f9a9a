//! A request as it came in, and with its route.

use std::net::IpAddr;

use crate::tls::{ClientCertificate, TlsSession};
use sluicegate_config::{Config, RouteConfig};
use sluicegate_wire::RequestHead;

/// Where a request comes from.
#[derive(Clone, Copy)]
pub struct Peer<'c> {
    /// The index of the listener in the configuration.
    pub listener: usize,
    /// The address of the client, which a trusted proxy may have forwarded.
    pub client: IpAddr,
    /// Whether the peer is a trusted proxy.
    pub trusted: bool,
    /// The TLS session, if the connection has one.
    pub tls: Option<&'c TlsSession>,
}

/// A request as it came in.
#[derive(Clone, Copy)]
pub struct Request<'r> {
    /// Its head.
    pub head: &'r RequestHead,
    /// Where it comes from.
    pub peer: Peer<'r>,
}

/// A request with its route.
#[derive(Clone, Copy)]
pub struct Routed<'r> {
    /// The request.
    pub request: Request<'r>,
    /// The configuration in force.
    pub config: &'r Config,
    /// The index of the route there.
    pub index: usize,
    /// The host, in lower case and without a port.
    pub host: &'r str,
    /// The path in normal form.
    pub path: &'r str,
    /// The parameters of the path.
    pub params: &'r [(&'r str, &'r str)],
    /// Whether all spellings of the path, and of its parameters, are one key.
    pub folded: bool,
}

impl Peer<'_> {
    /// A client that sends requests to a listener without a proxy and without TLS.
    pub fn plain(listener: usize, client: IpAddr) -> Self {
        Self { listener, client, trusted: false, tls: None }
    }
}

impl<'r> Request<'r> {
    /// The scheme that the client used, which a trusted proxy may have forwarded.
    pub fn scheme(self) -> &'static str {
        match self.head.headers.get("x-forwarded-proto").filter(|_| self.peer.trusted) {
            Some(b"https") => "https",
            Some(b"http") => "http",
            _ if self.peer.tls.is_some() => "https",
            _ => "http",
        }
    }

    /// The client's verified certificate.
    pub fn certificate(self) -> Option<&'r ClientCertificate> {
        self.peer.tls.and_then(|tls| tls.client.as_ref())
    }
}

impl<'r> Routed<'r> {
    /// The configuration of the route.
    #[inline]
    pub fn route(&self) -> &'r RouteConfig {
        &self.config.routes[self.index]
    }
}
