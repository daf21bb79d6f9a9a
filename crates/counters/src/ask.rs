//! The question of a request to one limit, and the answer.

use std::sync::Arc;

use sluicegate_limiter::{Refusal, Span, Time, Usage};

use super::fingerprint::{Fingerprint, KeyText};
use super::limit::CountedLimit;

/// The question of a request to one limit: may this key spend this cost?
#[derive(Clone)]
#[non_exhaustive]
pub struct Ask<'a> {
    /// The limit.
    pub limit: &'a Arc<CountedLimit>,
    /// The request's key.
    pub key: Fingerprint,
    /// The cost that is charged now: that of the request, or a reserve until the cost is known.
    pub cost: u64,
    /// The cost of the request itself, without its response.
    pub base: u64,
    /// The time on the clock of this process.
    pub now: Time,
    /// The same time on the clock that counts the limit: that of this process or of a store.
    pub at: Time,
    /// The number of processes that count this limit independently. Each request counts that many times, so that all of them
    /// together stay within the limit.
    pub share: u16,
    /// The calls of the store that it may still admit, while this process decides in its place.
    pub calls: Option<Arc<dyn CallsInFlight>>,
    /// The key in full, for limits that need it.
    pub text: KeyText,
    /// Whether every charge is kept in the holds, so that it can be undone.
    pub for_now: bool,
}

/// The calls of a store that it has not answered.
pub trait CallsInFlight: Send + Sync {
    /// The costs for a key of the limit whose counters have this [`id`](super::Counters::id). It is asked under the lock of the key:
    /// a request whose call has ended, and that is charged here instead, counts once.
    fn costs(&self, counters: u64, key: Fingerprint) -> u64;
}

/// The answer of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// The delay (zero for all but the leaky bucket), or the refusal.
    pub answer: Result<Span, Refusal>,
    /// What the key has left after this request.
    pub usage: Usage,
}

impl<'a> AsRef<Ask<'a>> for Ask<'a> {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<'a> Ask<'a> {
    /// Asks a limit that is counted in this process, at `at`.
    #[inline]
    pub fn new(limit: &'a Arc<CountedLimit>, key: Fingerprint, cost: u64, at: Time) -> Self {
        Self {
            limit,
            key,
            cost,
            base: cost,
            now: at,
            at,
            share: 1,
            calls: None,
            text: KeyText::new(),
            for_now: false,
        }
    }

    /// The same with this cost of the request itself, without its response.
    #[must_use]
    #[inline]
    pub fn with_base(mut self, base: u64) -> Self {
        self.base = base;
        self
    }

    /// The same with the key in full.
    #[must_use]
    #[inline]
    pub fn with_text(mut self, text: KeyText) -> Self {
        self.text = text;
        self
    }

    /// The costs for the key in calls of the store.
    pub(super) fn in_flight(&self) -> u64 {
        self.calls.as_ref().map_or(0, |calls| calls.costs(self.limit.counters.id, self.key))
    }

    /// Asks at `now` instead, because the request has waited. The clock of a store is not considered yet.
    pub fn renew(&mut self, now: Time) {
        (self.now, self.at) = (now, now);
    }

    /// Whether the limit refuses the request at `at` on the clock of the counter, by the known state of the key.
    pub fn refuses_at(&self, at: Time, cost: u64) -> bool {
        self.limit.banned_for(self.key, self.now).is_some()
            || self.limit.refusal(self.key, at, cost).is_some()
    }
}

impl Verdict {
    /// An answer, and what the key has left.
    pub const fn new(answer: Result<Span, Refusal>, usage: Usage) -> Self {
        Self { answer, usage }
    }

    /// The verdict of a limit that was not asked.
    pub fn not_asked(ask: &Ask<'_>) -> Self {
        Self::fresh(ask.limit)
    }

    /// The verdict of a limit for a key that was never seen.
    pub fn fresh(limit: &CountedLimit) -> Self {
        Self { answer: Ok(Span::ZERO), usage: limit.fresh(Time::EPOCH) }
    }
}
