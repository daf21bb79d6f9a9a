//! Who enters, who waits, and who is refused.

use std::collections::VecDeque;

use sluicegate_limiter::{Span, Time};

use crate::class::{CLASSES, Class, Priority, SHARES, Share};
use crate::limit::{Bounds, Limit, Sums};
use crate::pool::Report;
use crate::recent::Recent;

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The bounds of the limit; without `adaptive`, the limit is the upper one.
    pub bounds: Bounds,
    /// Whether the limit follows the upstream.
    pub adaptive: bool,
    /// The number of requests that wait, of all priorities together.
    pub queue: usize,
    /// The longest that a critical request waits.
    pub deadline: Span,
    /// The part of the limit that others leave free for critical requests while there are any, in millionths.
    pub reserve: u32,
}

/// What becomes of a request that comes.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    /// It goes to the upstream.
    Enters,
    /// It waits until it is released, or dropped.
    Waits,
    /// It is refused.
    Refused,
}

/// A request that waits. Dropping `who` refuses it.
struct Waiter<W> {
    who: W,
    since: Time,
}

/// The requests of one upstream: those in flight, and those that wait.
pub struct Gate<W> {
    settings: Settings,
    limit: Limit,
    /// What this gateway may have of a limit that several have together; `None` if it follows the upstream alone.
    share: Option<u32>,
    tally: Tally,
    in_flight: u32,
    /// By class: see [`Class::index`].
    waiting: [VecDeque<Waiter<W>>; CLASSES],
    /// Until when others leave the reserve free.
    reserved_until: Time,
    delays: [Delays; CLASSES],
    /// When those that have left were removed last.
    forgot: Time,
    recent: Recent,
}

/// What a gateway tells others before the same upstream.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    sums: Sums,
    /// When the number in flight changed last.
    changed: Time,
    /// The requests that had ended at the last report, and when that was.
    completed: u64,
    reported: Time,
    /// Requests per second between reports, smoothed.
    throughput: f64,
}

/// Whether there is a standing queue: the shortest wait of an interval (CoDel, RFC 8289, in the form of Facebook's folly).
#[derive(Clone, Copy, Debug, Default)]
struct Delays {
    ends: Time,
    least: Option<Span>,
    standing: bool,
}

/// For how long the reserve is kept after a critical request came.
const RESERVED: Span = Span::SECOND;
/// What the deadline is divided by for each priority.
const DIVISORS: [u64; 3] = [1, 2, 5];
/// The same under overload, where most of those that wait for long wait in vain.
const OVERLOADED_DIVISORS: [u64; 3] = [1, 5, 25];
/// The wait that may stand in a queue, and the interval over which it is looked at.
const STANDING: Span = Span::from_millis(5);
const INTERVAL: Span = Span::from_millis(100);
/// Requests of consumers that ask for less than their shares may exceed the limit by this part of it, as a divisor, and by a few more,
/// while others wait that ask for more: these give the places back.
const MORE: u32 = 2;
const A_FEW: u32 = 2;
/// The part of the throughput of a gateway that is kept at each report.
const KEPT: f64 = 0.9;
/// How often those that have left are looked for, if the queue is full.
const FORGET_EVERY: Span = Span::from_millis(10);

impl<W> Gate<W> {
    /// Nothing is in flight.
    pub fn new(settings: Settings, now: Time) -> Self {
        Self {
            settings,
            limit: Limit::new(settings.bounds, now),
            share: None,
            tally: Tally { changed: now, reported: now, ..Tally::default() },
            in_flight: 0,
            waiting: Default::default(),
            reserved_until: Time::EPOCH,
            delays: Default::default(),
            forgot: Time::EPOCH,
            recent: Recent::default(),
        }
    }

    /// Takes other settings; what is in flight and waits stays.
    pub fn reconfigure(&mut self, settings: Settings) {
        self.limit.set_bounds(settings.bounds);
        self.settings = settings;
    }

    /// Removes the limit: all that wait are released by the next [`release`](Self::release).
    pub fn lift(&mut self) {
        self.settings.adaptive = false;
        self.settings.bounds.max = u32::MAX / 4; // with room for a sum
        self.settings.reserve = 0;
        self.recent = Recent::default();
    }

    /// The requests that may be in flight.
    pub fn limit(&self) -> u32 {
        match self.share {
            Some(share) => share,
            None if self.settings.adaptive => self.limit.get(),
            None => self.settings.bounds.max,
        }
    }

