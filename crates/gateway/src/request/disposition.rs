//! What to do with a request after its limits were evaluated.

use sluicegate_limiter::Span;

use crate::respond::RateLimitHeaders;
use crate::snapshot::Route;
use sluicegate_auth::Identity;
use sluicegate_base::message::LocalResponse;

/// What to do with a request after its limits were evaluated.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub(super) enum Disposition<'s> {
    /// Its limits admit it: the action of its route follows.
    Admitted(Admitted<'s>),
    /// It is answered without the action of its route.
    Answered(LocalResponse),
}

impl<'s> Disposition<'s> {
    /// The admitted request. In an async function, a variable that `match` takes apart keeps its memory until the end of its scope;
    /// the result of this call does not.
    ///
    /// # Errors
    /// The answer, if there is one already.
    #[allow(clippy::result_large_err, reason = "there is one at a time")]
    pub(super) fn admitted(self) -> Result<Admitted<'s>, LocalResponse> {
        match self {
            Self::Admitted(admitted) => Ok(admitted),
            Self::Answered(response) => Err(response),
        }
    }
}

/// A request that its limits admit.
pub(super) struct Admitted<'s> {
    pub(super) route: &'s Route,
    /// The index of the route in the snapshot.
    pub(super) route_index: usize,
    pub(super) identity: Identity<'s>,
    pub(super) normal_path: Option<Box<str>>,
    pub(super) affinity: Option<u64>,
    pub(super) rate_limit_headers: Option<RateLimitHeaders<'s>>,
    pub(super) delay: Span,
}
