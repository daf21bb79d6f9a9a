//! How much of what came lately was refused.

use sluicegate_limiter::Time;

/// An upstream is overloaded if this part of its requests was refused lately, as a divisor.
const OVERLOADED: u64 = 4;
/// And at least so many: a few of a few say nothing.
const AT_LEAST: u64 = 10;

/// The requests that came and those that were refused, in this second and in the last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recent {
    /// Since the Unix epoch.
    second: u64,
    came: [u64; 2],
    refused: [u64; 2],
}

impl Recent {
    pub(crate) fn comes(&mut self, now: Time) {
        self.advance(now);
        self.came[0] += 1;
    }

    pub(crate) fn refuses(&mut self, now: Time) {
        self.advance(now);
        self.refused[0] += 1;
    }

    fn advance(&mut self, now: Time) {
        let second = now.as_nanos() / 1_000_000_000;
        if second <= self.second {
            return;
        }
        let follows = second == self.second + 1;
        let last = |counts: [u64; 2]| if follows { [0, counts[0]] } else { [0, 0] };
        *self = Self { second, came: last(self.came), refused: last(self.refused) };
    }

    /// Whether so many were refused that waiting for longer would help few of them.
    pub(crate) fn is_overloaded(&self) -> bool {
        let [came, refused] = [self.came, self.refused].map(|[this, last]| this + last);
        refused >= AT_LEAST && refused * OVERLOADED >= came
    }

    /// The requests that were refused in a second: this one or the last, whichever had more.
    pub(crate) fn refused_in_a_second(&self) -> u64 {
        self.refused[0].max(self.refused[1])
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::Span;

    use super::*;

    #[test]
    fn a_quarter_that_is_refused_is_overload_until_two_seconds_later() {
        let at = |millis| Time::from_nanos(1_795_000_000_000_000_000).plus(Span::from_millis(millis));
        let mut recent = Recent::default();
        (0..40).for_each(|_| recent.comes(at(100)));
        (0..9).for_each(|_| recent.refuses(at(900)));
        assert!(!recent.is_overloaded());
        recent.refuses(at(900));
        assert!(recent.is_overloaded());
        recent.comes(at(1_000)); // 10 of 41
        assert!(!recent.is_overloaded());
        recent.refuses(at(1_100));
        assert!(recent.is_overloaded());
        assert_eq!(recent.refused_in_a_second(), 10);
        recent.comes(at(3_000));
        assert!(!recent.is_overloaded());
    }
}
