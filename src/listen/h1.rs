//! HTTP/1.1 connections of clients.

use std::rc::Rc;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::connection::Connection;
use super::drive::drive;
use super::io::Io;
use super::stream::ClientStream;
use crate::pipeline;

/// Serves a connection to its end. `prefix` is what was read of it already.
pub(super) async fn serve(connection: &Rc<Connection>, stream: ClientStream, prefix: Bytes) {
    let io = TokioIo::new(Io::new(stream, Rc::clone(connection), prefix));
    let max_head = connection.worker.view().snapshot.config.max_head;
    let service = service_fn(|request| {
        let connection = Rc::clone(connection);
        async move {
            let mut answer = pipeline::serve(&connection, request).await;
            if let Ok(response) = &mut answer
                && connection.listener.ending.get()
                && response.status() != StatusCode::SWITCHING_PROTOCOLS
            {
                // Told now, its client does not send another request at the moment at which this side closes.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            answer
        }
    });
    let serving = http1::Builder::new()
        .max_buf_size(max_head)
        .header_read_timeout(None)
        .writev(false)
        .serve_connection(io, service);
    drive!(connection, serving);
}
