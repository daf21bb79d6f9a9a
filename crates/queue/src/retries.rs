//! When a message is tried again.

use crate::id::Id;

/// The pause after the first failure, in milliseconds; it doubles with each further one.
const FIRST: u64 = 1_000;
/// The longest pause.
const LONGEST: u64 = 300_000;

/// The longest time, in milliseconds, until a message or a consumer is looked at. A later time was written while the clock was
/// ahead, and counts as past.
pub const LONGEST_WAIT: u64 = 600_000;
const _: () = assert!(LONGEST_WAIT > LONGEST + LONGEST / 4);

/// How often a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// The largest number of attempts, at least 1.
    pub max_attempts: u32,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another attempt, not before this time.
    Again(u64),
    /// None: it is a dead letter.
    Dead,
}

impl Retries {
    /// What follows attempt number `attempt` of a message, from 1, that failed at `now`. The upstream asked for a pause of
    /// `retry_after` milliseconds, if it did.
    ///
    /// The pause is up to a quarter longer, by the name of the message, so that those which failed together do not come back
    /// together.
    pub fn after(self, attempt: u32, id: Id, now: u64, retry_after: Option<u64>) -> Next {
        if attempt >= self.max_attempts {
            return Next::Dead;
        }
        let doubled = FIRST.checked_shl(attempt.saturating_sub(1)).filter(|pause| *pause > 0);
        let pause = doubled.unwrap_or(LONGEST).min(LONGEST);
        let pause = pause.max(retry_after.unwrap_or(0).min(LONGEST));
        let spread = u64::from(id.0[15]) * pause / 4 / 255;
        Next::Again(now.saturating_add(pause + spread))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pauses_double_and_end() {
        let retries = Retries { max_attempts: 5 };
        let after = |attempt| retries.after(attempt, Id([0; 16]), 100, None);
        assert_eq!(after(1), Next::Again(1_100));
        assert_eq!(after(2), Next::Again(2_100));
        assert_eq!(after(4), Next::Again(8_100));
        assert_eq!(after(5), Next::Dead);
        assert_eq!(retries.after(1, Id([0; 16]), 0, Some(20_000)), Next::Again(20_000));
    }

    proptest! {
        #[test]
        fn no_pause_is_shorter_than_the_one_before_or_longer_than_the_longest(
            attempt in 1_u32..1_000, name in any::<[u8; 16]>(), now in any::<u64>(), asked in any::<Option<u64>>(),
        ) {
            let retries = Retries { max_attempts: u32::MAX };
            let Next::Again(due) = retries.after(attempt, Id(name), now, asked) else { panic!("it is dead") };
            let Next::Again(later) = retries.after(attempt + 1, Id(name), now, asked) else { panic!("it is dead") };
            prop_assert!(now.saturating_add(FIRST) <= due && due <= later);
            prop_assert!(later <= now.saturating_add(LONGEST + LONGEST / 4));
        }
    }
}
