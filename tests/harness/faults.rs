//! Random faults: reproducible random numbers, and by how much admitted requests exceed a limit.

use std::ops::Range;
use std::time::Duration;

use super::load::Sample;

/// A generator of numbers (SplitMix64).
pub struct Random(u64);

impl Random {
    /// The seed is `SLUICEGATE_SEED`, or this one.
    pub fn seeded(usual: u64) -> Self {
        let seed = setting("SLUICEGATE_SEED").unwrap_or(usual);
        println!("SLUICEGATE_SEED={seed}");
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    /// A time in this range, uniform on a logarithmic scale.
    pub fn time(&mut self, millis: Range<u64>) -> Duration {
        let [from, to] = [millis.start, millis.end].map(|millis| (millis.max(1) as f64).ln());
        let part = (self.number() >> 11) as f64 / (1_u64 << 53) as f64;
        Duration::from_secs_f64((from + part * (to - from)).exp() / 1_000.0)
    }
}

/// A number from the environment, which makes a test run for longer.
pub fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a whole number: {text}")))
}

/// The bound of a token bucket: in any time, at most its capacity and what the rate adds in that time.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    pub capacity: f64,
    pub per_second: f64,
}

/// The times at which admitted requests were answered, in order, since the first request was sent.
pub struct Admitted(Vec<Duration>);

impl Admitted {
    pub fn of(samples: &[Sample]) -> Self {
        let begun = samples.iter().map(|sample| sample.at).min().unwrap_or_default();
        let admitted = samples.iter().filter(|sample| sample.status == 200);
        let mut times: Vec<_> = admitted.map(|sample| sample.at + sample.took - begun).collect();
        times.sort_unstable();
        Self(times)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// How many were admitted in this time.
    pub fn within(&self, time: Range<Duration>) -> usize {
        let before = |limit: Duration| self.0.partition_point(|at| *at < limit);
        before(time.end) - before(time.start)
    }

    /// The largest ratio of admitted to allowed requests, counted from the beginning.
    pub fn ratio(&self, bucket: Bucket) -> f64 {
        let ratios = self.0.iter().zip(1..).map(|(at, count)| bucket.ratio(count, *at));
        ratios.fold(0.0, f64::max)
    }

    /// The largest ratio of admitted to allowed requests in any interval of this length.
    pub fn ratio_of_stretch(&self, bucket: Bucket, length: Duration) -> f64 {
        let ends = self.0.iter().enumerate().map(|(last, at)| {
            let first = self.0.partition_point(|earlier| *earlier + length < *at);
            bucket.ratio(last + 1 - first, length)
        });
        ends.fold(0.0, f64::max)
    }
}

impl Bucket {
    fn ratio(self, count: usize, time: Duration) -> f64 {
        count as f64 / (self.capacity + self.per_second * time.as_secs_f64())
    }
}
