//! A request as it is sent to the upstream.

use std::rc::Rc;

use super::upload::{Upload, UploadBody};
use super::{ForwardError, proxy};
use sluicegate_config::UpstreamConfig;
use sluicegate_wire::RequestHead;
use sluicegate_wire::headers::NameCase;

/// A request as it is sent to the upstream.
pub struct Outgoing<'a> {
    pub(super) head: &'a RequestHead,
    /// The body; `None` if there is none, or if a part of it may have been sent and was not kept.
    pub(super) body: Option<UploadBody>,
    /// The state of the body, if there is one.
    pub(super) upload: Option<Rc<Upload>>,
    /// The protocol that the client asks to switch to.
    pub(super) upgrade: Option<Box<[u8]>>,
    /// The hash for consistent balancing.
    pub(super) affinity: Option<u64>,
    /// The first bytes of the connection.
    pub(super) preamble: proxy::Header,
    /// What is configured of the upstream; `None` for a request of the gateway itself.
    pub(super) config: Option<&'a UpstreamConfig>,
    /// The case in which names of headers are written over HTTP/1.1; `None` for lower case.
    pub(super) header_case: Option<&'a NameCase>,
}

/// The longest head of a response to a request of the gateway itself.
const MAX_HEAD: usize = 64 << 10;
/// The most header lines of such a response.
const MAX_HEADERS: usize = 1_024;

impl<'a> Outgoing<'a> {
    /// A request of the gateway itself, which has no body.
    pub(super) fn without_body(head: &'a RequestHead) -> Self {
        Self {
            head,
            body: None,
            upload: None,
            upgrade: None,
            affinity: None,
            preamble: proxy::Header::new(),
            config: None,
            header_case: None,
        }
    }

    /// The longest head of its response, in bytes.
    pub(super) fn max_head(&self) -> usize {
        self.config.map_or(MAX_HEAD, |config| config.max_head)
    }

    /// The most header lines of its response.
    pub(super) fn max_headers(&self) -> usize {
        self.config.map_or(MAX_HEADERS, |config| config.max_headers)
    }

    /// Whether it may be sent again if no byte of a response was received: it is idempotent, or the configuration allows it, and its
    /// whole body is still there.
    pub(super) fn is_repeatable(&self) -> bool {
        let all_methods = self.config.is_some_and(|config| config.retries.all_methods);
        (all_methods || self.head.method.is_idempotent()) && self.is_whole()
    }

    /// The error if no response was received in time.
    pub(super) fn timeout(&self) -> ForwardError {
        self.upload.as_ref().map_or(ForwardError::ResponseTimeout, |upload| upload.timeout())
    }

    /// The error of the client, if that is why the request was not sent to its end.
    pub(super) fn client_error(&self) -> Option<ForwardError> {
        self.upload.as_ref().and_then(|upload| upload.client_error())
    }

    /// Whether the whole body is still there.
    pub(super) fn is_whole(&self) -> bool {
        self.upload.is_none() || self.body.is_some()
    }
}
