//! HTTP/2 connections of clients.

use std::rc::Rc;

use bytes::Bytes;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::connection::Connection;
use super::drive::drive;
use super::inbound::Inbound;
use super::io::Io;
use super::stream::ClientStream;
use crate::pipeline;

/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 100;

/// Serves a connection to its end. `prefix` is what was read of it already.
pub(super) async fn serve(connection: &Rc<Connection>, stream: ClientStream, prefix: Bytes) {
    let io = TokioIo::new(Io::new(stream, Rc::clone(connection), prefix));
    let max_head = connection.worker.view().snapshot.config.max_head;
    let service = service_fn(|request| {
        let connection = Rc::clone(connection);
        async move { pipeline::serve(&connection, request.map(Inbound::from)).await }
    });
    let serving = http2::Builder::new(LocalExecutor)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(max_head as u32)
        .initial_stream_window_size(64 << 10)
        .initial_connection_window_size(1 << 20)
        .serve_connection(io, service);
    drive!(connection, serving);
}

/// Runs the requests of an HTTP/2 connection on the thread that serves it.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
