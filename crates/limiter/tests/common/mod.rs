//! What the property tests share: random limits, random walks through time, and one key of any algorithm.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

pub mod checks;
pub mod model;
pub mod walk;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use sluicegate_limiter::{
    Algorithm, Charge, Concurrency, FixedWindow, LeakyBucket, MAX_LOG_PLACES, Rate, Receipt, Refusal,
    SlidingLog, SlidingWindow, Span, Time, TokenBucket, Usage,
};

/// 2026-01-01 00:00:00 UTC, a whole multiple of every period up to a day that divides a day.
pub const IN_2026: u64 = 1_767_225_600_000_000_000;
/// 2500-01-01 00:00:00 UTC.
pub const IN_2500: u64 = 16_725_225_600_000_000_000;
/// So many cases, or what `PROPTEST_CASES` says. A failing case is kept beside the tests.
pub fn cases(count: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = count;
    }
    config.failure_persistence = Some(Box::new(FileFailurePersistence::Direct("tests/regressions.txt")));
    config
}

/// The numbers from which a limit of every algorithm can be made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub rate: Rate,
    pub burst: u64,
    pub slices: u32,
    pub strict: bool,
    pub max_delay: Option<Span>,
}

impl Plan {
    /// The count of the rate.
    pub fn count(&self) -> u64 {
        self.rate.count()
    }

    /// The nanoseconds of the rate's period.
    pub fn period(&self) -> u64 {
        self.rate.period().as_nanos()
    }

    pub fn token_bucket(&self) -> TokenBucket {
        TokenBucket::new(self.rate, self.burst).unwrap()
    }

    pub fn leaky_bucket(&self) -> LeakyBucket {
        LeakyBucket::new(self.rate, self.burst, self.max_delay).unwrap()
    }

    pub fn fixed_window(&self) -> FixedWindow {
        FixedWindow::new(self.rate)
    }

    /// The rate of a log, which holds fewer places than other limits may count.
    pub fn log_rate(&self) -> Rate {
        Rate::new(self.rate.count().min(MAX_LOG_PLACES), self.rate.period()).unwrap()
    }

    pub fn sliding_log(&self) -> SlidingLog {
        SlidingLog::new(self.log_rate(), false).unwrap()
    }

    pub fn counting_log(&self) -> SlidingLog {
        SlidingLog::new(self.log_rate(), true).unwrap()
    }

    pub fn sliding_window(&self) -> SlidingWindow {
        let window = SlidingWindow::new(self.rate, self.slices).unwrap();
        if self.strict { window.strict() } else { window }
    }

    pub fn concurrency(&self) -> Concurrency {
        Concurrency::new(self.burst).unwrap()
    }

    /// A new key of every algorithm that answers with times.
    pub fn timed_keys(&self) -> Vec<Box<dyn Limit>> {
        vec![
            Key::boxed("token_bucket", Self::token_bucket, self),
            Key::boxed("leaky_bucket", Self::leaky_bucket, self),
            Key::boxed("fixed_window", Self::fixed_window, self),
            Key::boxed("sliding_log", Self::sliding_log, self),
            Key::boxed("sliding_log that counts the rejected", Self::counting_log, self),
            Key::boxed("sliding_window", Self::sliding_window, self),
        ]
    }

    /// A new key of every algorithm.
    pub fn keys(&self) -> Vec<Box<dyn Limit>> {
        let mut keys = self.timed_keys();
        keys.push(Key::boxed("concurrency", Self::concurrency, self));
        keys
    }
}