    /// The longest that a request of this priority waits.
    pub fn deadline(&self, priority: Priority) -> Span {
        let divisors = if self.recent.is_overloaded() { OVERLOADED_DIVISORS } else { DIVISORS };
        Span::from_nanos(self.settings.deadline.as_nanos() / divisors[priority as usize])
    }

    /// The requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The requests that wait, by priority.
    pub fn waiting(&self) -> [usize; 3] {
        [0, 1, 2].map(|at| self.waiting[at * SHARES..][..SHARES].iter().map(VecDeque::len).sum())
    }

    /// Whether a request of this class may be in flight besides those that are.
    fn has_room(&self, now: Time, class: Class) -> bool {
        let limit = self.limit();
        let kept = match class.priority {
            Priority::Critical => 0,
            _ if now >= self.reserved_until => 0,
            _ => (u64::from(limit) * u64::from(self.settings.reserve) / 1_000_000) as u32,
        };
        let more = if class.share == Share::Modest && self.has_greedy(class.priority) {
            limit / MORE + A_FEW
        } else {
            0
        };
        self.in_flight < ((limit - kept.min(limit)).max(1) + more).min(self.settings.bounds.max.max(1))
    }

    /// Whether requests of this priority wait whose consumers ask for more than their shares.
    fn has_greedy(&self, priority: Priority) -> bool {
        let first = Class::from(priority).index() + 1;
        self.waiting[first..first + SHARES - 1].iter().any(|queue| !queue.is_empty())
    }

    /// A request comes. If it waits, `who` makes what is told when it is released.
    pub fn enter(
        &mut self,
        now: Time,
        class: Class,
        who: impl FnOnce() -> W,
        is_gone: impl Fn(&W) -> bool,
    ) -> Entry {
        self.recent.comes(now);
        if class.priority == Priority::Critical {
            self.reserved_until = now.plus(RESERVED);
        }
        let goes_first = self.waiting[..=class.index()].iter().all(VecDeque::is_empty);
        if goes_first && self.has_room(now, class) {
            self.begins(now);
            return Entry::Enters;
        }
        if self.waiting.iter().map(VecDeque::len).sum::<usize>() >= self.settings.queue {
            self.forget(now, is_gone);
        }
        if self.waiting.iter().map(VecDeque::len).sum::<usize>() >= self.settings.queue {
            // One that is less important makes room.
            let lower = self.waiting[class.index() + 1..].iter_mut().rev().find(|queue| !queue.is_empty());
            let Some(lower) = lower else {
                self.refuses(now);
                return Entry::Refused;
            };
            lower.pop_front();
        }
        let queue = &mut self.waiting[class.index()];
        if queue.is_empty() {
            self.delays[class.index()] = Delays::default(); // no queue has stood until now
        }
        queue.push_back(Waiter { who: who(), since: now });
        Entry::Waits
    }

    /// One that waited has left, or has waited for too long.
    pub fn left(&mut self, now: Time, is_gone: impl Fn(&W) -> bool) {
        // Those that have waited for too long are the oldest, so that the queue is searched for others only.
        for queue in &mut self.waiting {
            while queue.front().is_some_and(|waiter| is_gone(&waiter.who)) {
                queue.pop_front();
            }
        }
        self.forget(now, is_gone);
    }

    /// Removes those that have left, or waited for too long. Not for each request, because the queue may be long.
    fn forget(&mut self, now: Time, is_gone: impl Fn(&W) -> bool) {
        if now.since(self.forgot) < FORGET_EVERY {
            return;
        }
        self.forgot = now;
        for class in Class::all() {
            let deadline = self.deadline(class.priority);
            self.waiting[class.index()]
                .retain(|waiter| now.since(waiter.since) < deadline && !is_gone(&waiter.who));
        }
    }

    fn begins(&mut self, now: Time) {
        self.changes(now);
        self.in_flight += 1;
    }

