//! The fair shares of a limit or of an upstream, of all workers together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluicegate_config::FairConfig;
use sluicegate_fair_shares::{Shares, Standing};
use sluicegate_limiter::Time;

/// The shares, which outlive reloads.
#[derive(Debug)]
pub struct FairShares {
    config: FairConfig,
    shares: Mutex<Shares>,
    /// Requests that were refused because their consumers were above their shares.
    above: AtomicU64,
}

impl FairShares {
    /// The shares for a configuration: those of `before` if they are the same consumers'.
    pub fn following(config: &FairConfig, before: Option<&Arc<Self>>, now: Time) -> Arc<Self> {
        match before {
            Some(before) if before.config == *config => Arc::clone(before),
            before => {
                let kept = before.filter(|before| before.config.by == config.by);
                let shares = kept.map_or_else(|| Shares::new(now), |before| before.shares().clone());
                let above = AtomicU64::new(before.map_or(0, |before| before.above()));
                Arc::new(Self { config: config.clone(), shares: Mutex::new(shares), above })
            }
        }
    }

    /// Who has a share, and of which weight.
    pub fn config(&self) -> &FairConfig {
        &self.config
    }

    /// The shares themselves.
    pub fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What operators are shown, of a capacity in millionths of a token per second.
    pub fn standing(&self, now: Time, capacity: u64) -> Standing {
        self.shares().look(now, capacity)
    }

    /// Requests that were refused because their consumers were above their shares.
    pub fn above(&self) -> u64 {
        self.above.load(Ordering::Relaxed)
    }

    /// Counts one more.
    pub fn count_above(&self) {
        self.above.fetch_add(1, Ordering::Relaxed);
    }
}
