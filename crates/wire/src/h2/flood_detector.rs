//! Detects floods (RFC 9113 §10.5): HTTP/2 lets a client send frames that cause work and carry nothing. Each kind of such
//! frames has a budget: a number at once, a number per second, and more for useful work on the connection. A client that
//! exhausts a budget is disconnected.

use std::sync::Arc;

use super::frame::{FrameHeader, kind};
use super::reason::Reason;
use super::{AbortReason, BUDGETS, FloodLimits};

/// A request that is cancelled within so many milliseconds was not meant to be answered. This includes requests that arrive
/// in one read together with their cancellation.
const RAPID_RESET: u64 = 20;
/// Refused streams of a client that has not yet acknowledged SETTINGS_MAX_CONCURRENT_STREAMS which do not count as errors.
const REFUSED_BEFORE_ACK: u32 = 60;

/// Frames per second for closed streams: those that a client may have sent before it knew.
const FRAMES_FOR_CLOSED_STREAMS: u32 = 2_000;
/// Further frames for each stream that is reset: a flow-control window in small frames.
const FRAMES_PER_RESET: u32 = 64;

/// Error codes that blame the client (RFC 9113 §7). The other ones are used for early responses and failed upstreams.
const CLIENT_ERRORS: [Reason; 5] = [
    Reason::PROTOCOL_ERROR,
    Reason::FLOW_CONTROL_ERROR,
    Reason::STREAM_CLOSED,
    Reason::FRAME_SIZE_ERROR,
    Reason::COMPRESSION_ERROR,
];

/// Counts the frames of a connection in both directions.
#[derive(Debug)]
pub(super) struct FloodDetector {
    limits: Arc<FloodLimits>,
    left: [u32; BUDGETS],
    /// The time of the last read in milliseconds.
    now: u64,
    /// The time at which the budgets were last filled up, in milliseconds.
    filled: u64,
    /// Frames since then for closed streams.
    for_closed: u32,
    /// What is left of [`REFUSED_BEFORE_ACK`]; zero once the client has acknowledged the settings.
    unacknowledged: u32,
    abort: Option<AbortReason>,
}

impl FloodDetector {
    /// The detector for a new connection; `now` is in milliseconds.
    pub(super) fn new(limits: Arc<FloodLimits>, now: u64) -> Self {
        let left = limits.budgets.map(|budget| budget.floor);
        Self {
            limits,
            left,
            now,
            filled: now,
            for_closed: 0,
            unacknowledged: REFUSED_BEFORE_ACK,
            abort: None,
        }
    }

    /// Why the connection is to be aborted, if a budget was exhausted since the last call.
    pub(super) fn take_abort(&mut self) -> Option<AbortReason> {
        let reason = self.abort.take()?;
        if let Some(left) = self.left.get_mut(reason as usize) {
            *left = self.limits.budgets[reason as usize].floor;
        }
        self.for_closed = 0;
        Some(reason)
    }

    /// The time of the last read in milliseconds.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Fills the budgets up for the time that has passed; `now` is in milliseconds.
    pub(super) fn fill(&mut self, now: u64) {
        self.now = now;
        let seconds = u32::try_from(now.saturating_sub(self.filled) / 1_000).unwrap_or(u32::MAX);
        if seconds == 0 {
            return;
        }
        self.filled = now;
        self.for_closed = 0;
        for (left, allowed) in self.left.iter_mut().zip(&self.limits.budgets) {
            if *left < allowed.floor {
                *left = allowed.floor.min(left.saturating_add(seconds.saturating_mul(allowed.per_second)));
            }
        }
    }

    fn spend(&mut self, kind: AbortReason) {
        match self.left[kind as usize].checked_sub(1) {
            Some(left) => self.left[kind as usize] = left,
            None => self.abort = self.abort.or(Some(kind)),
        }
    }

