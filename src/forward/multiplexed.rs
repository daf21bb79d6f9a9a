//! One request on an HTTP/2 connection to a server.

use std::error::Error;
use std::rc::Rc;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, StatusCode, Uri, Version, header};
use hyper::body::Incoming;

use super::body::{Body, Forwarded, Returning};
use super::framing::Framing;
use super::lines::{Lines, Stream};
use super::server::{Server, broken, too_late};
use super::upload::{RequestBody, Upload};
use super::{Exchange, ForwardError};
use crate::config::UpstreamConfig;
use crate::fields::Fields;
use crate::listen::Connection;
use crate::message::{RequestHead, Response};

/// Connections that are tried for a request that none of them has taken.
const TRIES: usize = 3;

/// Sends a request without a body and waits for the head of its answer. What the server has refused to look at, or what
/// does the same when it is done twice, is sent again when its connection ends.
pub(super) async fn ask(
    (server, lines): (&Server, &Rc<Lines>),
    config: &UpstreamConfig,
    exchange: &Exchange,
    connection: &Connection,
    parts: &RequestHead,
) -> Result<Response, ForwardError> {
    let mut turn = 0;
    loop {
        turn += 1;
        let now = connection.worker.deadlines.now();
        let stream = lines.place(now).await?;
        let mut request = parts.clone().with_body(RequestBody::empty());
        prepare(&mut request, server);
        let mut sender = stream.sender();
        match exchange.in_time(config.response, sender.try_send_request(request)).await {
            None => {
                stream.unheard();
                return Err(ForwardError::ResponseTimeout);
            }
            Some(Ok(response)) => return answer(response, stream, connection, &parts.method),
            Some(Err(mut failed)) => {
                let unsent = failed.take_message().is_some();
                let error = failed.into_error();
                let again =
                    unsent || is_refused(&error) || (stream.is_kept() && parts.method.is_idempotent());
                if !is_of_stream(&error) {
                    stream.retire();
                }
                if !again || turn >= TRIES {
                    return Err(match is_of_stream(&error) {
                        true => ForwardError::Broken(error.into()),
                        false => ForwardError::Unanswered(error.into()),
                    });
                }
            }
        }
    }
}

/// Sends a request with a body and waits for the head of its answer. What no connection has taken is sent on another.
pub(super) async fn send(
    (server, lines): (&Server, &Rc<Lines>),
    config: &UpstreamConfig,
    exchange: &Exchange,
    connection: &Connection,
    unsent: &mut Option<Request<RequestBody>>,
    upload: &Rc<Upload>,
) -> Result<Response, ForwardError> {
    let mut turn = 0;
    loop {
        turn += 1;
        let now = connection.worker.deadlines.now();
        let mut stream = lines.place(now).await?;
        let Some(mut request) = unsent.take() else { return Err(ForwardError::ClientBroken) };
        let method = request.method().clone();
        prepare(&mut request, server);
        let mut sender = stream.sender();
        match exchange.in_time(config.response, sender.try_send_request(request)).await {
            None => {
                if !upload.waiting.get() {
                    stream.unheard();
                }
                return Err(too_late(upload));
            }
            Some(Ok(response)) => {
                upload.answered.set(true);
                stream.ends(Some(Rc::clone(upload)));
                return answer(response, stream, connection, &method);
            }
            Some(Err(mut failed)) => {
                let back = failed.take_message();
                let error = failed.into_error();
                if !is_of_stream(&error) && !upload.broken.get() && !upload.too_large.get() {
                    stream.retire();
                }
                match back.filter(|_| turn < TRIES) {
                    Some(request) => *unsent = Some(request),
                    None => return Err(broken(error, upload)),
                }
            }
        }
    }
}

/// Asks a question of the gateway's own, and says with which status it is answered.
pub(super) async fn probe(
    (server, lines): (&Server, &Rc<Lines>),
    question: &RequestHead,
) -> Result<StatusCode, Box<dyn Error + Send + Sync>> {
    let stream = lines.place(0).await?;
    stream.retire(); // the next question finds out anew whether there is a way
    let mut request = question.clone().with_body(RequestBody::empty());
    request.headers_mut().remove(header::CONNECTION);
    prepare(&mut request, server);
    Ok(stream.sender().send_request(request).await?.status())
}

/// The head as HTTP/2 has it: the scheme, and Host as the authority (RFC 9113 §8.3.1).
fn prepare(request: &mut Request<RequestBody>, server: &Server) {
    let Some(host) = request.headers_mut().remove(header::HOST) else { return }; // it was sent in vain before
    let path = request.uri().path_and_query().cloned();
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(if server.address.is_tls() { Scheme::HTTPS } else { Scheme::HTTP });
    uri.authority =
        Authority::try_from(host.as_bytes()).ok().or_else(|| server.address.authority.parse().ok());
    uri.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    if let Ok(uri) = Uri::from_parts(uri) {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = Version::HTTP_2;
}

fn answer(
    response: http::Response<Incoming>,
    stream: Stream,
    connection: &Connection,
    method: &Method,
) -> Result<Response, ForwardError> {
    stream.heard(connection.worker.deadlines.now());
    let (head, body) = response.into_parts();
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(ForwardError::Broken("the protocol was switched unasked".into()));
    }
    // Two lengths of one body are no better here.
    let mut headers = Fields::from(&head.headers);
    Framing::of(head.status, &mut headers, method).map_err(|what| ForwardError::Broken(what.into()))?;
    let forwarded = Forwarded { body, connection: Some(Returning::Stream(stream)) };
    Ok(Response { status: head.status, headers, body: Body::forwarded(forwarded) })
}

/// Whether the server says that it has not looked at the request (RFC 9113 §8.7): the stream was refused, or is beyond
/// the last one of a connection that is going down.
fn is_refused(error: &hyper::Error) -> bool {
    of_http2(error).is_some_and(|error| {
        let reason = error.reason();
        error.is_remote()
            && ((error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM))
                || (error.is_go_away() && reason == Some(h2::Reason::NO_ERROR)))
    })
}

/// Whether only this request is concerned, and its connection goes on.
fn is_of_stream(error: &hyper::Error) -> bool {
    of_http2(error).is_some_and(h2::Error::is_reset)
}

fn of_http2(error: &hyper::Error) -> Option<&h2::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