/// One key of some algorithm, together with its limit.
pub trait Limit {
    fn name(&self) -> &'static str;
    fn check(&self, now: Time, cost: u64) -> Result<Span, Refusal>;
    fn charge(&mut self, now: Time, cost: u64) -> Receipt;
    fn refused(&mut self, now: Time, cost: u64);
    fn refund(&mut self, now: Time, cost: u64, receipt: Receipt);
    fn settle(&mut self, now: Time, cost: u64);
    /// What a charge of `cost` put into the state.
    fn charged(&self, cost: u64, receipt: Receipt) -> Charge;
    fn take_back(&mut self, now: Time, charge: Charge, others: &mut [Charge]);
    /// Makes the charges what they will be once the limit has the numbers of another plan.
    fn carry(&self, plan: &Plan, now: Time, charges: &mut [Charge]);
    fn usage(&self, now: Time) -> Usage;
    fn is_idle(&self, now: Time) -> bool;
    /// Puts the state of a key that was never seen in place of this one.
    fn forget(&mut self);
    /// Gives the limit the numbers of another plan and carries the state over.
    fn rescale(&mut self, plan: &Plan, now: Time);
    fn copy(&self) -> Box<dyn Limit>;

    /// A whole request against this limit alone: checked, then charged or noted as refused.
    fn acquire(&mut self, now: Time, cost: u64) -> Result<Span, Refusal> {
        let verdict = self.check(now, cost);
        match verdict {
            Ok(_) => _ = self.charge(now, cost),
            Err(_) => self.refused(now, cost),
        }
        verdict
    }

    /// The largest cost that can ever be admitted.
    fn capacity(&self) -> u64 {
        let mut new = self.copy();
        new.forget();
        let never = |cost| new.check(Time::EPOCH, cost) == Err(Refusal::Never);
        let (mut known, mut beyond) = (0, u64::from(u32::MAX));
        while beyond - known > 1 {
            let middle = known + (beyond - known) / 2;
            if never(middle) {
                beyond = middle;
            } else {
                known = middle;
            }
        }
        known
    }
}

/// The generic key: all that the tests do to a limit, they do through the trait `Algorithm`.
pub struct Key<A: Algorithm> {
    name: &'static str,
    make: fn(&Plan) -> A,
    algorithm: A,
    state: A::State,
}

impl<A: Algorithm<State: Clone> + Clone + 'static> Key<A> {
    pub fn boxed(name: &'static str, make: fn(&Plan) -> A, plan: &Plan) -> Box<dyn Limit> {
        Box::new(Self { name, make, algorithm: make(plan), state: A::State::default() })
    }
}

impl<A: Algorithm<State: Clone> + Clone + 'static> Limit for Key<A> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, now: Time, cost: u64) -> Result<Span, Refusal> {
        self.algorithm.check(&self.state, now, cost)
    }

    fn charge(&mut self, now: Time, cost: u64) -> Receipt {
        self.algorithm.charge(&mut self.state, now, cost)
    }

    fn refused(&mut self, now: Time, cost: u64) {
        self.algorithm.refused(&mut self.state, now, cost);
    }

    fn refund(&mut self, now: Time, cost: u64, receipt: Receipt) {
        self.algorithm.refund(&mut self.state, now, cost, receipt);
    }

    fn settle(&mut self, now: Time, cost: u64) {
        self.algorithm.settle(&mut self.state, now, cost);
    }

    fn charged(&self, cost: u64, receipt: Receipt) -> Charge {
        self.algorithm.charged(cost, receipt)
    }

    fn take_back(&mut self, now: Time, charge: Charge, others: &mut [Charge]) {
        self.algorithm.take_back(&mut self.state, now, charge, others);
    }

    fn carry(&self, plan: &Plan, now: Time, charges: &mut [Charge]) {
        (self.make)(plan).carry(&self.algorithm, &self.state, now, charges);
    }

    fn usage(&self, now: Time) -> Usage {
        self.algorithm.usage(&self.state, now)
    }

    fn is_idle(&self, now: Time) -> bool {
        self.algorithm.is_idle(&self.state, now)
    }

    fn forget(&mut self) {
        self.state = A::State::default();
    }

    fn rescale(&mut self, plan: &Plan, now: Time) {
        let algorithm = (self.make)(plan);
        algorithm.rescale(&self.algorithm, &mut self.state, now);
        self.algorithm = algorithm;
    }

    fn copy(&self) -> Box<dyn Limit> {
        Box::new(Self {
            name: self.name,
            make: self.make,
            algorithm: self.algorithm.clone(),
            state: self.state.clone(),
        })
    }
}