    fn earn(&mut self, kind: AbortReason, more: u32) {
        let left = &mut self.left[kind as usize];
        *left = left.saturating_add(more).min(self.limits.budgets[kind as usize].most);
    }

    /// A frame of the client arrived.
    pub(super) fn received(&mut self, frame: &FrameHeader) {
        match frame.kind {
            // Counted where their content is known.
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

    /// A DATA frame was empty and did not end its stream.
    pub(super) fn empty_data(&mut self) {
        self.spend(AbortReason::EmptyData);
    }

    /// A stream was opened; `empty` if its HEADERS frame has no payload.
    pub(super) fn opened(&mut self, empty: bool) {
        self.earn(AbortReason::Priorities, 2);
        self.earn(AbortReason::WindowUpdates, 4);
        self.earn(AbortReason::Others, 1);
        if empty {
            self.spend(AbortReason::Errors); // it cannot be a request
        }
    }

    /// The client reset a stream that was opened at this time in milliseconds; `None` if it is closed already.
    pub(super) fn reset(&mut self, opened: Option<u64>) {
        if opened.is_none_or(|opened| self.now.saturating_sub(opened) < RAPID_RESET) {
            self.spend(AbortReason::Resets);
        }
    }

    /// The client acknowledged our SETTINGS.
    pub(super) fn acknowledged(&mut self) {
        self.unacknowledged = 0;
    }

    /// A stream beyond SETTINGS_MAX_CONCURRENT_STREAMS was refused.
    fn refused(&mut self) {
        match self.unacknowledged.checked_sub(1) {
            Some(left) => self.unacknowledged = left,
            None => self.spend(AbortReason::Errors),
        }
    }

    /// A frame for a closed stream arrived: at first the client cannot know that it is closed.
    pub(super) fn for_closed_stream(&mut self) {
        self.for_closed += 1;
        if self.for_closed > FRAMES_FOR_CLOSED_STREAMS {
            self.abort = self.abort.or(Some(AbortReason::Errors));
        }
    }

    /// The header list of a request was too large.
    pub(super) fn large_head(&mut self) {
        self.spend(AbortReason::LargeHeads);
    }

    /// DATA was sent.
    pub(super) fn sent_data(&mut self) {
        self.earn(AbortReason::Pings, 1);
        self.earn(AbortReason::WindowUpdates, 10);
    }

    /// The head of a response was sent.
    pub(super) fn sent_head(&mut self) {
        self.earn(AbortReason::Resets, 1);
        self.earn(AbortReason::Pings, 1);
    }

    /// Trailers were sent.
    pub(super) fn sent_trailers(&mut self) {
        self.earn(AbortReason::Pings, 1);
    }

    /// RST_STREAM was sent.
    pub(super) fn sent_reset(&mut self, reason: Reason) {
        self.for_closed = self.for_closed.saturating_sub(FRAMES_PER_RESET);
        match reason {
            Reason::REFUSED_STREAM => self.refused(),
            reason if CLIENT_ERRORS.contains(&reason) => self.spend(AbortReason::Errors),
            _ => self.earn(AbortReason::Errors, 8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detector() -> FloodDetector {
        FloodDetector::new(Arc::default(), 0)
    }

    fn frame(kind: u8) -> FrameHeader {
        FrameHeader { length: 8, kind, flags: 0, stream: 1 }
    }

    /// How many of these frames are accepted before the connection is aborted.
    fn accepted(detector: &mut FloodDetector, kind: u8, now: u64) -> usize {
        let mut accepted = 0;
        loop {
            detector.fill(now);
            detector.received(&frame(kind));
            if detector.abort.take().is_some() {
                return accepted;
            }
            accepted += 1;
        }
    }

    #[test]
    fn a_budget_fills_up_with_time() {
        let mut detector = detector();
        assert_eq!(accepted(&mut detector, kind::PING, 0), 40);
        assert_eq!(accepted(&mut detector, kind::PING, 999), 0);
        assert_eq!(accepted(&mut detector, kind::PING, 1_000), 10);
        assert_eq!(accepted(&mut detector, kind::PING, 3_500), 20);
        assert_eq!(accepted(&mut detector, kind::PING, 1_000_000), 40, "no more than at the start");
        assert_eq!(accepted(&mut detector, kind::SETTINGS, 1_000_000), 20, "each has its own");
    }

    #[test]
    fn useful_work_earns_frames() {
        let mut detector = detector();
        for _ in 0..5 {
            detector.sent_data();
        }
        assert_eq!(accepted(&mut detector, kind::WINDOW_UPDATE, 0), 60 + 50);
        for _ in 0..10_000 {
            detector.sent_data();
        }
        assert_eq!(accepted(&mut detector, kind::WINDOW_UPDATE, 0), 5_000);
        detector.sent_head();
        detector.sent_trailers();
        assert_eq!(resets(&mut detector, None), 40 + 1);
        for _ in 0..10_000 {
            detector.sent_head();
        }
        assert_eq!(resets(&mut detector, None), 500);
    }

    /// How many requests that were opened at this time may be cancelled, up to a thousand.
    fn resets(detector: &mut FloodDetector, opened: Option<u64>) -> usize {
        (0..1_000)
            .take_while(|_| {
                detector.reset(opened);
                detector.abort.take().is_none()
            })
            .count()
    }

    #[test]
    fn only_early_cancellations_count() {
        let mut detector = detector();
        detector.fill(900);
        assert_eq!(resets(&mut detector, Some(900 - RAPID_RESET)), 1_000, "a client that waited may give up");
        assert_eq!(resets(&mut detector, Some(900 - RAPID_RESET + 1)), 40);
        assert_eq!(resets(&mut detector, Some(900)), 0);
    }

    #[test]
    fn refused_streams_before_the_settings_ack_are_tolerated() {
        let refused = |detector: &mut FloodDetector| {
            let mut refused = 0;
            while detector.abort.is_none() {
                detector.sent_reset(Reason::REFUSED_STREAM);
                refused += 1;
            }
            refused - 1
        };
        let mut new = detector();
        assert_eq!(refused(&mut new), REFUSED_BEFORE_ACK + 30);
        let mut detector = detector();
        detector.acknowledged();
        assert_eq!(refused(&mut detector), 30);
    }

    #[test]
    fn a_budget_starts_again_after_an_abort() {
        let mut detector = detector();
        let mut spent = || {
            (1..).find(|_| {
                detector.received(&frame(kind::PING));
                detector.take_abort().is_some()
            })
        };
        assert_eq!((spent(), spent()), (Some(41), Some(41)));
    }

    #[test]
    fn frames_for_closed_streams_are_bounded() {
        let mut detector = detector();
        for _ in 0..1_000 {
            detector.sent_reset(Reason::NO_ERROR);
            (0..FRAMES_PER_RESET).for_each(|_| detector.for_closed_stream());
        }
        assert_eq!(detector.abort, None, "they cannot know yet");
        (0..FRAMES_FOR_CLOSED_STREAMS).for_each(|_| detector.for_closed_stream());
        assert_eq!(detector.abort, Some(AbortReason::Errors));
    }

    #[test]
    fn only_resets_that_blame_the_client_count() {
        let mut detector = detector();
        for _ in 0..100 {
            detector.sent_reset(Reason::NO_ERROR);
            detector.sent_reset(Reason::INTERNAL_ERROR);
            detector.sent_reset(Reason::CANCEL);
        }
        assert_eq!(detector.abort, None);
        let mut mistakes = 0;
        while detector.abort.is_none() {
            detector.sent_reset(Reason::PROTOCOL_ERROR);
            mistakes += 1;
        }
        assert_eq!((mistakes, detector.abort), (1_000 + 1, Some(AbortReason::Errors)));
    }
}
