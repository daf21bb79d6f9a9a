//! Decides for another proxy, which describes the request of its client and forwards it.

mod described;
mod ext_authz;
mod grpc;
mod rls;
mod rls_decision;

use std::pin::pin;
use std::rc::Rc;

use http::{StatusCode, header};

use self::described::Described;
use super::response_body::Response;
use super::{RequestContext, View, pipeline};
use crate::respond::LocalError;
use sluicegate_base::message::{LocalBody, LocalResponse};
use sluicegate_config::{ServedConfig, ServedProtocol};
use sluicegate_downstream::worker_state::Deadline;
use sluicegate_downstream::{Connection, RequestBody};
use sluicegate_rls::wire::authorization::CheckResponse;
use sluicegate_wire::RequestHead;

/// The response to the question of a proxy. Takes the body out of `request`.
pub(super) async fn answer(
    view: &View,
    connection: &Rc<Connection>,
    deadline: &Rc<Deadline>,
    config: &ServedConfig,
    (head, body): (&mut RequestHead, &mut Option<RequestBody>),
) -> Response {
    let snapshot = &view.snapshot;
    let described = match config.protocol {
        _ if !is_caller(connection, config) && grpc::is_call(head) => {
            let now = connection.worker.clock().now();
            let context = RequestContext::new(connection, deadline, view, now, Some(head));
            let response = grpc::denied(&context);
            return context.finish(snapshot, response.with_body());
        }
        _ if !is_caller(connection, config) => Err(LocalError::NoCaller),
        ServedProtocol::Check => Described::by_headers(view, head),
        ServedProtocol::ExtAuthz if grpc::is_call(head) => {
            return authorize(view, connection, deadline, config, (head, body)).await;
        }
        ServedProtocol::ExtAuthz => Described::as_it_is(view, head),
        ServedProtocol::Rls => {
            let now = connection.worker.clock().now();
            let context = RequestContext::new(connection, deadline, view, now, Some(head));
            let response = rls::answer(view, &context, head, body).await;
            return context.finish(snapshot, response.with_body());
        }
    };
    let (context, mut response) = match described {
        Err(error) => {
            let now = connection.worker.clock().now();
            let context = RequestContext::new(connection, deadline, view, now, Some(head));
            let response = context.refuse(error);
            (context, response)
        }
        Ok(described) => {
            let (context, response) = decide(view, connection, deadline, described).await;
            (context, with_deny_status(response, config.deny_status))
        }
    };
    if let Some(body) = body.take() {
        body.drain(head);
    }
    if head.method == http::Method::HEAD {
        response.body = LocalBody::Empty;
    }
    context.finish(snapshot, response.with_body())
}

/// The response to a call of Envoy's external authorization.
async fn authorize(
    view: &View,
    connection: &Rc<Connection>,
    deadline: &Rc<Deadline>,
    config: &ServedConfig,
    (head, body): (&RequestHead, &mut Option<RequestBody>),
) -> Response {
    let (context, response) = match ext_authz::described(view, head, body).await {
        Ok(described) => {
            let (context, response) = decide(view, connection, deadline, described).await;
            (context, ext_authz::response(with_deny_status(response, config.deny_status)))
        }
        Err(status) => {
            let now = connection.worker.clock().now();
            let context = RequestContext::new(connection, deadline, view, now, Some(head));
            (context, grpc::response(Err::<CheckResponse, _>(status)))
        }
    };
    context.finish(&view.snapshot, response.with_body())
}

/// Whether the peer may describe requests of others.
fn is_caller(connection: &Connection, config: &ServedConfig) -> bool {
    let peer = connection.peer_ip();
    // Without networks, the TLS handshake has required a certificate.
    config.callers.is_empty() || config.callers.iter().any(|network| network.contains(&peer))
}

/// Decides on a described request. The status of the response is below 400 if it is admitted.
async fn decide(
    view: &View,
    connection: &Rc<Connection>,
    deadline: &Rc<Deadline>,
    described: Described,
) -> (Box<RequestContext>, LocalResponse) {
    let Described { mut head, client } = described;
    view.snapshot.underscores.clean(&mut head.headers);
    let mut context = RequestContext::described(connection, deadline, view, (client, &head));
    let answered = {
        let deciding = pin!(pipeline::check(view, connection, &mut context, &head));
        deadline.within_total(&connection.worker.deadlines, deciding).await
    };
    let response = answered.unwrap_or_else(|| context.refuse(LocalError::TimedOut));
    (context, without_grpc(response))
}

/// A refusal of a gRPC call as one of HTTP: the proxy reads its status.
fn without_grpc(mut response: LocalResponse) -> LocalResponse {
    let Some(code) = response.headers.get("grpc-status") else { return response };
    response.status = match code {
        b"0" => response.status,
        b"7" => StatusCode::FORBIDDEN,
        b"8" => StatusCode::TOO_MANY_REQUESTS,
        b"16" => StatusCode::UNAUTHORIZED,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    response
        .headers
        .retain(|name, _| !name.starts_with(b"grpc-") && name != header::CONTENT_TYPE.as_str().as_bytes());
    response
}

/// The response with the status that the configuration gives to refusals. 401 stays, because it asks for credentials.
fn with_deny_status(mut response: LocalResponse, status: Option<StatusCode>) -> LocalResponse {
    if let Some(status) = status.filter(|_| response.status.as_u16() >= 400)
        && response.status != StatusCode::UNAUTHORIZED
    {
        response.status = status;
    }
    response
}
