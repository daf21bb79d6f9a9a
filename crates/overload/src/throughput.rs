//! The throughput of an upstream that is kept busy, and how much of its change from window to window is chance.

/// The completed requests that tell a throughput to [`ERROR`]: at least and at most.
const COMPLETIONS: (f64, f64) = (50.0, 400.0);
/// The relative standard deviation of a throughput that was measured well enough for a probe.
const ERROR: f64 = 0.15;
/// The dispersion before it is known: that of service times that differ more than exponential ones.
const INITIAL: f64 = 3.0;
/// A larger dispersion than this comes from a change of the upstream.
const LARGEST: f64 = 20.0;
/// The part of a new value in the smoothed dispersion.
const WEIGHT: f64 = 0.1;

/// What successive windows tell, in all of which the upstream was kept busy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throughput {
    /// Requests per second, smoothed over as many as are needed; 0 while unknown.
    smoothed: f64,
    /// The requests per second of the last window, and its length in seconds.
    last: Option<(f64, f64)>,
    /// The variance of the number of requests that end in a time, divided by its mean. While the upstream is busy, that is the squared
    /// coefficient of variation of its service times (renewal theory).
    dispersion: f64,
}

impl Throughput {
    pub(crate) const fn new() -> Self {
        Self { smoothed: 0.0, last: None, dispersion: INITIAL }
    }

    /// Requests per second.
    pub(crate) fn get(&self) -> f64 {
        self.smoothed
    }

    /// How many requests a window needs, so that its throughput is not chance.
    pub(crate) fn completions(&self) -> f64 {
        (self.dispersion / (ERROR * ERROR)).clamp(COMPLETIONS.0, COMPLETIONS.1)
    }

    /// In a window of so many seconds, so many requests have ended.
    pub(crate) fn add(&mut self, completed: u64, seconds: f64) {
        let found = completed as f64 / seconds;
        let part = (completed as f64 / self.completions()).min(1.0);
        self.smoothed =
            if self.smoothed == 0.0 { found } else { self.smoothed + (found - self.smoothed) * part };
        if let Some((before, length)) = self.last.replace((found, seconds)) {
            let mean = f64::midpoint(before, found);
            let dispersion = (found - before).powi(2) / (mean * (1.0 / length + 1.0 / seconds));
            self.dispersion += (dispersion.min(LARGEST) - self.dispersion) * WEIGHT;
        }
    }

    /// The upstream was not kept busy, or not all of it: the next window is not compared with the last one.
    pub(crate) fn interrupt(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispersion_is_found_from_windows() {
        let mut steady = Throughput::new();
        (0..60).for_each(|_| steady.add(200, 1.0));
        assert_eq!((steady.get(), steady.completions()), (200.0, 50.0));
        // Windows that differ by two standard deviations of a Poisson process and more.
        let mut uneven = Throughput::new();
        (0..60).for_each(|at| uneven.add([160, 240][at % 2], 1.0));
        assert!((uneven.dispersion - 16.0).abs() < 0.1, "{uneven:?}");
        assert_eq!(uneven.completions(), 400.0);
        // A change of the upstream is no dispersion.
        steady.add(3_200, 1.0);
        assert!(steady.dispersion < 2.1, "{steady:?}");
        assert_eq!(steady.get(), 3_200.0);
    }
}
