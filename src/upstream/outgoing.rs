//! A request as its upstream is to get it.

use std::rc::Rc;

use super::upload::{Upload, UploadBody};
use super::{ForwardError, proxy};
use sluicegate_wire::RequestHead;

/// A request on its way to a server.
pub struct Outgoing<'a> {
    pub(super) head: &'a RequestHead,
    /// Its body; `None` if it has none, or if a server may have got some of it.
    pub(super) body: Option<(UploadBody, Rc<Upload>)>,
    /// What becomes of its body, if it has one.
    pub(super) upload: Option<Rc<Upload>>,
    /// The protocol that it asks to switch to.
    pub(super) upgrade: Option<Vec<u8>>,
    /// The hash for consistent balancing.
    pub(super) affinity: Option<u64>,
    /// What a connection begins with.
    pub(super) preamble: proxy::Header,
}

impl<'a> Outgoing<'a> {
    /// A request of the gateway's own, without a body.
    pub(super) fn without_body(head: &'a RequestHead) -> Self {
        Self { head, body: None, upload: None, upgrade: None, affinity: None, preamble: proxy::Header::new() }
    }

    /// Whether it can be sent again after no byte of an answer has come: it does the same when it is done twice, and all
    /// of it is still there.
    pub(super) fn is_repeatable(&self) -> bool {
        self.head.method.is_idempotent() && self.is_whole()
    }

    /// The error when no answer has come in time.
    pub(super) fn timeout(&self) -> ForwardError {
        self.upload.as_ref().map_or(ForwardError::ResponseTimeout, |upload| upload.timeout())
    }

    /// What the client did wrong, if that is why it was not sent whole.
    pub(super) fn client_error(&self) -> Option<ForwardError> {
        self.upload.as_ref().and_then(|upload| upload.client_error())
    }

    /// Whether all of it is still there.
    pub(super) fn is_whole(&self) -> bool {
        self.upload.is_none() || self.body.is_some()
    }
}
