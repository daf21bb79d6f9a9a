//! When a gateway knows how many gateways there are, which divides what each may lease.
//!
//! A gateway announces itself to the store twice a second and learns from the answer how many have done so. It leases only
//! while its last answer is [`FRESH`], and not before [`SETTLED`] after it joined. By then every gateway that still leases has
//! counted it, and leases by the smaller number have ended, so that all shares together are never more than the whole.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use sluicegate_limiter::{Span, Time};

use crate::lease::LIFE;

/// For how long the number of gateways is known, from the sending of the announcement.
pub(crate) const FRESH: Span = Span::from_millis(1_250);
/// How long a gateway waits after it has joined: until older leases have ended, and a quarter of a second for clocks that
/// differ.
const SETTLED: Span = Span::from_millis(1_250 + 500 + 250);
/// After so long without an announcement the others may have forgotten the gateway, which then joins anew. They forget it
/// after five seconds.
const FORGOTTEN: Span = Span::from_secs(4);

/// The number of consecutive announcements, two a second, that must return a smaller number of gateways before it is used.
const CONFIRMATIONS: u32 = 6;

/// What a gateway knows of its announcements, and of the other gateways.
#[derive(Debug)]
pub struct Membership {
    /// The number of live gateways, including this one, as the store returned it last.
    gateways: AtomicU32,
    fewer: Mutex<Fewer>,
    /// When the first announcement was answered that was followed by others without a gap; 0 if there was none.
    joined: AtomicU64,
    /// When the last one that was answered had been sent.
    last: AtomicU64,
}

/// Consecutive numbers of gateways that are smaller than the known one.
#[derive(Debug, Default)]
struct Fewer {
    times: u32,
    /// The largest of them.
    most: u32,
}

impl Membership {
    /// So many gateways are assumed until the store is asked.
    pub fn new(gateways: u32) -> Self {
        Self {
            gateways: AtomicU32::new(gateways),
            fewer: Mutex::default(),
            joined: AtomicU64::new(0),
            last: AtomicU64::new(0),
        }
    }

    /// The number of live gateways.
    pub fn gateways(&self) -> u32 {
        self.gateways.load(Ordering::Acquire)
    }

    /// An announcement that was sent at `sent` was answered by `now`: there are so many gateways. Only one thread announces.
    /// Returns the number if it is another one than before.
    pub fn answered(&self, sent: Time, now: Time, gateways: u32) -> Option<u32> {
        let changed = self.count(Some(gateways));
        self.announced(sent, now);
        changed
    }

    /// An announcement was not answered. Returns the number of gateways if it is another one than before.
    pub fn unanswered(&self) -> Option<u32> {
        self.count(None)
    }

    /// Takes the number of gateways. A smaller number is used after [`CONFIRMATIONS`] announcements: after an outage, in which no
    /// gateway could announce itself, the first one that is back would find itself alone.
    fn count(&self, counted: Option<u32>) -> Option<u32> {
        let known = self.gateways();
        let gateways = {
            let mut fewer = self.fewer.lock().unwrap_or_else(PoisonError::into_inner);
            match counted {
                Some(counted) if counted < known => {
                    fewer.times += 1;
                    fewer.most = fewer.most.max(counted).max(1);
                }
                _ => *fewer = Fewer::default(),
            }
            match counted {
                Some(counted) if counted > known => counted,
                _ if fewer.times >= CONFIRMATIONS => std::mem::take(&mut *fewer).most,
                _ => return None,
            }
        };
        self.gateways.store(gateways, Ordering::Release);
        Some(gateways)
    }

    fn announced(&self, sent: Time, now: Time) {
        let last = Time::from_nanos(self.last.swap(sent.as_nanos(), Ordering::AcqRel));
        if self.joined.load(Ordering::Acquire) == 0 || now.since(last) >= FORGOTTEN {
            self.joined.store(now.as_nanos(), Ordering::Release);
        }
    }

    /// Whether tokens may be leased at `now`.
    pub fn may_lease(&self, now: Time) -> bool {
        let [joined, last] =
            [&self.joined, &self.last].map(|time| Time::from_nanos(time.load(Ordering::Acquire)));
        joined != Time::EPOCH && now.since(joined) >= SETTLED && now.since(last) < FRESH
    }
}

const _: () = assert!(SETTLED.as_nanos() > FRESH.as_nanos() + LIFE.as_nanos());

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(1_795_000_000_000_000_000).plus(Span::from_millis(millis))
    }

    #[test]
    fn a_gateway_leases_when_all_others_know_it() {
        let membership = Membership::new(1);
        assert!(!membership.may_lease(at(0)));
        for beat in 0..5 {
            membership.answered(at(500 * beat), at(500 * beat + 10), 1);
            assert_eq!(membership.may_lease(at(500 * beat + 11)), beat >= 4, "{beat}");
        }
        assert!(membership.may_lease(at(2_010)), "two seconds after the first answer");
        assert!(
            membership.may_lease(at(3_249)) && !membership.may_lease(at(3_250)),
            "the last answer is old"
        );
        membership.answered(at(4_000), at(4_010), 1);
        assert!(membership.may_lease(at(4_010)), "nobody has forgotten it");
        membership.answered(at(9_000), at(9_010), 1);
        assert!(!membership.may_lease(at(9_010)), "it has to join anew");
        membership.answered(at(10_500), at(10_510), 1);
        assert!(membership.may_lease(at(11_010)));
    }
}
