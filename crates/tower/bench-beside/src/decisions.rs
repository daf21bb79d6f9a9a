//! A decision without a service.

use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;

use governor::DefaultKeyedRateLimiter;
use sluicegate_counters::{Ask, CountedLimit, Counters, Fingerprint, KeySecret, decide_send};
use sluicegate_limiter::{Quota, Rate, Span, TokenBucket};
use sluicegate_tower::{Clock, SystemClock};

use crate::{BURST, Contestant, PERIOD};

pub struct Counted {
    limit: Arc<CountedLimit>,
    secret: KeySecret,
    clock: SystemClock,
}

impl Counted {
    pub fn new() -> Self {
        let rate = Rate::new(1, Span::from(PERIOD)).expect("a rate");
        let bucket = TokenBucket::new(rate, BURST.into()).expect("a bucket");
        let quota = Quota::TokenBucket(bucket, rate, BURST.into());
        let limit = CountedLimit::new("per-client", quota, Arc::new(Counters::new(&quota, 10_000_000)));
        Self { limit: Arc::new(limit), secret: KeySecret::default(), clock: SystemClock::start() }
    }
}

impl Contestant for Counted {
    fn decide(&mut self, client: SocketAddr) -> bool {
        let key = Fingerprint::from_hash(self.secret.hash_one(client.ip()));
        decide_send(&[Ask::new(&self.limit, key, 1, self.clock.now())], false).admitted
    }
}

pub struct Governed(DefaultKeyedRateLimiter<IpAddr>);

impl Governed {
    pub fn new() -> Self {
        let quota = governor::Quota::with_period(PERIOD).expect("a quota");
        Self(DefaultKeyedRateLimiter::keyed(quota.allow_burst(NonZeroU32::new(BURST).expect("a burst"))))
    }
}

impl Contestant for Governed {
    fn decide(&mut self, client: SocketAddr) -> bool {
        self.0.check_key(&client.ip()).is_ok()
    }
}
