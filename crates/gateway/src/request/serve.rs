//! A request from its head to its response, for the protocols of clients.

use std::pin::pin;
use std::rc::Rc;

use super::response_body::Response;
use super::{RequestContext, Services, pipeline, served};
use crate::respond::LocalError;
use sluicegate_base::boxed_future::boxed_future;
use sluicegate_downstream::worker_state::Deadline;
use sluicegate_downstream::{Connection, RequestBody};
use sluicegate_route::prefer_target;
use sluicegate_wire::RequestHead;

/// The response to a request that could not be parsed. It is counted like any other.
pub fn refuse(
    services: &Services,
    connection: &Rc<Connection>,
    deadline: &Rc<Deadline>,
    error: LocalError,
) -> Response {
    let (view, now) = (services.view(), connection.worker.clock().now());
    let context = RequestContext::new(connection, deadline, &view, now, None);
    let response = context.refuse(error);
    context.finish(&view.snapshot, response.with_body())
}

/// Serves one request. Every response comes from here, also a refusal or an error: the protocols above see no failure.
/// `deadline` is that of the connection, or of the stream over HTTP/2. Parts of the request head may be gone afterwards, and the
/// body is.
#[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice (decision 26)")]
pub fn serve<'r>(
    services: &'r Services,
    connection: &'r Rc<Connection>,
    deadline: &'r Rc<Deadline>,
    head: &'r mut RequestHead,
    body: &'r mut Option<RequestBody>,
) -> impl Future<Output = Response> + 'r {
    async move {
        let view = services.view();
        let now = connection.worker.clock().now();
        if connection.listener.is_served() {
            return boxed_future(|| served::answer(&view, connection, deadline, head, body)).await;
        }
        view.snapshot.underscores.clean(&mut head.headers);
        prefer_target(head);
        let mut context = RequestContext::new(connection, deadline, &view, now, Some(head));
        let answered = {
            // The total timeout holds for everything that is awaited in there.
            let answering = pin!(pipeline::respond(&view, connection, &mut context, head, body, None));
            deadline.within_total(&connection.worker.deadlines, answering).await
        };
        let response = answered.unwrap_or_else(|| context.refuse(LocalError::TimedOut).with_body());
        if let Some(body) = body.take() {
            body.drain(head);
        }
        context.finish(&view.snapshot, response)
    }
}
