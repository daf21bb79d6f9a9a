//! Counts over time in a bounded number of steps, whatever the span of the logs.

use sluicegate_limiter::Time;

/// The most steps. When more are needed, neighbours are added up and steps become twice as long.
const MOST: usize = 600;

/// `N` counts for each step of time.
#[derive(Clone, Debug)]
pub struct Series<const N: usize> {
    /// The seconds since the epoch at which the first step begins, a multiple of the step.
    from: u64,
    /// The seconds of a step.
    step: u64,
    counts: Vec<[u64; N]>,
}

impl<const N: usize> Default for Series<N> {
    fn default() -> Self {
        Self { from: 0, step: 1, counts: Vec::new() }
    }
}

impl<const N: usize> Series<N> {
    /// Adds `count` to one of the counts at `at`. A time before the first counts in the first step.
    pub fn add(&mut self, at: Time, which: usize, count: u64) {
        let second = at.as_nanos() / 1_000_000_000;
        if self.counts.is_empty() {
            self.from = second;
        }
        let mut place = (second.saturating_sub(self.from) / self.step) as usize;
        while place >= MOST {
            self.halve();
            place = (second.saturating_sub(self.from) / self.step) as usize;
        }
        if place >= self.counts.len() {
            self.counts.resize(place + 1, [0; N]);
        }
        self.counts[place][which] += count;
    }

    fn halve(&mut self) {
        let from = self.from / (self.step * 2) * (self.step * 2);
        let mut halved = vec![[0; N]; self.counts.len() / 2 + 1];
        for (place, counts) in self.counts.iter().enumerate() {
            let second = self.from + place as u64 * self.step;
            let sum = &mut halved[((second - from) / (self.step * 2)) as usize];
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        (self.from, self.step, self.counts) = (from, self.step * 2, halved);
    }

    /// The seconds since the epoch at which the first step begins, and those of a step.
    pub const fn begin_and_step(&self) -> (u64, u64) {
        (self.from, self.step)
    }

    /// One of the counts for each step, in `steps` of `step` seconds from `from` on, which are at least as long as its own.
    pub fn column(&self, which: usize, (from, step, steps): (u64, u64, usize)) -> Vec<u64> {
        let mut all = vec![0; steps];
        for (place, counts) in self.counts.iter().enumerate() {
            let second = self.from + place as u64 * self.step;
            let at = (second.saturating_sub(from) / step) as usize;
            if let Some(last) = steps.checked_sub(1) {
                all[at.min(last)] += counts[which];
            }
        }
        all
    }

    /// The number of steps.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_with_the_span() {
        let mut series = Series::<2>::default();
        for second in 0..86_400_u64 {
            series.add(Time::from_nanos((1_719_850_000 + second) * 1_000_000_000), (second % 2) as usize, 1);
        }
        let (from, step) = series.begin_and_step();
        assert!(series.len() <= MOST && step == 256 && from <= 1_719_850_000, "{} {step}", series.len());
        let column = series.column(0, (from, step, series.len()));
        assert_eq!(column.iter().sum::<u64>(), 43_200);
        assert_eq!(column[5], 128);
        assert_eq!(series.column(1, (from, step * 2, series.len().div_ceil(2)))[3], 256);
    }
}
