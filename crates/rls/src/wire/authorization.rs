//! `envoy.service.auth.v3`: external authorization.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;

use super::well_known::{HeaderValue, text};

/// Asks whether a request may pass.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CheckRequest {
    /// What the proxy knows of it.
    #[prost(message, optional, tag = "1")]
    pub attributes: Option<AttributeContext>,
}

/// What the proxy knows of a request.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AttributeContext {
    /// The client.
    #[prost(message, optional, tag = "1")]
    pub source: Option<Peer>,
    /// The request.
    #[prost(message, optional, tag = "4")]
    pub request: Option<Request>,
    /// What the configuration of the proxy's route says.
    #[prost(btree_map = "string, string", tag = "10")]
    pub context_extensions: BTreeMap<String, String>,
}

/// A side of a connection.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Peer {
    /// Its address.
    #[prost(message, optional, tag = "1")]
    pub address: Option<Address>,
    /// Its name, if TLS has proved it.
    #[prost(string, tag = "4")]
    pub principal: String,
}

/// An address.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Address {
    /// An address of IP; none for those of other kinds.
    #[prost(message, optional, tag = "1")]
    pub socket_address: Option<SocketAddress>,
}

/// An address of IP.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SocketAddress {
    /// The address as text.
    #[prost(string, tag = "2")]
    pub address: String,
    /// The port.
    #[prost(uint32, tag = "3")]
    pub port_value: u32,
}

/// A request.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Request {
    /// Its HTTP part.
    #[prost(message, optional, tag = "2")]
    pub http: Option<HttpRequest>,
}

/// A request of HTTP. The body is not decoded. What clients write are bytes, as in
/// [`HeaderValue`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HttpRequest {
    /// The proxy's number of it.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The method.
    #[prost(bytes = "bytes", tag = "2")]
    pub method: Bytes,
    /// Headers with lower-case names; several values of one are joined by commas.
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub headers: BTreeMap<String, Vec<u8>>,
    /// The path with its query.
    #[prost(bytes = "bytes", tag = "4")]
    pub path: Bytes,
    /// The host.
    #[prost(bytes = "bytes", tag = "5")]
    pub host: Bytes,
    /// The scheme.
    #[prost(string, tag = "6")]
    pub scheme: String,
    /// The protocol: `HTTP/1.1`, for example.
    #[prost(string, tag = "10")]
    pub protocol: String,
    /// Headers in their order, if the proxy sends them so in place of `headers`.
    #[prost(message, optional, tag = "13")]
    pub header_map: Option<HeaderMap>,
}

/// Headers in their order.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeaderMap {
    /// The headers.
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

/// Whether a request may pass.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CheckResponse {
    /// It may if its code is 0.
    #[prost(message, optional, tag = "1")]
    pub status: Option<RpcStatus>,
    /// What the proxy makes of the request or its answer.
    #[prost(oneof = "HttpResponse", tags = "2, 3")]
    pub http_response: Option<HttpResponse>,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RpcStatus {
    /// A code of gRPC.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// Why.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// What the proxy makes of a request or its answer.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum HttpResponse {
    /// The answer to a request that may not pass.
    #[prost(message, tag = "2")]
    Denied(DeniedHttpResponse),
    /// Changes of a request that may pass.
    #[prost(message, tag = "3")]
    Ok(OkHttpResponse),
}

/// The answer to a request that may not pass.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeniedHttpResponse {
    /// The status; 403 if there is none.
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    /// Headers of the answer.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderValueOption>,
    /// The body of the answer.
    #[prost(string, tag = "3")]
    pub body: String,
}

/// Changes of a request that may pass.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OkHttpResponse {
    /// Headers of the request to the upstream.
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<HeaderValueOption>,
    /// Headers of the answer to the client.
    #[prost(message, repeated, tag = "6")]
    pub response_headers_to_add: Vec<HeaderValueOption>,
}

/// A status of HTTP.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct HttpStatus {
    /// Its number.
    #[prost(int32, tag = "1")]
    pub code: i32,
}

/// A header, and what becomes of one with its name.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeaderValueOption {
    /// The header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    /// What becomes of one with its name.
    #[prost(enumeration = "AppendAction", tag = "3")]
    pub append_action: i32,
}

/// What becomes of a header with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum AppendAction {
    /// Both are there.
    AppendIfExistsOrAdd = 0,
    /// It stays, without the new one.
    AddIfAbsent = 1,
    /// The new one replaces it.
    OverwriteIfExistsOrAdd = 2,
    /// The new one replaces it; without it nothing is added.
    OverwriteIfExists = 3,
}

impl HeaderValueOption {
    /// A header that replaces others with its name.
    pub fn set(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self {
            header: Some(HeaderValue::new(name, value)),
            append_action: AppendAction::OverwriteIfExistsOrAdd as i32,
        }
    }
}

impl CheckRequest {
    /// The request of HTTP, without which there is nothing to check.
    pub fn http(&self) -> Option<&HttpRequest> {
        self.attributes.as_ref()?.request.as_ref()?.http.as_ref()
    }

    /// The address of the client as the proxy saw it.
    pub fn source_address(&self) -> Option<&str> {
        let address = self.attributes.as_ref()?.source.as_ref()?.address.as_ref()?;
        Some(&address.socket_address.as_ref()?.address)
    }

    /// What the configuration of the proxy's route says.
    pub fn context_extension(&self, name: &str) -> Option<&str> {
        self.attributes.as_ref()?.context_extensions.get(name).map(String::as_str)
    }
}

impl HttpRequest {
    /// The method as text.
    pub fn method(&self) -> Cow<'_, str> {
        text(&self.method)
    }

    /// The path with its query, as text.
    pub fn path(&self) -> Cow<'_, str> {
        text(&self.path)
    }

    /// The host as text.
    pub fn host(&self) -> Cow<'_, str> {
        text(&self.host)
    }

    /// All headers, in whichever form the proxy sends them. Pseudo-headers such as `:path` can be among them.
    pub fn header_fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let map = self.headers.iter().map(|(name, value)| (name.as_bytes(), value.as_slice()));
        let listed = self.header_map.iter().flat_map(|map| &map.headers);
        map.chain(listed.map(|header| (&header.key[..], header.bytes())))
    }
}

impl CheckResponse {
    /// The request may pass, with these headers for the upstream and for the client.
    pub fn ok(headers: Vec<HeaderValueOption>, response_headers_to_add: Vec<HeaderValueOption>) -> Self {
        Self {
            status: Some(RpcStatus { code: 0, message: String::new() }),
            http_response: Some(HttpResponse::Ok(OkHttpResponse { headers, response_headers_to_add })),
        }
    }

    /// The request may not pass: `code` is a code of gRPC and not 0, the rest is the answer to the client.
    pub fn denied(code: i32, status: u16, headers: Vec<HeaderValueOption>, body: String) -> Self {
        let status = Some(HttpStatus { code: i32::from(status) });
        Self {
            status: Some(RpcStatus { code, message: String::new() }),
            http_response: Some(HttpResponse::Denied(DeniedHttpResponse { status, headers, body })),
        }
    }
}
