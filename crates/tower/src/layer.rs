//! The layer, and how it is built.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use sluicegate_counters::KeySecret;

use crate::built::{BuiltLimit, Observer, Shared};
use crate::clock::{Clock, SystemClock};
use crate::error::BuildError;
use crate::families::HeaderFamilies;
use crate::handle::Handle;
use crate::headers::Policies;
use crate::limit::Limit;
use crate::outcome::Outcome;
use crate::refusal::{Refusals, Refused};

/// Limits requests to the services that it wraps.
///
/// All its limits are one decision: a request is admitted only if each of them admits it, and one that is refused is charged to
/// none. Clones of a layer, and the services that it wraps, share their counters.
#[derive(Clone)]
pub struct RateLimitLayer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) applied: Arc<Applied>,
}

/// The limits of a layer that apply to the services behind it.
pub(crate) struct Applied {
    /// Their indexes.
    pub(crate) limits: Vec<usize>,
    pub(crate) policies: Policies,
}

impl Applied {
    fn new(shared: &Shared, limits: Vec<usize>) -> Arc<Self> {
        let policies = Policies::new(limits.iter().map(|index| &shared.limits[*index]));
        Arc::new(Self { limits, policies })
    }
}

impl RateLimitLayer {
    /// A layer with these limits that reads the clock of the system.
    ///
    /// # Errors
    /// The first mistake in the limits.
    pub fn new(limits: impl IntoIterator<Item = Limit>) -> Result<Self, BuildError> {
        Self::builder(limits).build()
    }

    /// A layer with these limits that can be configured further.
    pub fn builder(limits: impl IntoIterator<Item = Limit>) -> Builder {
        Builder {
            limits: limits.into_iter().collect(),
            clock: None,
            families: HeaderFamilies::default(),
            refusals: None,
            observer: None,
        }
    }

    /// A layer with only some of the limits, and with the same counters: for routes that share a limit and have others of their
    /// own.
    ///
    /// # Errors
    /// A name that no limit has.
    pub fn only<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Self, BuildError> {
        let mut limits = Vec::new();
        for name in names {
            let (index, _) =
                self.shared.find(name).ok_or_else(|| BuildError::UnknownLimit(name.to_owned()))?;
            if !limits.contains(&index) {
                limits.push(index);
            }
        }
        if limits.is_empty() {
            return Err(BuildError::NoLimits);
        }
        Ok(Self { shared: Arc::clone(&self.shared), applied: Applied::new(&self.shared, limits) })
    }

    /// Looks at the counters and resets them.
    pub fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.shared))
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.applied.limits.iter().map(|index| self.shared.limits[*index].name());
        f.debug_struct("RateLimitLayer").field("limits", &names.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

/// Configures a layer.
#[must_use]
pub struct Builder {
    limits: Vec<Limit>,
    clock: Option<Box<dyn Clock>>,
    families: HeaderFamilies,
    refusals: Option<Box<Refusals>>,
    observer: Option<Box<Observer>>,
}

impl Builder {
    /// The clock; [`SystemClock`] without it.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Some(Box::new(clock)), ..self }
    }

    /// The families of headers that responses get; all without it.
    pub fn headers(self, families: HeaderFamilies) -> Self {
        Self { families, ..self }
    }

    /// Makes the responses to refused requests; [`Refused::response`] without it. The layer adds the rate limit headers.
    pub fn refusal(self, make: impl Fn(&Refused<'_>) -> Response<Bytes> + Send + Sync + 'static) -> Self {
        Self { refusals: Some(Box::new(make)), ..self }
    }

    /// Is called with the name of each limit and what it did with a request, after the decision: for metrics.
    pub fn observer(self, observe: impl Fn(&str, Outcome) + Send + Sync + 'static) -> Self {
        Self { observer: Some(Box::new(observe)), ..self }
    }

    /// Builds the layer.
    ///
    /// # Errors
    /// The first mistake in the limits.
    pub fn build(self) -> Result<RateLimitLayer, BuildError> {
        let mut limits: Vec<BuiltLimit> = Vec::with_capacity(self.limits.len());
        for limit in self.limits {
            let built = BuiltLimit::new(limit, limits.len())?;
            if limits.iter().any(|other| other.name() == built.name()) {
                return Err(BuildError::SameName(built.name().to_owned()));
            }
            limits.push(built);
        }
        if limits.is_empty() {
            return Err(BuildError::NoLimits);
        }
        let shared = Arc::new(Shared {
            limits,
            secret: KeySecret::default(),
            clock: self.clock.unwrap_or_else(|| Box::new(SystemClock::start())),
            families: self.families,
            refusals: self.refusals,
            observer: self.observer,
        });
        let applied = Applied::new(&shared, (0..shared.limits.len()).collect());
        Ok(RateLimitLayer { shared, applied })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("limits", &self.limits).finish_non_exhaustive()
    }
}