    /// A request that was in flight has ended: after how long, and whether it was answered well; `None` if that says nothing of
    /// the upstream. `release` tells a request that waits; it returns false if that has left.
    pub fn leave(&mut self, now: Time, ended: Option<(Span, bool)>, release: impl FnMut(W) -> bool) {
        self.changes(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some((took, ok)) = ended {
            self.tally.sums.ended(took, ok);
            if self.share.is_none() {
                self.limit.completed(now, took, ok);
            }
        }
        self.release(now, release);
    }

    /// A request that was in flight gives the upstream nothing to do for now, because its client is slow.
    pub fn pause(&mut self, now: Time, release: impl FnMut(W) -> bool) {
        self.leave(now, None, release);
    }

    /// It goes on, whether there is room or not: the upstream has begun with it.
    pub fn resume(&mut self, now: Time) {
        self.begins(now);
    }

    /// When the reserve is free for others, if it is kept for critical requests now.
    pub fn reserved_until(&self, now: Time) -> Option<Time> {
        (self.settings.reserve > 0 && now < self.reserved_until).then_some(self.reserved_until)
    }

    /// Lets in as many as there is room for.
    pub fn release(&mut self, now: Time, release: impl FnMut(W) -> bool) {
        if !self.waiting.iter().all(VecDeque::is_empty) {
            self.release_waiting(now, release);
        }
    }

    #[inline(never)]
    fn release_waiting(&mut self, now: Time, mut release: impl FnMut(W) -> bool) {
        for class in Class::all() {
            while self.has_room(now, class) {
                let Some(waiter) = self.next(now, class) else { break };
                if release(waiter.who) {
                    self.begins(now);
                }
            }
        }
    }

    /// The next one of a priority that has not waited for too long: the oldest; of sheddable ones the newest, because those who
    /// have waited for long are likely to be gone soon.
    fn next(&mut self, now: Time, class: Class) -> Option<Waiter<W>> {
        let priority = class.priority;
        let deadline = self.deadline(priority);
        // Below the capacity a queue comes from chance and goes by itself. Under overload a standing queue is that of consumers with
        // more than the others, as long as any of them wait.
        let (from, to) = (class.index() + 1, (priority as usize + 1) * SHARES);
        let spared = priority == Priority::Critical
            || !self.recent.is_overloaded()
            || self.waiting[from..to].iter().any(|queue| !queue.is_empty());
        loop {
            let queue = &mut self.waiting[class.index()];
            let waiter = if priority == Priority::Sheddable { queue.pop_back() } else { queue.pop_front() }?;
            let waited = now.since(waiter.since);
            let standing = self.delays[class.index()].stands(now, waited);
            let late = standing && !spared && waited >= Span::from_nanos(STANDING.as_nanos() * 2);
            if waited < deadline && !late {
                return Some(waiter);
            }
        }
    }

    /// A request was refused: counts it. [`enter`](Self::enter) counts those that it refuses.
    pub fn refuses(&mut self, now: Time) {
        self.recent.refuses(now);
        self.tally.sums.refused += 1;
        if self.share.is_none() {
            self.limit.refuses();
        }
    }

    /// The number in flight changes.
    fn changes(&mut self, now: Time) {
        let seconds = now.since(self.tally.changed).as_nanos() as f64 / 1e9;
        self.tally.sums.lasted(seconds, self.in_flight);
        self.tally.changed = now;
        if self.share.is_none() {
            let waiting = self.waiting.iter().any(|queue| !queue.is_empty());
            self.limit.changes(now, self.in_flight, waiting);
        }
    }

    /// What this gateway tells others before the same upstream, with `limit` and `base` of a [`Pool`](crate::Pool).
    pub fn report(&mut self, now: Time, gateway: u64, (limit, base): (f64, f64)) -> Report {
        self.changes(now);
        let elapsed = now.since(self.tally.reported).as_nanos() as f64 / 1e9;
        let completed = self.tally.sums.completed - self.tally.completed;
        if elapsed > 0.0 {
            let now = completed as f64 / elapsed;
            self.tally.throughput = self.tally.throughput * KEPT + now * (1.0 - KEPT);
        }
        (self.tally.completed, self.tally.reported) = (self.tally.sums.completed, now);
        let waiting = self.waiting().into_iter().sum::<usize>();
        Report {
            gateway,
            sums: self.tally.sums,
            in_flight: self.in_flight,
            waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
            limit,
            base,
        }
    }

    /// The bounds of the limit.
    pub fn bounds(&self) -> Bounds {
        self.settings.bounds
    }

    /// Whether the limit is a part of one that several gateways have together.
    pub fn is_pooled(&self) -> bool {
        self.share.is_some()
    }

    /// The limit of this gateway alone, with which a [`Pool`](crate::Pool) begins.
    pub fn own_limit(&self) -> (f64, f64) {
        self.limit.limit_and_base()
    }

    /// What this gateway may have of the limit of all.
    pub fn set_share(&mut self, share: u32) {
        self.share = Some(share);
    }

    /// The gateway follows the upstream alone again: with its part of the limit of all, or all of it if there is nobody else.
    pub fn leave_pool(&mut self, now: Time, (limit, base): (f64, f64), nobody_else: bool) {
        if let Some(share) = self.share.take() {
            self.limit.follow(if nobody_else { limit } else { share.into() }, base, now);
        }
    }

    /// Requests that are answered in a second.
    fn answered(&self) -> f64 {
        match self.share {
            Some(_) => self.tally.throughput,
            None => self.limit.measured().0,
        }
    }

    /// What the upstream does for this gateway, in millionths of a request per second; `None` while that is not known.
    pub fn throughput(&self) -> Option<u64> {
        let throughput = self.answered();
        (throughput > 0.0).then_some((throughput * 1e6) as u64)
    }

    /// The seconds within which those that are refused now should come back: so many that the upstream can serve them
    /// besides the others; 1 to 30.
    pub fn retry_within(&self) -> u64 {
        let throughput = self.answered();
        ((self.recent.refused_in_a_second() as f64 / throughput.max(1.0)).ceil() as u64).clamp(1, 30)
    }
}

impl Delays {
    fn stands(&mut self, now: Time, waited: Span) -> bool {
        if now >= self.ends {
            self.standing = self.least.is_some_and(|least| least > STANDING);
            (self.least, self.ends) = (None, now.plus(INTERVAL));
        }
        self.least = Some(self.least.map_or(waited, |least| least.min(waited)));
        self.standing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_nanos(1_795_000_000_000_000_000);
    const FIXED: Settings = Settings {
        bounds: Bounds { min: 1, max: 10, target: None },
        adaptive: false,
        queue: 100,
        deadline: Span::from_secs(5),
        reserve: 200_000,
    };

    fn at(millis: u64) -> Time {
        START.plus(Span::from_millis(millis))
    }

    fn enter(gate: &mut Gate<u64>, millis: u64, class: Class) -> Entry {
        gate.enter(at(millis), class, || millis, |_| false)
    }

    /// Those that wait for a moment now and then are no standing queue.
    #[test]
    fn a_burst_says_nothing_of_the_next_one() {
        let mut gate = Gate::new(FIXED, START);
        for burst in 0..4 {
            let begin = burst * 5_000;
            let class = Class::from(Priority::Default);
            let entries: Vec<Entry> = (0..13).map(|_| enter(&mut gate, begin, class)).collect();
            assert_eq!(entries.iter().filter(|entry| **entry == Entry::Waits).count(), 3, "burst {burst}");
            let mut released = 0;
            for _ in 0..10 {
                gate.leave(at(begin + 90), Some((Span::from_millis(90), true)), |_| {
                    released += 1;
                    true
                });
            }
            assert_eq!(released, 3, "burst {burst}");
            (0..3).for_each(|_| gate.leave(at(begin + 180), None, |_| true));
        }
    }

    #[test]
    fn consumers_that_ask_for_little_do_not_exceed_the_upper_bound() {
        let mut gate = Gate::new(FIXED, START);
        let greedy = Class { priority: Priority::Default, share: Share::Above };
        (0..20).for_each(|_| _ = enter(&mut gate, 0, greedy));
        (0..20).for_each(|_| _ = enter(&mut gate, 1, Class::from(Priority::Default)));
        assert_eq!(gate.in_flight(), 10);
    }

    #[test]
    fn a_request_that_waits_for_its_client_takes_no_place() {
        let mut gate = Gate::new(FIXED, START);
        (0..11).for_each(|_| _ = enter(&mut gate, 0, Class::from(Priority::Default)));
        gate.pause(at(1), |_| true);
        assert_eq!((gate.in_flight(), gate.waiting()), (10, [0, 0, 0]));
        gate.resume(at(2)); // the upstream has begun with it
        assert_eq!(gate.in_flight(), 11);
        (0..11).for_each(|_| gate.leave(at(3), None, |_| true));
        assert_eq!(gate.in_flight(), 0);
    }

    #[test]
    fn the_reserve_is_free_a_second_after_the_last_critical_request() {
        let mut gate = Gate::new(FIXED, START);
        assert_eq!(enter(&mut gate, 0, Class::from(Priority::Critical)), Entry::Enters);
        gate.leave(at(1), None, |_| true);
        let entries: Vec<Entry> =
            (0..10).map(|_| enter(&mut gate, 2, Class::from(Priority::Default))).collect();
        assert_eq!(entries.iter().filter(|entry| **entry == Entry::Waits).count(), 2);
        assert_eq!(gate.reserved_until(at(2)), Some(at(1_000)));
        gate.release(at(1_000), |_| true);
        assert_eq!((gate.in_flight(), gate.reserved_until(at(1_000))), (10, None));
    }
}
