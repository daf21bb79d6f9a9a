//! Envoy's external authorization over gRPC: a check of the request that the message describes.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode, Version, header};
use sluicegate_auth::client_address;
use sluicegate_base::message::{LocalBody, LocalResponse};
use sluicegate_downstream::RequestBody;
use sluicegate_rls::wire::authorization::{CheckResponse, HeaderValueOption};
use sluicegate_rls::wire::decode;
use sluicegate_rls::wire::services::Method as Call;
use sluicegate_rls::wire::status::{Code, Status};
use sluicegate_wire::headers::is_value;
use sluicegate_wire::{Headers, RequestHead};

use super::body::patience;
use super::described::{Described, is_of_question, target};
use super::grpc;
use crate::request::View;
use crate::snapshot::Route;

/// The context extension that names a route, whose limits then decide.
const ROUTE: &str = "route";

/// The request that a call describes.
///
/// # Errors
/// If the call is not `Check`, or its message does not describe a request.
pub(super) async fn described(
    view: &View,
    head: &RequestHead,
    body: &mut Option<RequestBody>,
) -> Result<Described, Status> {
    if Call::of(head.target.path()) != Some(Call::Check) {
        return Err(Status::new(Code::Unimplemented, "this listener serves Envoy's external authorization"));
    }
    let request = decode::authorization(grpc::message(body, patience(view)).await?)?;
    let http = request.http().ok_or(Status::invalid("the message has no HTTP request"))?;
    let method = Method::from_bytes(&http.method).map_err(|_| Status::invalid("the method is not valid"))?;
    let target = target(&http.path).ok_or(Status::invalid("the path is not valid"))?;
    let mut headers = Headers::new();
    headers.insert(header::HOST, valid(&http.host)?);
    for (name, value) in http.header_fields() {
        // Pseudo-headers, and what belongs to the connection between client and proxy.
        if name.starts_with(b":") || is_of_question(name) {
            continue;
        }
        let name = header::HeaderName::from_bytes(name);
        let name = name.map_err(|_| Status::invalid("the name of a header is not valid"))?;
        headers.append(name, valid(value)?);
    }
    let head = RequestHead { method, target, version: Version::HTTP_11, headers };
    let config = &view.snapshot.config;
    let (client_ip, lists) = (&config.client_ip, &config.resources.lists);
    let source = request.source_address().and_then(|address| address.parse::<IpAddr>().ok());
    let client = match source {
        Some(source) => Some(client_address::resolve(client_ip, lists, source, &head.headers)),
        None => client_address::behind(client_ip, lists, &head.headers),
    };
    let client = client.ok_or(Status::invalid("the message does not name the client"))?;
    let route = match request.context_extension(ROUTE) {
        None => None,
        Some(name) => Some(index_of(&view.snapshot.routes, name)?),
    };
    Ok(Described { head, client, route })
}

/// The index of the route with this name.
fn index_of(routes: &[Arc<Route>], name: &str) -> Result<usize, Status> {
    routes.iter().position(|route| route.name == name).ok_or_else(|| {
        Status::invalid(format!("context_extensions names the route `{name}`, which does not exist"))
    })
}

fn valid(value: &[u8]) -> Result<&[u8], Status> {
    is_value(value).then_some(value).ok_or(Status::invalid("the value of a header is not valid"))
}

/// The response to a call whose request is answered so.
pub(super) fn response(response: LocalResponse) -> LocalResponse {
    let LocalResponse { status, headers, body } = response;
    let is_admitted = status.is_success();
    // Of an admitted request, the headers of its limits are for the client; there is no body that others would describe.
    let is_sent = |name: &[u8]| name != b"content-length" && !(is_admitted && name == b"content-type");
    let headers = headers.iter().filter(|(name, _)| is_sent(name)).map(|(name, value)| {
        HeaderValueOption::set(Bytes::copy_from_slice(name), Bytes::copy_from_slice(value))
    });
    let headers = headers.collect();
    let answer = match is_admitted {
        true => CheckResponse::ok(Vec::new(), headers),
        false => {
            let code = match status {
                StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
                StatusCode::UNAUTHORIZED => Code::Unauthenticated,
                StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
                _ => Code::PermissionDenied,
            };
            let body = match body {
                LocalBody::Shared(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                LocalBody::Owned(text) => String::from_utf8(text).unwrap_or_default(),
                LocalBody::Empty | LocalBody::Grpc(_) => String::new(),
            };
            CheckResponse::denied(code.number().into(), status.as_u16(), headers, body)
        }
    };
    grpc::response(&answer)
}
