//! Random limits, and random walks of requests through time.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use proptest::{bool, option, sample};
use sluicegate_limiter::{MAX_COUNT, MAX_PERIOD, MAX_SLICES, MIN_PERIOD, Rate, Refusal, Span, Time};

use super::{IN_2026, IN_2500, Limit, Plan};

/// Walks come to a stop here (about the year 2343), so that sums of times stay far from the last one that can
/// be told.
const HORIZON: u64 = IN_2026 + 10_000_000_000_000_000_000;
/// No bucket of a random plan needs longer than this to fill or to drain.
const LONGEST_FILL: u64 = 1_500_000_000_000_000_000;

/// How the clock moves before a request.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Stay,
    Nanos(u64),
    /// Thousandths of a period.
    Share(u64),
    /// To the instant at which the last refused request was told to come back, less so many nanoseconds.
    Retry(u64),
    /// To the start of the next sub-window, less so many nanoseconds.
    Boundary(u64),
    /// One period after the last admitted request, less so many nanoseconds.
    Expiry(u64),
    /// Back by thousandths of a period.
    Back(u64),
}

/// One request of a walk: how the clock moves first, and what the request costs.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub step: Step,
    pub cost: u64,
}

/// Requests in a row, from a start.
#[derive(Clone, Debug)]
pub struct Walk {
    pub start: Time,
    /// Costs are multiples of an eighth of the capacity, so that limits of any size run out.
    pub heavy: bool,
    pub asks: Vec<Ask>,
}

/// What became of one request.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub at: Time,
    pub cost: u64,
    pub verdict: Result<Span, Refusal>,
}

impl Walk {
    /// Where a walk through `plan` begins.
    pub fn walker(&self, plan: &Plan) -> Walker {
        Walker {
            now: self.start,
            period: plan.period(),
            slices: u64::from(plan.slices),
            retry: self.start,
            expiry: self.start,
        }
    }

    /// The cost of `ask` for a limit of `capacity`.
    pub fn cost(&self, ask: &Ask, capacity: u64) -> u64 {
        if self.heavy { ask.cost * (capacity / 8).max(1) } else { ask.cost }
    }

    /// Leads `key` through the walk and shows it, with the time and the cost, before every request.
    pub fn lead(
        &self,
        plan: &Plan,
        key: &mut dyn Limit,
        mut before: impl FnMut(&dyn Limit, Time, u64) -> TestCaseResult,
    ) -> Result<Vec<Answer>, TestCaseError> {
        let mut walker = self.walker(plan);
        let mut answers = Vec::new();
        for ask in &self.asks {
            let (at, cost) = (walker.step(ask.step), self.cost(ask, key.capacity()));
            before(key, at, cost)?;
            let verdict = key.acquire(at, cost);
            walker.note(verdict);
            answers.push(Answer { at, cost, verdict });
        }
        Ok(answers)
    }

    /// Leads `key` to the end of the walk and tells what was answered.
    pub fn finish(&self, plan: &Plan, key: &mut dyn Limit) -> Vec<Answer> {
        self.lead(plan, key, |_, _, _| Ok(())).unwrap()
    }
}

/// The clock of a walk.
pub struct Walker {
    now: Time,
    period: u64,
    slices: u64,
    retry: Time,
    expiry: Time,
}

impl Walker {
    /// Moves the clock; it stands where a step would lead back, unless that is what the step is for.
    pub fn step(&mut self, step: Step) -> Time {
        let now = self.now.as_nanos();
        let share = |thousandths| (u128::from(self.period) * u128::from(thousandths) / 1_000) as u64;
        let target = match step {
            Step::Stay => now,
            Step::Nanos(nanos) => now.saturating_add(nanos),
            Step::Share(thousandths) => now.saturating_add(share(thousandths)),
            Step::Retry(less) => self.retry.as_nanos().saturating_sub(less),
            Step::Boundary(less) => self.boundary().saturating_sub(less),
            Step::Expiry(less) => self.expiry.as_nanos().saturating_sub(less),
            Step::Back(thousandths) => {
                self.now = Time::from_nanos(now.saturating_sub(share(thousandths)));
                return self.now;
            }
        };
        self.now = self.now.max(Time::from_nanos(target.min(HORIZON)));
        self.now
    }

    /// Remembers the answer for the steps that aim at it.
    pub fn note(&mut self, verdict: Result<Span, Refusal>) {
        match verdict {
            Ok(_) => self.expiry = self.now.plus(Span::from_nanos(self.period)),
            Err(refusal) => self.retry = self.now.plus(refusal.retry_after().unwrap_or_default()),
        }
    }

    fn boundary(&self) -> u64 {
        let (slices, period) = (u128::from(self.slices), u128::from(self.period));
        let next = u128::from(self.now.as_nanos()) * slices / period + 1;
        u64::try_from((next * period).div_ceil(slices)).unwrap_or(u64::MAX)
    }
}

