//! The body of an HTTP/1.1 request, read from the connection by the handler of the request.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;

use super::socket::Socket;
use crate::RequestBodyError;

/// A body on its way. The first poll sends `100 Continue` if the client waits for that. If it is dropped before its end, the
/// connection discards the rest.
pub struct Http1Body {
    socket: Rc<Socket>,
    number: u64,
}

impl Http1Body {
    /// The body of the request with this number, which has just begun.
    pub fn new(socket: &Rc<Socket>, number: u64) -> Self {
        Self { socket: Rc::clone(socket), number }
    }

    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        self.socket.poll_body(self.number, cx)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.socket.body_has_ended(self.number)
    }

    /// The number of bytes that have not been read, if the request said its length.
    pub fn left(&self) -> Option<u64> {
        self.socket.body_left(self.number)
    }
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        self.socket.release(self.number);
    }
}
