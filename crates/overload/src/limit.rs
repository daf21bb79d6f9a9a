//! How many requests an upstream may have in flight: a limit that follows its throughput and the time that requests take.
//!
//! The time is that of Little's law, ∫ in flight dt ÷ completed requests, which short requests do not distort as they do a
//! median. It is compared with the time that requests take when nothing waits in the upstream. Delay alone cannot tell a
//! slow upstream from a queue in it, so that time is measured by a probe: the limit is lowered until the throughput falls; only
//! then is nothing waiting. (Gradient limits: Netflix concurrency-limits, Envoy adaptive concurrency; the probe that is checked
//! by throughput: an own simulation.)

use sluicegate_limiter::{Span, Time};

use crate::throughput::Throughput;

/// The bounds of the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The least.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// The time that a request should take at most, if the file says one.
    pub target: Option<Span>,
}

const INITIAL: f64 = 20.0;
/// A window has at least so many completed requests, or is given up after [`LONGEST`]. It has more, up to the second number,
/// where the times of requests differ much: so many that their mean is known to [`ERROR`].
const COMPLETIONS: (f64, f64) = (50.0, 400.0);
const ERROR: f64 = 0.3;
const SHORTEST: f64 = 0.1;
const LONGEST: f64 = 5.0;
/// Requests may take this times as long as when nothing waits in the upstream.
const TOLERANCE: f64 = 1.25;
/// The least and the most by which a window changes the limit.
const GRADIENT: (f64, f64) = (0.7, 1.5);
/// By how much a limit that doubles has to raise the throughput to double again.
const RISES: f64 = 1.5;
/// The seconds between two probes.
const PROBE_EVERY: f64 = 20.0;
/// The seconds between the first two.
const SECOND_PROBE: f64 = 5.0;
/// Two probes that find times within this ratio have measured the same upstream: their mean is less chance than either.
const SIMILAR: f64 = 2.0;
/// The part of the throughput below which a probe has found that nothing waits.
const FALLS: f64 = 0.85;
/// By what a probe lowers the limit each time.
const STEP: f64 = 0.75;
/// After so many windows in which requests took [`ASTRAY`] times as long, the upstream is probably another one than it was.
const WINDOWS_ASTRAY: u32 = 3;
const ASTRAY: f64 = 2.0;
/// A probe that finds requests so many times as slow as the last one did has to find it twice.
const SLOWER: f64 = 1.2;
/// The part of failed requests above which the limit falls.
const FAILING: f64 = 0.05;
/// An upstream was kept busy in a window if the limit was reached, or requests waited, for this part of it.
const FULL: f64 = 0.9;
/// The part of the requests of a window that must be refused for a probe. A probe takes a part of the upstream away for a while; below
/// its capacity that would be why requests are refused.
const SHED: f64 = 0.1;
/// The part of a new window in the base while nothing waits.
const WEIGHT: f64 = 0.1;

/// The limit.
#[derive(Clone, Debug)]
pub struct Limit {
    bounds: Bounds,
    limit: f64,
    /// The seconds that a request takes when nothing waits in the upstream; 0 while unknown.
    base: f64,
    /// The base that the last probe found; until the first one, the lowest that was measured.
    probed_base: f64,
    /// Whether a probe has found the base.
    is_probed: bool,
    phase: Phase,
    window: Window,
    /// The throughput of windows in which the limit was reached.
    busy: Throughput,
    /// The throughput of the last window, and the seconds that its requests took.
    throughput: f64,
    taken: f64,
    /// When the last probe ended, in seconds.
    probed: f64,
    astray: u32,
    /// The requests of a window.
    wanted: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Doubles while the throughput rises.
    Growing,
    Steady,
    /// The limit is being lowered; then it is this again.
    Probing {
        before: f64,
        throughput: f64,
        step: Step,
    },
}

/// Where a step of a probe is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// Requests of before the step are still in flight.
    Settling,
    /// The throughput is measured.
    Measuring,
    /// It has fallen, but requests take longer than they did when nothing waited: that is measured again, for it may be chance.
    Confirming,
}

/// What was measured of requests that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// ∫ in flight dt, in seconds.
    pub busy: f64,
    /// The requests.
    pub completed: u64,
    /// Those of them that were not answered well.
    pub failed: u64,
    /// The requests that were refused, or have waited for too long.
    pub refused: u64,
    /// The seconds that they took.
    pub taken: f64,
    /// The squares of these.
    pub squares: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    begun: f64,
    changed: f64,
    sums: Sums,
    /// The seconds for which the limit was reached, or requests waited.
    full: f64,
}

fn seconds(time: Time) -> f64 {
    time.as_nanos() as f64 / 1e9
}

impl Sums {
    /// The number in flight was this for so many seconds.
    pub(crate) fn lasted(&mut self, seconds: f64, in_flight: u32) {
        self.busy += seconds.max(0.0) * f64::from(in_flight);
    }

