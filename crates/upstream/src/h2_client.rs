//! Sends a request on an HTTP/2 connection to a server.

use std::error::Error;
use std::pin::pin;
use std::rc::Rc;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, StatusCode, Uri, Version, header};
use hyper::body::Incoming;

use super::ForwardError;
use super::body::{Body, H2Body, Response};
use super::connect::Address;
use super::exchange::Exchange;
use super::h2_pool::{H2Pool, Stream};
use super::headers::is_larger;
use super::outgoing::Outgoing;
use super::upload::UploadBody;
use sluicegate_config::UpstreamConfig;
use sluicegate_downstream::Connection;
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;
use sluicegate_wire::h1::{response_body, status_of};

/// The most attempts for a request that no connection has accepted.
const MAX_ATTEMPTS: usize = 3;

/// Sends a request and waits for the head of its response. The request is sent again if its connection ends before it was
/// sent, or if it may be repeated.
pub(super) async fn send_request(
    (address, h2_pool): (&Address, &Rc<H2Pool>),
    config: &UpstreamConfig,
    exchange: &Exchange,
    outgoing: &mut Outgoing<'_>,
) -> Result<Response, ForwardError> {
    let connection = exchange.connection();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let now = connection.worker.deadlines.now();
        let mut stream = h2_pool.open_stream(now).await?;
        let body = outgoing.body.take().unwrap_or_else(UploadBody::empty);
        let mut request = outgoing.head.clone().with_body(body);
        prepare(&mut request, address);
        let mut sender = stream.sender();
        let sending = pin!(sender.try_send_request(request));
        let mut failed = match exchange.with_timeout(config.timeouts.response, sending).await {
            None => {
                let error = outgoing.timeout();
                if matches!(error, ForwardError::ResponseTimeout) {
                    stream.note_timeout();
                }
                return Err(error);
            }
            Some(Ok(response)) => {
                if let Some(upload) = &outgoing.upload {
                    upload.set_answered();
                    stream.set_upload(upload);
                }
                return convert_response(response, stream, connection, outgoing);
            }
            Some(Err(failed)) => failed,
        };
        let unsent = failed.take_message();
        let is_unsent = unsent.is_some();
        outgoing.body = unsent.map(Request::into_body).filter(|_| outgoing.upload.is_some());
        let error = failed.into_error();
        let fault = outgoing.client_error();
        if !is_stream_error(&error) && fault.is_none() {
            stream.retire();
        }
        let again = is_unsent
            || (outgoing.is_whole() && is_refused(&error))
            || (outgoing.is_repeatable() && stream.is_reused());
        if !again || attempt >= MAX_ATTEMPTS {
            return Err(match fault {
                Some(fault) => fault,
                None if is_stream_error(&error) => ForwardError::Broken(error.into()),
                None => ForwardError::Unanswered(error.into()),
            });
        }
    }
}

/// Sends a request of the gateway itself and returns the status of its response.
pub(super) async fn probe(
    (address, h2_pool): (&Address, &Rc<H2Pool>),
    request: &RequestHead,
) -> Result<StatusCode, Box<dyn Error + Send + Sync>> {
    let stream = h2_pool.open_stream(0).await?;
    stream.retire(); // the next probe uses a new connection
    let mut request = request.clone().with_body(UploadBody::empty());
    request.headers_mut().remove(header::CONNECTION);
    prepare(&mut request, address);
    Ok(stream.sender().send_request(request).await?.status())
}

/// Converts the head to HTTP/2: adds the scheme, and moves Host to the authority (RFC 9113 §8.3.1).
fn prepare(request: &mut Request<UploadBody>, address: &Address) {
    let Some(host) = request.headers_mut().remove(header::HOST) else { return }; // converted by an earlier attempt
    let path = request.uri().path_and_query().cloned();
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(if address.is_tls() { Scheme::HTTPS } else { Scheme::HTTP });
    uri.authority = Authority::try_from(host.as_bytes()).ok().or_else(|| address.host().parse().ok());
    uri.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    if let Ok(uri) = Uri::from_parts(uri) {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = Version::HTTP_2;
}

fn convert_response(
    response: http::Response<Incoming>,
    stream: Stream,
    connection: &Connection,
    outgoing: &Outgoing<'_>,
) -> Result<Response, ForwardError> {
    stream.note_read(connection.worker.deadlines.now());
    let (head, body) = response.into_parts();
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(ForwardError::Broken("the server switched protocols without a request to do so".into()));
    }
    // The same rules as over HTTP/1.1.
    let broken = |what: &'static str| ForwardError::Broken(what.into());
    if is_larger(&head.headers, outgoing.max_head()) {
        return Err(broken("the head of the response is too long"));
    }
    if head.headers.len() > outgoing.max_headers() {
        return Err(broken("the response has too many headers"));
    }
    let status = status_of(head.status.as_u16()).map_err(broken)?;
    let mut headers = Headers::from(&head.headers);
    response_body(status, false, &mut headers, &outgoing.head.method).map_err(broken)?;
    let body = H2Body { body, stream: Some(stream), max_head: outgoing.max_head() };
    Ok(Response { status, headers, body: Body::h2_body(body) })
}

/// Whether the server guarantees that it has not processed the request (RFC 9113 §8.7): the stream was refused, or is above
/// the last stream of a GOAWAY.
fn is_refused(error: &hyper::Error) -> bool {
    h2_error(error).is_some_and(|error| {
        let reason = error.reason();
        error.is_remote()
            && ((error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM))
                || (error.is_go_away() && reason == Some(h2::Reason::NO_ERROR)))
    })
}

/// Whether the error concerns the stream only, and the connection remains usable.
fn is_stream_error(error: &hyper::Error) -> bool {
    h2_error(error).is_some_and(h2::Error::is_reset)
}

fn h2_error(error: &hyper::Error) -> Option<&h2::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
