//! What the frames of a client may cost (RFC 9113 §10.5). HTTP/2 lets a client send frames that ask for work and
//! carry nothing. Each kind of them has a budget: so many at once, so many more each second, and more for what was
//! really done on the connection. Whoever spends one to its end is aborted.

use std::sync::Arc;

use super::frame::{Head, Reason, kind};
use crate::config::H2Config;
use crate::metrics::AbortReason;

/// Milliseconds within which a request that is taken back was not meant to be answered: no client waits for so short a
/// time. It also covers what is taken back before the gateway has forwarded it, as both then come with one read.
const RAPID: u64 = 20;
/// Requests beyond those that are allowed at once, from a client that has not yet taken in how many that are.
const UNTOLD: u32 = 60;

/// Frames within a second for requests that are over: what a client may have sent before it could know.
const STRAYS: u32 = 2_000;
/// And for each that is reset: a window's worth in small frames.
const STRAYS_OF_ONE: u32 = 64;
/// Kinds of frames that have a budget.
const BUDGETS: usize = AbortReason::Others as usize + 1;

/// Errors with which streams are reset for what the client did (RFC 9113 §7). The others are those of early answers and of
/// upstreams.
const BLAMED: [Reason; 5] = [
    Reason::PROTOCOL_ERROR,
    Reason::FLOW_CONTROL_ERROR,
    Reason::STREAM_CLOSED,
    Reason::FRAME_SIZE_ERROR,
    Reason::COMPRESSION_ERROR,
];

/// Watches the frames of a connection, both ways.
#[derive(Debug)]
pub(super) struct Watch {
    config: Arc<H2Config>,
    left: [u32; BUDGETS],
    /// When something came last: milliseconds.
    now: u64,
    /// When the budgets were filled up last.
    filled: u64,
    /// Frames since then for requests that are over.
    strays: u32,
    /// What is left of [`UNTOLD`]; nothing once the client knows.
    untold: u32,
    abort: Option<AbortReason>,
}

impl Watch {
    /// Nothing has come yet.
    pub(super) fn new(config: Arc<H2Config>, now: u64) -> Self {
        let left = config.budgets.map(|budget| budget.floor);
        Self { config, left, now, filled: now, strays: 0, untold: UNTOLD, abort: None }
    }

    /// Why the connection is to be aborted, if it is. Asked again it says so if a budget was spent once more.
    pub(super) fn take_abort(&mut self) -> Option<AbortReason> {
        let reason = self.abort.take()?;
        if let Some(left) = self.left.get_mut(reason as usize) {
            *left = self.config.budgets[reason as usize].floor;
        }
        self.strays = 0;
        Some(reason)
    }

    /// Now, as of the last read: milliseconds.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Fills the budgets up with the time that has passed.
    pub(super) fn fill(&mut self, now: u64) {
        self.now = now;
        let seconds = u32::try_from(now.saturating_sub(self.filled) / 1_000).unwrap_or(u32::MAX);
        if seconds == 0 {
            return;
        }
        self.filled = now;
        self.strays = 0;
        for (left, allowed) in self.left.iter_mut().zip(&self.config.budgets) {
            if *left < allowed.floor {
                *left = allowed.floor.min(left.saturating_add(seconds.saturating_mul(allowed.per_second)));
            }
        }
    }

    fn spend(&mut self, reason: AbortReason) {
        match self.left[reason as usize].checked_sub(1) {
            Some(left) => self.left[reason as usize] = left,
            None => self.abort = self.abort.or(Some(reason)),
        }
    }

    fn earn(&mut self, reason: AbortReason, more: u32) {
        let left = &mut self.left[reason as usize];
        *left = left.saturating_add(more).min(self.config.budgets[reason as usize].most);
    }

    /// Looks at a frame that the client sent.
    pub(super) fn received(&mut self, frame: &Head) {
        match frame.kind {
            // What these cost is known when they are read.
            kind::DATA | kind::HEADERS | kind::RST_STREAM => {}
            kind::CONTINUATION if frame.length == 0 => self.spend(AbortReason::Errors),
            kind::CONTINUATION => {}
            kind::PRIORITY | kind::PRIORITY_UPDATE => self.spend(AbortReason::Priorities),
            kind::SETTINGS => self.spend(AbortReason::Settings),
            kind::PING => self.spend(AbortReason::Pings),
            kind::WINDOW_UPDATE => self.spend(AbortReason::WindowUpdates),
            _ => self.spend(AbortReason::Others),
        }
    }

    /// A frame of data had none in it and ended nothing.
    pub(super) fn empty_data(&mut self) {
        self.spend(AbortReason::EmptyData);
    }

    /// A request came, whose frame is `empty` if nothing is in it.
    pub(super) fn opened(&mut self, empty: bool) {
        self.earn(AbortReason::Priorities, 2);
        self.earn(AbortReason::WindowUpdates, 4);
        self.earn(AbortReason::Others, 1);
        if empty {
            self.spend(AbortReason::Errors); // a request of nothing is none
        }
    }

    /// The client took back a request that it sent at this time; `None` for one that is over.
    pub(super) fn reset(&mut self, opened: Option<u64>) {
        if opened.is_none_or(|opened| self.now.saturating_sub(opened) < RAPID) {
            self.spend(AbortReason::Resets);
        }
    }

    /// The client has acknowledged the settings of the gateway, of which the number of requests at once is one.
    pub(super) fn told(&mut self) {
        self.untold = 0;
    }

    /// A request was one too many.
    fn refused(&mut self) {
        match self.untold.checked_sub(1) {
            Some(left) => self.untold = left,
            None => self.spend(AbortReason::Errors),
        }
    }

