//! Requests with a header that names the client, from a peer that is not a trusted proxy: the commonest mistake behind a load
//! balancer, whose clients then all count as one.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use sluicegate_limiter::{Span, Time};

/// How long no further peer is named after one was.
const PAUSE: Span = Span::from_secs(60);

/// Counts these requests, and says when to name a peer. Workers share it: only requests with such a header come here.
#[derive(Debug, Default)]
pub struct IgnoredForwarded {
    requests: AtomicU64,
    /// When the last one came, in nanoseconds since the epoch.
    last: AtomicU64,
    /// From when on a peer may be named, in nanoseconds since the epoch.
    quiet_until: AtomicU64,
    /// The peer that was named last.
    named: Mutex<Option<IpAddr>>,
}

/// What operators are told of these requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IgnoredStatus {
    /// How many there were.
    pub requests: u64,
    /// The peer that was named last.
    pub peer: IpAddr,
    /// When the last of the requests came.
    pub last: Time,
}

impl IgnoredForwarded {
    /// Counts a request from `peer`. Returns whether to name the peer in the log: once a minute at most.
    #[cold]
    #[inline(never)]
    pub fn count(&self, peer: IpAddr, now: Time) -> bool {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.last.store(now.as_nanos(), Ordering::Relaxed);
        let until = self.quiet_until.load(Ordering::Relaxed);
        let next = now.plus(PAUSE).as_nanos();
        // Of several workers, one names its peer.
        let names = now.as_nanos() >= until
            && self.quiet_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if names {
            *self.named.lock().unwrap_or_else(PoisonError::into_inner) = Some(peer);
        }
        names
    }

    /// How many there were.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// What is known of them; `None` if there were none.
    pub fn status(&self) -> Option<IgnoredStatus> {
        let peer = (*self.named.lock().unwrap_or_else(PoisonError::into_inner))?;
        let last = Time::from_nanos(self.last.load(Ordering::Relaxed));
        Some(IgnoredStatus { requests: self.requests(), peer, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_named_once_a_minute() {
        let ignored = IgnoredForwarded::default();
        assert_eq!(ignored.status(), None);
        let [one, two] = ["10.0.0.1", "10.0.0.2"].map(|peer| peer.parse::<IpAddr>().unwrap());
        let at = |seconds| Time::from_nanos(1_795_000_000_000_000_000).plus(Span::from_secs(seconds));
        assert!(ignored.count(one, at(0)) && !ignored.count(two, at(1)) && !ignored.count(one, at(59)));
        assert_eq!(ignored.status(), Some(IgnoredStatus { requests: 3, peer: one, last: at(59) }));
        assert!(ignored.count(two, at(60)));
        assert_eq!(ignored.status(), Some(IgnoredStatus { requests: 4, peer: two, last: at(60) }));
    }
}
