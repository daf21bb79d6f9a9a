//! The tokens of one key that a gateway has paid for. All of its threads take from them without a lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_limiter::{Receipt, Span, Time};

use crate::Terms;

/// For how long tokens may be spent after they were asked for.
pub(crate) const LIFE: Span = Span::from_millis(500);
/// A lease is for the requests of this time.
pub const HOLD: Span = Span::from_millis(50);
/// When a lease, or its window, ends so soon, workers take out no tokens: those would be lost.
const NEARLY_OVER: Span = Span::from_millis(50);
/// The time over which demand is measured at least.
const MEASURED: Span = Span::from_millis(10);
/// For how long the store is not asked when it has little left.
const PAUSE: Span = Span::from_millis(10);
/// The part, as a divisor, by which two clocks may differ in their speed: 244 millionths.
const DRIFT: u64 = 4_096;
/// More tokens are asked for when those that are left last for two calls and this.
const SPARE: Span = Span::MILLISECOND;
/// Nothing is asked for a key that needs fewer tokens.
pub const FEWEST: u64 = 2;
/// The part of what is left in the store, as a divisor, that all gateways together ask for at once.
const GUIDED: u64 = 2;
/// The grants whose charges can be given back. A lease holds the tokens of the last few.
const GRANTS: usize = 8;
/// The bits of the number of tokens in a word; the generation is above them.
const BITS: u32 = 48;
const TOKENS: u64 = (1 << BITS) - 1;

/// The tokens of one key.
#[derive(Debug)]
pub struct Lease {
    /// The tokens, and how often all of them were withdrawn.
    held: AtomicU64,
    /// When they end.
    ends: AtomicU64,
    /// If fewer are left, more are asked for.
    low: AtomicU64,
    /// Whether a call for more is in flight.
    asking: AtomicBool,
    /// What requests asked for since the demand was measured, where there was no token.
    missed: AtomicU64,
    /// Until when the store is not asked again, because it had little left.
    paused: AtomicU64,
    /// What the store had left when it was asked last, and when it has everything again.
    remaining: AtomicU64,
    reset: AtomicU64,
    book: Mutex<Book>,
}

/// What is known about the demand and the last grant. It changes a few times a second.
#[derive(Debug)]
struct Book {
    /// Tokens per second that requests ask for.
    rate: u64,
    /// When the demand was measured last.
    measured: Time,
    /// The tokens at that time and those that were granted since, without those that were withdrawn.
    balance: u64,
    /// How long calls take.
    call: Span,
    /// Whether the last call asked for less than is needed, because the store had little left.
    is_scarce: bool,
    /// The last grants, the newest at the end, without what has been given back.
    grants: VecDeque<Return>,
    /// When the last grant came, and when its charge stops counting in the store.
    granted: Time,
    counted: Time,
    /// The window of the tokens ends then, if they have one.
    window: Time,
    /// The tokens that were spent between the last grant and the last measurement.
    spent: u64,
    /// When a request came last, as far as it was noticed.
    used: Time,
}

/// Tokens that a request has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Of the lease; `None` if they were those of a worker.
    generation: Option<u64>,
    cost: u64,
    /// Whether the caller should ask for more.
    pub ask: bool,
    /// What the key has left, as far as this gateway knows: in the store and here.
    pub remaining: u64,
    /// The time until the store has everything again.
    pub reset: Span,
}

/// What the store has granted.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// The tokens, which were charged.
    pub tokens: u64,
    /// When the call was sent.
    pub sent: Time,
    /// When it was answered.
    pub received: Time,
    /// For how long after the sending the charge counts in the same window; `None` for a bucket.
    pub window: Option<Span>,
    /// What the key had left in the store before the charge.
    pub before: u64,
    /// What it has left after it.
    pub remaining: u64,
    /// The time until it has everything again.
    pub reset: Span,
    /// The receipt of the charge.
    pub receipt: Receipt,
}

/// Tokens that were not spent and go back to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Return {
    /// The tokens.
    pub tokens: u64,
    /// The receipt of their charge.
    pub receipt: Receipt,
}