fn counts() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 1..=12_u64,
        4 => 1..=100_u64,
        2 => (0..500_000_000_u64).prop_map(|n| 2 * n + 1),
        1 => sample::select(vec![1_000, 1_000_000, MAX_COUNT]),
    ]
}

fn periods() -> impl Strategy<Value = Span> {
    let round = [1_u64, 7, 250, 1_000, 15_000, 60_000, 90_000, 3_600_000, 86_400_000, 604_800_000];
    prop_oneof![
        3 => sample::select(round.to_vec()).prop_map(Span::from_millis),
        1 => (1_000_000..20_000_000_u64).prop_map(Span::from_nanos),
        1 => (1_000_000..=MAX_PERIOD.as_nanos()).prop_map(Span::from_nanos),
    ]
}

/// Rates small and large, with periods from a millisecond to a year, many of which do not divide.
pub fn rates() -> impl Strategy<Value = Rate> {
    (counts(), periods()).prop_map(|(count, period)| Rate::new(count, period).unwrap())
}

/// Plans of random rates, bursts, slices and longest delays.
pub fn plans() -> impl Strategy<Value = Plan> {
    let bursts = prop_oneof![6 => 1..=12_u64, 3 => 1..=100_u64, 1 => 1..=1_000_000_000_u64];
    let delays = option::weighted(0.3, 0..=1_200_u64);
    (rates(), bursts, 1..=12_u32, any::<bool>(), delays).prop_map(|(rate, burst, slices, strict, delay)| {
        let longest =
            u128::from(LONGEST_FILL) * u128::from(rate.count()) / u128::from(rate.period().as_nanos());
        let burst = u128::from(burst).min(longest.max(1)) as u64;
        let full = u128::from(burst) * u128::from(rate.period().as_nanos()) / u128::from(rate.count());
        let max_delay = delay.map(|share| Span::from_nanos((full * u128::from(share) / 1_000) as u64));
        Plan { rate, burst, slices, strict, max_delay }
    })
}

fn starts() -> impl Strategy<Value = Time> {
    let day = 0..Span::DAY.as_nanos();
    prop_oneof![
        1 => Just(Time::from_nanos(IN_2026)),
        3 => day.prop_map(|nanos| Time::from_nanos(IN_2026 + nanos)),
    ]
}

fn forward() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Stay),
        1 => (1..=2_000_u64).prop_map(Step::Nanos),
        3 => (0..=300_u64).prop_map(Step::Share),
        1 => (300..=3_000_u64).prop_map(Step::Share),
        3 => (0..=1_u64).prop_map(Step::Retry),
        2 => (0..=1_u64).prop_map(Step::Boundary),
        2 => (0..=1_u64).prop_map(Step::Expiry),
    ]
}

fn walks_of(steps: impl Strategy<Value = Step>) -> impl Strategy<Value = Walk> {
    let asks = vec((steps, 1..=5_u64).prop_map(|(step, cost)| Ask { step, cost }), 1..40);
    (starts(), bool::weighted(0.3), asks).prop_map(|(start, heavy, asks)| Walk { start, heavy, asks })
}

/// Walks on which the time never runs backwards.
pub fn walks() -> impl Strategy<Value = Walk> {
    walks_of(forward())
}

/// Walks on which the clock is now and then set back.
pub fn stumbling_walks() -> impl Strategy<Value = Walk> {
    walks_of(prop_oneof![4 => forward(), 1 => (1..=2_500_u64).prop_map(Step::Back)])
}

/// Plans of the largest and smallest numbers that a configuration may hold.
pub fn extreme_plans() -> impl Strategy<Value = Plan> {
    let counts = sample::select(vec![1, 7, MAX_COUNT - 1, MAX_COUNT]);
    let longest = MAX_PERIOD.as_nanos();
    let periods =
        sample::select(vec![MIN_PERIOD.as_nanos(), MIN_PERIOD.as_nanos() + 1, longest - 1, longest]);
    let delays = sample::select(vec![None, Some(Span::ZERO), Some(MAX_PERIOD), Some(Span::MAX)]);
    let bursts = sample::select(vec![1, 2, MAX_COUNT - 1, MAX_COUNT]);
    (counts, periods, bursts, sample::select(vec![1, 7, MAX_SLICES]), any::<bool>(), delays).prop_map(
        |(count, period, burst, slices, strict, max_delay)| {
            let rate = Rate::new(count, Span::from_nanos(period)).unwrap();
            Plan { rate, burst, slices, strict, max_delay }
        },
    )
}

/// Times in any order, up to the last one after which a whole period can be told, and fourths of the
/// capacity.
pub fn extreme_asks() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let year = 0..MAX_PERIOD.as_nanos();
    let times = prop_oneof![
        4 => sample::select(vec![IN_2026, IN_2500]),
        2 => year.clone().prop_map(|nanos| IN_2026 + nanos),
        4 => year.prop_map(|nanos| IN_2500 + nanos),
        1 => sample::select(vec![0, 1, u64::MAX - MAX_PERIOD.as_nanos() - 1]),
    ];
    vec((times, 0..=4_u64), 1..20)
}
