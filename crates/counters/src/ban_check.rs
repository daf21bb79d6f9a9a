//! The ban of one key during a decision.

use sluicegate_limiter::{Algorithm as _, Span, Time};
use smallvec::SmallVec;

use super::ask::Ask;
use super::ban::{Bans, RemoteBan};
use super::fingerprint::Fingerprint;

/// The ban of a key in one decision.
pub enum BanCheck<'a> {
    /// The limit bans nobody.
    None,
    /// It is counted in this process. If the flag is false, the key shares the overflow entry, and its refusals do not
    /// count towards a ban.
    Here(&'a Bans, Fingerprint, bool),
    /// It is counted in a store.
    There(RemoteBan),
}

/// The bans of a decision's limits, in the order of its asks.
pub(super) type BanChecks<'a> = SmallVec<[BanCheck<'a>; 2]>;

impl<'a> BanCheck<'a> {
    /// The ban of a key that is counted in this process. `alone`: the key does not share the overflow entry.
    pub(super) fn here(ask: &'a Ask<'_>, alone: bool) -> Self {
        ask.limit.bans.as_deref().map_or(Self::None, |bans| Self::Here(bans, ask.key, alone))
    }

    /// The ban of a key that a store counts.
    pub fn there(remote: Option<RemoteBan>) -> Self {
        remote.map_or(Self::None, Self::There)
    }

    /// The rest of the ban.
    pub(super) fn left(&self, now: Time) -> Option<Span> {
        match self {
            Self::None => None,
            Self::Here(bans, key, _) => bans.left(*key, now),
            Self::There(remote) => remote.ban.left(&remote.strikes, now),
        }
    }

    /// Counts a refusal. Returns the length of the ban if one begins.
    pub(super) fn refused(&mut self, now: Time) -> Option<Span> {
        match self {
            Self::None => None,
            Self::Here(bans, key, alone) => alone.then(|| bans.refused(*key, now)).flatten(),
            Self::There(remote) => {
                remote.ban.refused(&mut remote.strikes, now, 1);
                let began = remote.ban.left(&remote.strikes, now);
                remote.begun |= began.is_some();
                began
            }
        }
    }
}