impl Taken {
    pub(crate) fn of_worker(cost: u64, remaining: u64, reset: Span) -> Self {
        Self { generation: None, cost, ask: false, remaining, reset }
    }

    pub(crate) fn is_of_worker(&self) -> bool {
        self.generation.is_none()
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }
}

impl Lease {
    /// No tokens yet.
    pub fn new(now: Time) -> Self {
        let zero = || AtomicU64::new(0);
        let book = Book {
            rate: 0,
            measured: now,
            balance: 0,
            call: Span::MILLISECOND,
            is_scarce: false,
            grants: VecDeque::with_capacity(GRANTS),
            granted: now,
            counted: now,
            window: now,
            spent: 0,
            used: now,
        };
        Self {
            held: zero(),
            ends: zero(),
            low: zero(),
            asking: AtomicBool::new(false),
            missed: zero(),
            paused: zero(),
            remaining: zero(),
            reset: zero(),
            book: Mutex::new(book),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tokens that are held.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Acquire) & TOKENS
    }

    /// Takes the tokens of a request; `None` if there are not enough.
    #[inline]
    pub fn take(&self, now: Time, cost: u64) -> Option<Taken> {
        self.take_with(now, cost, 0).map(|(taken, ..)| taken)
    }

    /// Takes the tokens of a request, and up to `more` besides. Returns how many these are and until when they may be spent.
    pub(crate) fn take_with(&self, now: Time, cost: u64, more: u64) -> Option<(Taken, u64, Time)> {
        let ends = self.ends.load(Ordering::Acquire);
        if now.as_nanos() >= ends {
            return None;
        }
        let more = if ends - now.as_nanos() > NEARLY_OVER.as_nanos() { more } else { 0 };
        let mut held = self.held.load(Ordering::Acquire);
        let (left, taken_out) = loop {
            let left = (held & TOKENS).checked_sub(cost)?;
            let taken_out = more.min(left / 4); // the others need some, too
            let after = held - cost - taken_out;
            match self.held.compare_exchange_weak(held, after, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break (left - taken_out, taken_out),
                Err(other) => held = other,
            }
        };
        let ask = left < self.low.load(Ordering::Relaxed) && !self.asking.load(Ordering::Relaxed);
        let remaining = self.remaining.load(Ordering::Relaxed) + left + taken_out;
        let reset = Time::from_nanos(self.reset.load(Ordering::Relaxed)).since(now);
        let taken = Taken { generation: Some(held >> BITS), cost, ask, remaining, reset };
        Some((taken, taken_out, Time::from_nanos(ends)))
    }

