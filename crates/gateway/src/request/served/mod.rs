//! Decides for another proxy, which describes the request of its client and forwards it.

mod body;
mod counting;
mod described;
mod ext_authz;
mod grpc;
mod item;
mod limitador;
mod limitador_decision;
mod rls;
mod rls_decision;

use std::pin::pin;
use std::rc::Rc;

use http::{Method, StatusCode, header};

use self::described::Described;
use super::response_body::Response;
use super::{RequestContext, View, pipeline};
use crate::respond::{LocalError, with_status};
use sluicegate_base::message::{LocalBody, LocalResponse};
use sluicegate_config::{ServedConfig, ServedProtocol};
use sluicegate_downstream::worker_state::Deadline;
use sluicegate_downstream::{Connection, RequestBody};
use sluicegate_wire::RequestHead;

/// A request of another proxy.
struct Call<'a> {
    view: &'a View,
    connection: &'a Rc<Connection>,
    deadline: &'a Rc<Deadline>,
}

/// The response to a request of another proxy. Takes the body out of `request`.
pub(super) async fn answer(
    view: &View,
    connection: &Rc<Connection>,
    deadline: &Rc<Deadline>,
    head: &mut RequestHead,
    body: &mut Option<RequestBody>,
) -> Response {
    let call = Call { view, connection, deadline };
    let response = match view.snapshot.served(connection.listener_index()) {
        // The listener was removed, or serves clients since a reload: what this connection asks is no request of a client.
        None => call.refuse(head, LocalError::ListenerRemoved),
        Some(config) => call.answer(config, head, body).await,
    };
    if let Some(body) = body.take() {
        body.drain(head);
    }
    response
}

impl Call<'_> {
    async fn answer(
        &self,
        config: &ServedConfig,
        head: &RequestHead,
        body: &mut Option<RequestBody>,
    ) -> Response {
        // Which of these it is, the configuration says, never a request: parts of it can be those of a client.
        let described = match config.protocol {
            ServedProtocol::Rls | ServedProtocol::Limitador => {
                return self.rate_limit(config, head, body).await;
            }
            ServedProtocol::ExtAuthz => return self.authorize(config, head, body).await,
            _ if !self.is_allowed(config) => Err(LocalError::CallerDenied),
            ServedProtocol::Check => Described::by_headers(self.view, head),
            ServedProtocol::ExtAuthzHttp => Described::as_it_is(self.view, head),
        };
        match described {
            Err(error) => self.refuse(head, error),
            Ok(described) => {
                let (context, response) = self.decide(described).await;
                let is_head = head.method == Method::HEAD;
                context.finish_for_proxy(&self.view.snapshot, response, |response| {
                    let mut response = with_deny_status(response, config.deny_status);
                    if is_head {
                        response.body = LocalBody::Empty;
                    }
                    response
                })
            }
        }
    }

    /// Envoy's rate limit service, or the services of limitador.
    async fn rate_limit(
        &self,
        config: &ServedConfig,
        head: &RequestHead,
        body: &mut Option<RequestBody>,
    ) -> Response {
        let context = self.context(head);
        let response = match self.is_allowed(config) {
            true if config.protocol == ServedProtocol::Limitador => {
                limitador::answer(self.view, &context, head, body).await
            }
            true => rls::answer(self.view, &context, head, body).await,
            false if grpc::is_call(head) => grpc::denied(&context),
            false => context.refuse(LocalError::CallerDenied),
        };
        context.finish(&self.view.snapshot, response.with_body())
    }

    /// Envoy's external authorization over gRPC.
    async fn authorize(
        &self,
        config: &ServedConfig,
        head: &RequestHead,
        body: &mut Option<RequestBody>,
    ) -> Response {
        if !grpc::is_call(head) {
            return self.refuse(head, LocalError::NoRoute);
        }
        let described = match self.is_allowed(config) {
            true => ext_authz::described(self.view, head, body).await,
            false => {
                let context = self.context(head);
                let response = grpc::denied(&context);
                return context.finish(&self.view.snapshot, response.with_body());
            }
        };
        match described {
            Ok(described) => {
                let (context, response) = self.decide(described).await;
                context.finish_for_proxy(&self.view.snapshot, response, |response| {
                    ext_authz::response(with_deny_status(response, config.deny_status))
                })
            }
            Err(status) => {
                let context = self.context(head);
                let response = grpc::failed(&context, &status);
                context.finish(&self.view.snapshot, response.with_body())
            }
        }
    }

    /// Whether the peer may describe requests of others.
    fn is_allowed(&self, config: &ServedConfig) -> bool {
        let peer = self.connection.peer_ip();
        // Without networks, the TLS handshake has required a certificate.
        config.callers.is_empty() || config.callers.iter().any(|network| network.contains(&peer))
    }

    /// Decides on a described request. The response is for its client; its status is 200 if the request is admitted.
    async fn decide(&self, described: Described) -> (Box<RequestContext>, LocalResponse) {
        let Self { view, connection, deadline } = *self;
        let Described { mut head, client, route } = described;
        view.snapshot.underscores.clean(&mut head.headers);
        let mut context = RequestContext::described(connection, deadline, view, (client, &head, route));
        let answered = {
            let deciding = pin!(pipeline::check(view, connection, &mut context, &head));
            deadline.within_total(&connection.worker.deadlines, deciding).await
        };
        let response = answered.unwrap_or_else(|| context.refuse(LocalError::TimedOut));
        (context, without_grpc(response))
    }

    /// The context of the request of the proxy itself.
    fn context(&self, head: &RequestHead) -> Box<RequestContext> {
        let now = self.connection.worker.clock().now();
        RequestContext::new(self.connection, self.deadline, self.view, now, Some(head))
    }

    fn refuse(&self, head: &RequestHead, error: LocalError) -> Response {
        let context = self.context(head);
        let response = context.refuse(error);
        context.finish(&self.view.snapshot, response.with_body())
    }
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
    let content_type = header::CONTENT_TYPE.as_str().as_bytes();
    response.headers.retain(|name, _| !name.starts_with(b"grpc-") && name != content_type);
    response
}

/// The response with the status that the configuration gives to those that are not admitted. 401 stays, because it asks for
/// credentials.
fn with_deny_status(response: LocalResponse, status: Option<StatusCode>) -> LocalResponse {
    let is_replaced = !response.status.is_success() && response.status != StatusCode::UNAUTHORIZED;
    match status.filter(|_| is_replaced) {
        Some(status) => with_status(response, status),
        None => response,
    }
}