    /// Something came for a request that is over: at first the client cannot know that.
    pub(super) fn stray(&mut self) {
        self.strays += 1;
        if self.strays > STRAYS {
            self.abort = self.abort.or(Some(AbortReason::Errors));
        }
    }

    /// A head was too large, however few bytes it was packed in.
    pub(super) fn large_head(&mut self) {
        self.spend(AbortReason::LargeHeads);
    }

    /// The client was sent data.
    pub(super) fn sent_data(&mut self) {
        self.earn(AbortReason::Pings, 1);
        self.earn(AbortReason::WindowUpdates, 10);
    }

    /// The client was sent the head of an answer.
    pub(super) fn sent_head(&mut self) {
        self.earn(AbortReason::Resets, 1);
        self.earn(AbortReason::Pings, 1);
    }

    /// The client was sent what stands behind the body of an answer.
    pub(super) fn sent_trailers(&mut self) {
        self.earn(AbortReason::Pings, 1);
    }

    /// A stream of the client was reset.
    pub(super) fn sent_reset(&mut self, reason: Reason) {
        self.strays = self.strays.saturating_sub(STRAYS_OF_ONE);
        match reason {
            Reason::REFUSED_STREAM => self.refused(),
            reason if BLAMED.contains(&reason) => self.spend(AbortReason::Errors),
            _ => self.earn(AbortReason::Errors, 8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        Watch::new(Arc::default(), 0)
    }

    fn frame(kind: u8) -> Head {
        Head { length: 8, kind, flags: 0, stream: 1 }
    }

    /// How many of these are taken before the connection is aborted.
    fn taken(watch: &mut Watch, kind: u8, now: u64) -> usize {
        let mut taken = 0;
        loop {
            watch.fill(now);
            watch.received(&frame(kind));
            if watch.abort.take().is_some() {
                return taken;
            }
            taken += 1;
        }
    }

    #[test]
    fn a_budget_fills_up_with_time() {
        let mut watch = watch();
        assert_eq!(taken(&mut watch, kind::PING, 0), 40);
        assert_eq!(taken(&mut watch, kind::PING, 999), 0);
        assert_eq!(taken(&mut watch, kind::PING, 1_000), 10);
        assert_eq!(taken(&mut watch, kind::PING, 3_500), 20);
        assert_eq!(taken(&mut watch, kind::PING, 1_000_000), 40, "no more than at the start");
        assert_eq!(taken(&mut watch, kind::SETTINGS, 1_000_000), 20, "each has its own");
    }

    #[test]
    fn what_was_done_is_earned() {
        let mut watch = watch();
        for _ in 0..5 {
            watch.sent_data();
        }
        assert_eq!(taken(&mut watch, kind::WINDOW_UPDATE, 0), 60 + 50);
        for _ in 0..10_000 {
            watch.sent_data();
        }
        assert_eq!(taken(&mut watch, kind::WINDOW_UPDATE, 0), 5_000);
        watch.sent_head();
        watch.sent_trailers();
        assert_eq!(resets(&mut watch, None), 40 + 1);
        for _ in 0..10_000 {
            watch.sent_head();
        }
        assert_eq!(resets(&mut watch, None), 500);
    }

    /// How many requests that were opened then may be taken back, up to a thousand.
    fn resets(watch: &mut Watch, opened: Option<u64>) -> usize {
        (0..1_000)
            .take_while(|_| {
                watch.reset(opened);
                watch.abort.take().is_none()
            })
            .count()
    }

    #[test]
    fn only_requests_that_were_not_let_run_are_rapid_resets() {
        let mut watch = watch();
        watch.fill(900);
        assert_eq!(resets(&mut watch, Some(900 - RAPID)), 1_000, "whoever waits in vain may leave");
        assert_eq!(resets(&mut watch, Some(900 - RAPID + 1)), 40);
        assert_eq!(resets(&mut watch, Some(900)), 0);
    }

    #[test]
    fn a_client_that_does_not_know_the_bound_may_be_beyond_it() {
        let refused = |watch: &mut Watch| {
            let mut refused = 0;
            while watch.abort.is_none() {
                watch.sent_reset(Reason::REFUSED_STREAM);
                refused += 1;
            }
            refused - 1
        };
        let mut new = watch();
        assert_eq!(refused(&mut new), UNTOLD + 30);
        let mut told = watch();
        told.told();
        assert_eq!(refused(&mut told), 30);
    }

    #[test]
    fn a_budget_can_be_spent_once_more_behind_the_cut() {
        let mut watch = watch();
        let mut spent = || {
            (1..).find(|_| {
                watch.received(&frame(kind::PING));
                watch.take_abort().is_some()
            })
        };
        assert_eq!((spent(), spent()), (Some(41), Some(41)));
    }

    #[test]
    fn what_comes_for_requests_that_are_over_has_a_bound() {
        let mut watch = watch();
        for _ in 0..1_000 {
            watch.sent_reset(Reason::NO_ERROR);
            (0..STRAYS_OF_ONE).for_each(|_| watch.stray());
        }
        assert_eq!(watch.abort, None, "they cannot know yet");
        (0..STRAYS).for_each(|_| watch.stray());
        assert_eq!(watch.abort, Some(AbortReason::Errors));
    }

    #[test]
    fn only_resets_for_mistakes_are_errors() {
        let mut watch = watch();
        for _ in 0..100 {
            watch.sent_reset(Reason::NO_ERROR);
            watch.sent_reset(Reason::INTERNAL_ERROR);
            watch.sent_reset(Reason::CANCEL);
        }
        assert_eq!(watch.abort, None);
        let mut mistakes = 0;
        while watch.abort.is_none() {
            watch.sent_reset(Reason::PROTOCOL_ERROR);
            mistakes += 1;
        }
        assert_eq!((mistakes, watch.abort), (1_000 + 1, Some(AbortReason::Errors)));
    }
}