    /// Gives back what a request has taken and does not use. If the lease has ended meanwhile, the tokens are lost.
    pub fn give_back(&self, taken: &Taken) {
        let same = |held: u64| (Some(held >> BITS) == taken.generation).then(|| held + taken.cost);
        let _ = self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, same);
    }

    /// Puts back tokens that a worker has taken out.
    pub(crate) fn put_back(&self, tokens: u64) {
        self.held.fetch_add(tokens & TOKENS, Ordering::AcqRel);
    }

    /// Counts a request for which there was no token.
    pub fn miss(&self, cost: u64) {
        self.missed.fetch_add(cost, Ordering::Relaxed);
    }

    /// For how long the store is not asked, because it had nothing left a moment ago.
    #[inline]
    pub fn paused(&self, now: Time) -> Option<Span> {
        let left = Time::from_nanos(self.paused.load(Ordering::Relaxed)).since(now);
        (!left.is_zero()).then_some(left)
    }

    /// The store has refused: if many requests come, it is asked again after a while, or after `at_most`, and not for each of
    /// them.
    pub fn pause(&self, now: Time, at_most: Span) {
        let busy = { self.book().rate >= per_second(FEWEST, MEASURED) };
        if busy {
            self.pause_until(now.plus(PAUSE.min(at_most)));
        }
    }

    fn pause_until(&self, until: Time) {
        self.paused.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// How many tokens to ask the store for, if it is time to ask and no call is in flight: then the caller must call
    /// [`granted`](Self::granted) or [`abandon`](Self::abandon). `remaining` is what the store has left.
    /// Tokens that workers may have taken out, `of_workers` at most, count as held.
    pub fn next(
        &self,
        now: Time,
        terms: &Terms,
        gateways: u32,
        (remaining, of_workers): (u64, u64),
    ) -> Option<u64> {
        if self.paused(now).is_some() || self.asking.swap(true, Ordering::AcqRel) {
            return None;
        }
        let mut book = self.book();
        book.measure(now, &self.missed, self.held());
        let target = book.target(now);
        if now >= book.window {
            self.withdraw(&mut book); // nobody can spend them any more
        }
        let held = self.held();
        let most = terms.share(gateways).saturating_sub(of_workers);
        let needed = target.min(most).saturating_sub(held);
        let want = needed.min(remaining / (GUIDED * u64::from(gateways.max(1))));
        book.is_scarce = want < needed;
        drop(book);
        if want < FEWEST {
            self.asking.store(false, Ordering::Release);
            return None;
        }
        Some(want)
    }

    /// The call that [`next`](Self::next) asked for failed.
    pub fn abandon(&self) {
        self.asking.store(false, Ordering::Release);
    }

    /// The store has granted tokens. Returns how much was admitted above the limit since the last grant, as far as that can be
    /// told: tokens that were spent when their charge did not count any more, unless the store had room for them.
    pub fn granted(&self, grant: &Grant, terms: &Terms) -> u64 {
        let mut book = self.book();
        let over = if terms.carries() { book.over(grant, self.held()) } else { 0 };
        book.measure(grant.received, &self.missed, self.held());
        let window = grant.window.map_or(Time::from_nanos(u64::MAX), |left| {
            // The store's clock may be faster than this one.
            grant.sent.plus(left.saturating_sub(Span::from_nanos(left.as_nanos() / DRIFT)))
        });
        // The receipt of a window is its number.
        if grant.window.is_some() && book.grants.back().is_none_or(|last| last.receipt != grant.receipt) {
            self.withdraw(&mut book);
            book.grants.clear();
        }
        book.window = window;
        self.held.fetch_add(grant.tokens & TOKENS, Ordering::AcqRel);
        book.balance += grant.tokens;
        if book.grants.len() == GRANTS {
            book.grants.pop_front();
        }
        book.grants.push_back(Return { tokens: grant.tokens, receipt: grant.receipt });
        book.granted = grant.received;
        book.counted = grant.sent.plus(grant.reset);
        book.spent = 0;
        let took = grant.received.since(grant.sent);
        book.call = Span::from_nanos((book.call.as_nanos() * 3 + took.as_nanos()) / 4);
        let ends = grant.sent.plus(LIFE).min(window);
        self.ends.store(ends.as_nanos(), Ordering::Release);
        self.remaining.store(grant.remaining, Ordering::Relaxed);
        self.reset.store(grant.sent.plus(grant.reset).as_nanos(), Ordering::Relaxed);
        let low = u128::from(book.rate) * u128::from(book.lead().as_nanos()) / 1_000_000_000;
        self.low.store(u64::try_from(low).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
        if book.is_scarce && grant.window.is_none() {
            // When these are spent, the store has little again: to ask for each request would be as many calls as requests.
            // Nothing is lost meanwhile if the bucket is not full before. A window has less each time, and then nothing.
            let wait = PAUSE.min(Span::from_nanos(grant.reset.as_nanos() / 2));
            self.pause_until(grant.received.plus(wait));
        }
        drop(book);
        self.asking.store(false, Ordering::Release);
        over
    }

    /// Withdraws the tokens whose time is over, and those that are not needed any more because fewer requests come. They go
    /// back to the store. Called now and then.
    pub fn reclaim(&self, now: Time) -> Vec<Return> {
        if self.held() == 0 {
            return Vec::new();
        }
        if now.as_nanos() >= self.ends.load(Ordering::Acquire) {
            return self.reclaim_all(now);
        }
        let mut book = self.book();
        book.measure(now, &self.missed, self.held());
        let target = book.target(now);
        let surplus = self.held().saturating_sub(target);
        if surplus <= target.max(FEWEST) {
            return Vec::new();
        }
        // Requests may take tokens meanwhile: then there is less to give back, and it is tried again later.
        let less = |held: u64| ((held & TOKENS) >= surplus + target / 2).then(|| held - surplus);
        if self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_err() {
            return Vec::new();
        }
        book.balance = book.balance.saturating_sub(surplus);
        book.give_back(surplus)
    }

    /// Withdraws all tokens, for a gateway that ends.
    pub fn reclaim_all(&self, now: Time) -> Vec<Return> {
        let mut book = self.book();
        let tokens = self.withdraw(&mut book);
        // A window that is over needs nothing back.
        if now < book.window { book.give_back(tokens) } else { Vec::new() }
    }

    /// Whether no request came for so long. Called now and then.
    pub fn is_unused(&self, now: Time, for_so_long: Span) -> bool {
        let mut book = self.book();
        let held = self.held();
        if self.missed.load(Ordering::Relaxed) > 0 || book.balance != held {
            book.measure(now, &self.missed, held);
            book.used = now;
        }
        held == 0 && now.since(book.used) >= for_so_long
    }

    /// Takes all tokens out; requests that have taken some cannot give them back.
    fn withdraw(&self, book: &mut Book) -> u64 {
        let next = |held: u64| Some(((held >> BITS) + 1) << BITS);
        let before = self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or(0);
        let tokens = before & TOKENS;
        book.balance = book.balance.saturating_sub(tokens);
        tokens
    }
}

impl Book {
    /// Takes so many tokens out of the last grants, as far as these have them. The newest comes first: its charge is the last
    /// in the store, so that giving it back does not move the others.
    fn give_back(&mut self, mut tokens: u64) -> Vec<Return> {
        let mut returns = Vec::new();
        while let Some(last) = self.grants.back_mut().filter(|_| tokens > 0) {
            let part = tokens.min(last.tokens);
            returns.push(Return { tokens: part, receipt: last.receipt });
            (tokens, last.tokens) = (tokens - part, last.tokens - part);
            if last.tokens == 0 {
                self.grants.pop_back();
            }
        }
        returns
    }

    /// The tokens that are needed: for [`HOLD`] and until more have come. Before the end of a window they are fewer, because
    /// what is left then is lost.
    fn target(&self, now: Time) -> u64 {
        let lead = self.lead().as_nanos();
        let span = match self.window.since(now).as_nanos() {
            0 => HOLD.as_nanos() + lead, // the next window has begun
            left => (HOLD.as_nanos().min(left / 4) + lead).min(left),
        };
        let target = u128::from(self.rate) * u128::from(span);
        u64::try_from(target.div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
    }

    /// The time that calls for more tokens need, with some to spare.
    fn lead(&self) -> Span {
        Span::from_nanos(self.call.as_nanos() * 2 + SPARE.as_nanos())
    }

    /// Measures the demand since the last time. It grows fast and falls slowly.
    fn measure(&mut self, now: Time, missed: &AtomicU64, held: u64) {
        let elapsed = now.since(self.measured);
        if elapsed < MEASURED {
            return;
        }
        let spent = self.balance.saturating_sub(held);
        let asked = spent.saturating_add(missed.swap(0, Ordering::Relaxed));
        let rate = per_second(asked, elapsed);
        self.rate = if rate > self.rate { (self.rate + 3 * rate) / 4 } else { (3 * self.rate + rate) / 4 };
        self.measured = now;
        self.spent = self.spent.saturating_add(spent);
        self.balance = held;
    }

    /// The tokens that were spent since the last grant when their charge did not count any more, and for which the store had
    /// no room.
    fn over(&self, grant: &Grant, held: u64) -> u64 {
        let since = grant.sent.since(self.granted).as_nanos();
        let late = grant.sent.since(self.counted).as_nanos().min(since);
        if late == 0 {
            return 0;
        }
        let spent = self.spent.saturating_add(self.balance.saturating_sub(held));
        let late = u128::from(spent) * u128::from(late) / u128::from(since.max(1));
        (late as u64).saturating_sub(grant.before)
    }
}

fn per_second(count: u64, span: Span) -> u64 {
    let rate = u128::from(count) * 1_000_000_000 / u128::from(span.as_nanos().max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}