    /// A request has ended.
    pub(crate) fn ended(&mut self, took: Span, ok: bool) {
        let took = took.as_nanos() as f64 / 1e9;
        self.taken += took;
        self.squares += took * took;
        self.completed += 1;
        self.failed += u64::from(!ok);
    }

    /// What has come since these sums.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            busy: (self.busy - before.busy).max(0.0),
            completed: self.completed.saturating_sub(before.completed),
            failed: self.failed.saturating_sub(before.failed),
            refused: self.refused.saturating_sub(before.refused),
            taken: (self.taken - before.taken).max(0.0),
            squares: (self.squares - before.squares).max(0.0),
        }
    }

    fn add(&mut self, more: &Self) {
        self.busy += more.busy;
        self.completed += more.completed;
        self.failed += more.failed;
        self.refused += more.refused;
        self.taken += more.taken;
        self.squares += more.squares;
    }
}

impl Window {
    /// The requests that a window needs, if their times differ as they did in this one.
    fn wanted(&self) -> f64 {
        let count = self.sums.completed as f64;
        let mean = self.sums.taken / count;
        let variance = (self.sums.squares / count - mean * mean).max(0.0);
        let relative = variance.sqrt() / mean.max(1e-9);
        (relative / ERROR).powi(2).clamp(COMPLETIONS.0, COMPLETIONS.1)
    }
}

impl Limit {
    /// A limit of 20, or within its bounds.
    pub fn new(bounds: Bounds, now: Time) -> Self {
        let now = seconds(now);
        Self {
            limit: INITIAL.clamp(bounds.min.into(), bounds.max.into()),
            bounds,
            base: 0.0,
            probed_base: 0.0,
            is_probed: false,
            phase: Phase::Growing,
            window: Window { begun: now, changed: now, ..Window::default() },
            busy: Throughput::new(),
            throughput: 0.0,
            taken: 0.0,
            probed: now,
            astray: 0,
            wanted: COMPLETIONS.0,
        }
    }

