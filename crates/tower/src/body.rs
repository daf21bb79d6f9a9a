//! The body of a response: that of the service behind the layer, or of a refusal.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::ending::Ending;

pin_project! {
    /// The body of a response. It has the data and the errors of the body of the service behind the layer.
    ///
    /// A request has ended when this has ended or was dropped.
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<B> {
        Service {
            #[pin]
            body: B,
            ending: Option<Ending>,
        },
        Refusal {
            body: Option<Bytes>,
        },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) const fn service(body: B, ending: Option<Ending>) -> Self {
        Self { kind: Kind::Service { body, ending } }
    }

    pub(crate) fn refusal(body: Bytes) -> Self {
        Self { kind: Kind::Refusal { body: Some(body).filter(|body| !body.is_empty()) } }
    }
}

impl<B: Body> Body for ResponseBody<B>
where
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().kind.project() {
            KindProjection::Service { mut body, ending } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
                    *ending = None; // it may be kept for long after its end
                }
                Poll::Ready(frame)
            }
            KindProjection::Refusal { body } => {
                Poll::Ready(body.take().map(|bytes| Ok(Frame::data(bytes.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Service { body, .. } => body.is_end_stream(),
            Kind::Refusal { body } => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Service { body, .. } => body.size_hint(),
            Kind::Refusal { body } => {
                SizeHint::with_exact(body.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}

impl<B> std::fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}

impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::service(B::default(), None)
    }
}
