//! The service that limits the requests to another one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use sluicegate_limiter::Usage;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::built::Shared;
use crate::decide::{Admitted, Decided, decide};
use crate::ending::{Ending, settled_usage};
use crate::headers::Reported;
use crate::layer::{Applied, RateLimitLayer};

/// A service behind a [`RateLimitLayer`]. Its readiness and its errors are those of the service behind it: what is refused is an
/// ordinary response.
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    layer: RateLimitLayer,
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { inner, layer: self.clone() }
    }
}

impl<S> RateLimit<S> {
    /// The service behind it.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).field("layer", &self.layer).finish()
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S::Future> {
        let RateLimitLayer { shared, applied } = &self.layer;
        let (mut head, body) = request.into_parts();
        let kind = match decide(shared, applied, &mut head) {
            Decided::Refused(response) => Kind::Refused { response: Some(response) },
            Decided::Admitted(admitted) => {
                let future = self.inner.call(Request::from_parts(head, body));
                let waiting = Waiting { shared: Arc::clone(shared), applied: Arc::clone(applied), admitted };
                Kind::Admitted { future, waiting: Some(waiting) }
            }
        };
        ResponseFuture { kind }
    }
}

/// An admitted request that waits for its response.
struct Waiting {
    shared: Arc<Shared>,
    applied: Arc<Applied>,
    admitted: Admitted,
}

pin_project! {
    /// The response to a request. Dropping it ends the request.
    pub struct ResponseFuture<F> {
        #[pin]
        kind: Kind<F>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<F> {
        Admitted {
            #[pin]
            future: F,
            waiting: Option<Waiting>,
        },
        Refused {
            response: Option<Response<bytes::Bytes>>,
        },
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProjection::Admitted { future, waiting } => {
                let result = ready!(future.poll(cx));
                let waiting = waiting.take().expect("a future is not polled after its end");
                Poll::Ready(result.map(|response| waiting.finish(response)))
            }
            KindProjection::Refused { response } => {
                let response = response.take().expect("a future is not polled after its end");
                Poll::Ready(Ok(response.map(ResponseBody::refusal)))
            }
        }
    }
}

impl Waiting {
    /// Settles the costs that the response says, and adds the headers.
    fn finish<R>(self, response: Response<R>) -> Response<ResponseBody<R>> {
        let Self { shared, applied, admitted } = self;
        let Admitted { holds, late, reported, now } = admitted;
        let (mut head, body) = response.into_parts();
        let ending = Ending::begin(&shared, holds, &late, &head);
        if let Some((index, usage)) = reported {
            let usage: Usage = settled_usage(&shared, &late, index).unwrap_or(usage);
            let reported = Reported { limit: &shared.limits[index], usage, policies: &applied.policies, now };
            reported.add(shared.families, &mut head.headers);
        }
        Response::from_parts(head, ResponseBody::service(body, ending))
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