    /// Other bounds; within them the limit stays.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.set(self.limit);
    }

    /// The number of requests that may be in flight, at least 1.
    pub fn get(&self) -> u32 {
        (self.limit as u32).clamp(self.bounds.min, self.bounds.max).max(1)
    }

    /// Completed requests per second, and the seconds that they took, in the last window.
    pub fn measured(&self) -> (f64, f64) {
        (self.throughput, self.taken)
    }

    /// The number in flight changes at `now`; until then it was this, and `waiting` says whether others waited.
    pub fn changes(&mut self, now: Time, in_flight: u32, waiting: bool) {
        let now = seconds(now);
        let lasted = now - self.window.changed;
        self.window.sums.lasted(lasted, in_flight);
        if waiting || in_flight + 1 >= self.get() {
            self.window.full += lasted.max(0.0);
        }
        self.window.changed = now;
    }

    /// A request has ended after so long, `ok` or not. [`changes`](Self::changes) was called before.
    pub fn completed(&mut self, now: Time, took: Span, ok: bool) {
        self.window.sums.ended(took, ok);
        self.check(seconds(now));
    }

    /// A request is refused.
    pub fn refuses(&mut self) {
        self.window.sums.refused += 1;
    }

    /// Requests that other gateways have measured, too.
    pub(crate) fn add(&mut self, sums: &Sums) {
        self.window.sums.add(sums);
    }

    /// All that was added until now is known; `full` says whether the limit was reached.
    pub(crate) fn look(&mut self, now: Time, full: bool) {
        let now = seconds(now);
        if full {
            self.window.full += now - self.window.changed;
        }
        self.window.changed = now;
        if self.window.sums.completed > 0 {
            self.check(now);
        }
    }

    /// Somebody else runs the limit: this is what it is.
    pub(crate) fn follow(&mut self, limit: f64, base: f64, now: Time) {
        let now = seconds(now);
        self.limit = limit;
        if base > 0.0 {
            (self.base, self.probed_base) = (base, base);
            (self.is_probed, self.phase) = (true, Phase::Steady);
        }
        (self.probed, self.astray) = (now, 0);
        self.window = Window { begun: now, changed: now, ..Window::default() };
    }

    /// The limit and the base, for those that follow.
    pub(crate) fn limit_and_base(&self) -> (f64, f64) {
        (self.limit, self.base)
    }

    fn check(&mut self, now: f64) {
        let elapsed = now - self.window.begun;
        // A probe compares throughputs, and needs as many requests as that takes.
        let wanted = match self.phase {
            Phase::Probing { step: Step::Measuring | Step::Confirming, .. } => {
                self.wanted.max(self.busy.completions())
            }
            _ => self.wanted,
        };
        let enough = self.window.sums.completed as f64 >= wanted
            && elapsed >= SHORTEST.max(2.0 * self.taken.min(LONGEST / 2.0));
        let fallen = match self.phase {
            // So few in this time: the throughput has fallen, and that is all a probe wants to know.
            Phase::Probing { throughput, .. } => elapsed >= wanted / (throughput * FALLS),
            _ => false,
        };
        if enough || fallen || elapsed >= LONGEST {
            let window =
                std::mem::replace(&mut self.window, Window { begun: now, changed: now, ..Window::default() });
            if window.sums.completed as f64 >= COMPLETIONS.0 || fallen {
                self.wanted = window.wanted();
                self.ends(now, &window, elapsed);
            } else if let Phase::Probing { before, .. } = self.phase {
                (self.limit, self.phase, self.probed) = (before, Phase::Steady, now); // too few to tell
            }
        }
    }

    fn ends(&mut self, now: f64, window: &Window, elapsed: f64) {
        let throughput = window.sums.completed as f64 / elapsed;
        let taken = window.sums.busy / window.sums.completed as f64;
        let last = std::mem::replace(&mut self.throughput, throughput);
        self.taken = taken;
        if self.base == 0.0 {
            (self.base, self.probed_base) = (taken, taken);
        }
        let full = window.full >= FULL * elapsed;
        if window.sums.failed as f64 > window.sums.completed as f64 * FAILING {
            self.set(self.limit * 0.8);
            return;
        }
        match self.phase {
            Phase::Steady if full => self.busy.add(window.sums.completed, elapsed),
            _ => self.busy.interrupt(),
        }
        match self.phase {
            Phase::Growing if window.full == 0.0 => {
                self.base = self.base.min(taken);
                self.probed_base = self.base;
            }
            Phase::Growing => {
                if throughput > last * RISES && taken < self.base * ASTRAY {
                    self.set(self.limit * 2.0);
                } else {
                    self.probe(throughput);
                }
            }
            Phase::Steady => self.steady(now, window, taken, full),
            Phase::Probing { before, throughput: full, step } => {
                let falls = throughput < full * FALLS;
                let next = match step {
                    Step::Settling if !falls => Some(Step::Measuring),
                    Step::Settling | Step::Measuring if falls && taken > self.base * SLOWER => {
                        Some(Step::Confirming)
                    }
                    _ => None,
                };
                if let Some(step) = next {
                    self.phase = Phase::Probing { before, throughput: full, step };
                    return;
                }
                if falls || self.limit <= f64::from(self.bounds.min) {
                    self.found(now, taken);
                    // What the upstream handles at once, by Little's law, with some room.
                    let handled = full * taken * TOLERANCE;
                    self.set(before.min(handled.max(self.limit)));
                } else {
                    self.set(self.limit * STEP);
                    self.phase =
                        Phase::Probing { before, throughput: full.max(throughput), step: Step::Settling };
                }
            }
        }
    }

    fn steady(&mut self, now: f64, window: &Window, taken: f64, full: bool) {
        let mean = window.sums.busy / (window.changed - window.begun).max(1e-9);
        if !full && mean < self.limit / 2.0 {
            // Nothing waits here, so probably nothing waits in the upstream. The base follows slowly, because the requests of one window
            // may be short by chance, and not above what a probe has found, because a slow upstream may have a queue.
            self.base += (taken.min(self.probed_base) - self.base) * WEIGHT;
            self.astray = 0;
            return;
        }
        self.astray = if taken > self.base * ASTRAY { self.astray + 1 } else { 0 };
        let refused = window.sums.refused as f64;
        let overloaded = refused >= SHED * (refused + window.sums.completed as f64);
        if full && overloaded && (now - self.probed >= PROBE_EVERY || self.astray >= WINDOWS_ASTRAY) {
            self.probe(self.busy.get());
            return;
        }
        let mut gradient = (TOLERANCE * self.base / taken).clamp(GRADIENT.0, GRADIENT.1);
        if let Some(target) = self.bounds.target {
            gradient = gradient.min((target.as_nanos() as f64 / 1e9 / taken).clamp(GRADIENT.0, GRADIENT.1));
        }
        let next = gradient * self.limit + (gradient * self.limit).sqrt();
        self.set(f64::midpoint(self.limit, next));
    }

    /// A probe has found how long requests take when nothing waits.
    fn found(&mut self, now: f64, taken: f64) {
        let is_similar = (1.0 / SIMILAR..SIMILAR).contains(&(taken / self.base));
        let is_first = !std::mem::replace(&mut self.is_probed, true);
        self.base = if is_first || !is_similar { taken } else { (self.base * taken).sqrt() };
        self.probed_base = self.base;
        // The first probe knew little of the throughput: the next one comes soon.
        self.probed = if is_first { now - PROBE_EVERY + SECOND_PROBE } else { now };
        (self.phase, self.astray) = (Phase::Steady, 0);
    }

    fn probe(&mut self, throughput: f64) {
        self.phase = Phase::Probing { before: self.limit, throughput, step: Step::Settling };
        self.set(self.limit * STEP);
    }

    fn set(&mut self, limit: f64) {
        self.limit = limit.clamp(self.bounds.min.into(), self.bounds.max.into());
    }
}
