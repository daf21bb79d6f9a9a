//! How much too much there is for the gateway itself, and who is refused then.

use crate::Priority;

/// A pressure of one: even critical requests are refused.
pub const FULL: u32 = 1_000_000;

/// The pressure of a resource of which so much is used, in millionths: 0 up to `from`, [`FULL`] from `to` on.
pub fn pressure(used: f64, from: f64, to: f64) -> u32 {
    let part = (used - from) / (to - from).max(f64::MIN_POSITIVE);
    (part.clamp(0.0, 1.0) * f64::from(FULL)).round() as u32
}

/// Whether a request is refused under a pressure in millionths. Sheddable requests are refused the more often the nearer it is to a
/// half, and all of them above; default requests between a half and one; critical ones at one.
pub fn is_refused(pressure: u32, priority: Priority, random: u64) -> bool {
    let half = FULL / 2;
    let part = match priority {
        Priority::Sheddable => pressure.saturating_mul(2),
        Priority::Default => pressure.saturating_sub(half).saturating_mul(2),
        Priority::Critical => return pressure >= FULL,
    };
    random % u64::from(FULL) < u64::from(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_between_two_bounds() {
        let found = [0.0, 0.85, 0.9, 0.95, 2.0].map(|used| pressure(used, 0.85, 0.95));
        assert_eq!(found, [0, 0, FULL / 2, FULL, FULL]);
        assert_eq!(pressure(3.0, 2.0, 2.0), FULL);
    }

    #[test]
    fn the_least_important_are_refused_first() {
        let refused = |percent: u32, priority| {
            (0..1_000).filter(|random| is_refused(percent * 10_000, priority, random * 1_000)).count()
        };
        for (percent, expected) in [
            (0, [0, 0, 0]),
            (25, [0, 0, 500]),
            (50, [0, 0, 1_000]),
            (75, [0, 500, 1_000]),
            (99, [0, 980, 1_000]),
        ] {
            let found =
                [Priority::Critical, Priority::Default, Priority::Sheddable].map(|p| refused(percent, p));
            assert_eq!(found, expected, "{percent} %");
        }
        assert_eq!(refused(100, Priority::Critical), 1_000);
    }
}
