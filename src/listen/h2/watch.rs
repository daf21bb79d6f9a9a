//! What the frames of a client may cost (RFC 9113 §10.5). HTTP/2 lets a client send frames that ask for work and
//! carry nothing. Each kind of them has a budget: so many at once, so many more each second, and more for what was
//! really done on the connection. Whoever spends one to its end is cut off.

use super::frame::{Head, Reason, kind};
use crate::observe::Cut;

/// What may be sent of one kind of frame.
struct Allowance {
    /// At once, on a connection that did nothing yet.
    floor: u32,
    /// Each second, until there is as much as that again.
    per_second: u32,
    /// What is earned beyond it adds up to this.
    most: u32,
}

const fn allow(floor: u32, per_second: u32, most: u32) -> Allowance {
    Allowance { floor, per_second, most }
}

/// By [`Cut`]; docs/configuration.md tells users of them.
const ALLOWED: [Allowance; 9] = [
    allow(40, 10, 200), // resets: one is earned by each answer, and by each second that a request was let run
    allow(30, 2, 1_000), // errors: eight by each body that was not read to its end, which may be under way
    allow(20, 1, 20),   // settings
    allow(40, 10, 1_000), // pings: one by each frame of an answer, for clients that measure the path
    allow(40, 2, 40),   // empty data
    allow(20, 1, 20),   // large heads
    allow(50, 5, 500),  // priorities: two by each request
    allow(60, 10, 5_000), // window updates: ten by each frame of data, four by each request
    allow(40, 5, 200),  // others: one by each request
];

/// Frames within a second for requests that are over: what a client may have sent before it could know.
const STRAYS: u32 = 2_000;
/// And for each that is reset: a window's worth in small frames.
const STRAYS_OF_ONE: u32 = 64;

/// Errors with which streams are reset for what the client did (RFC 9113 §7). The others are those of early answers and of
/// upstreams.
const BLAMED: [Reason; 6] = [
    Reason::PROTOCOL_ERROR,
    Reason::FLOW_CONTROL_ERROR,
    Reason::STREAM_CLOSED,
    Reason::FRAME_SIZE_ERROR,
    Reason::REFUSED_STREAM,
    Reason::COMPRESSION_ERROR,
];

/// Watches the frames of a connection, both ways.
#[derive(Debug)]
pub(super) struct Watch {
    left: [u32; ALLOWED.len()],
    /// When they were filled up last: the worker's milliseconds.
    filled: u64,
    /// Streams that were opened since then.
    opened: u32,
    /// Frames since then for requests that are over.
    strays: u32,
    cut: Option<Cut>,
}

impl Watch {
    /// Nothing has come yet.
    pub(super) fn new(now: u64) -> Self {
        Self {
            left: std::array::from_fn(|at| ALLOWED[at].floor),
            filled: now,
            opened: 0,
            strays: 0,
            cut: None,
        }
    }

    /// Why the connection is to be cut off, if it is.
    pub(super) fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// Fills the budgets up with the time that has passed.
    pub(super) fn fill(&mut self, now: u64) {
        let seconds = u32::try_from(now.saturating_sub(self.filled) / 1_000).unwrap_or(u32::MAX);
        if seconds == 0 {
            return;
        }
        self.filled = now;
        self.strays = 0;
        for (left, allowed) in self.left.iter_mut().zip(&ALLOWED) {
            if *left < allowed.floor {
                *left = allowed.floor.min(left.saturating_add(seconds.saturating_mul(allowed.per_second)));
            }
        }
        let opened = std::mem::take(&mut self.opened);
        self.earn(Cut::Resets, opened);
    }

    fn spend(&mut self, cut: Cut) {
        match self.left[cut as usize].checked_sub(1) {
            Some(left) => self.left[cut as usize] = left,
            None => self.cut = self.cut.or(Some(cut)),
        }
    }

    fn earn(&mut self, cut: Cut, more: u32) {
        let left = &mut self.left[cut as usize];
        *left = left.saturating_add(more).min(ALLOWED[cut as usize].most);
    }

    /// Looks at a frame that the client sent.
    pub(super) fn received(&mut self, frame: &Head) {
        match frame.kind {
            // Those without data cost something, which is known when their padding is.
            kind::DATA | kind::HEADERS => {}
            kind::CONTINUATION if frame.length == 0 => self.spend(Cut::Errors),
            kind::CONTINUATION => {}
            kind::PRIORITY | kind::PRIORITY_UPDATE => self.spend(Cut::Priorities),
            kind::RST_STREAM => self.spend(Cut::Resets),
            kind::SETTINGS => self.spend(Cut::Settings),
            kind::PING => self.spend(Cut::Pings),
            kind::WINDOW_UPDATE => self.spend(Cut::WindowUpdates),
            _ => self.spend(Cut::Others),
        }
    }

    /// A frame of data had none in it and ended nothing.
    pub(super) fn empty_data(&mut self) {
        self.spend(Cut::EmptyData);
    }

    /// A request came, whose frame is `empty` if nothing is in it.
    pub(super) fn opened(&mut self, empty: bool) {
        self.opened += 1;
        self.earn(Cut::Priorities, 2);
        self.earn(Cut::WindowUpdates, 4);
        self.earn(Cut::Others, 1);
        if empty {
            self.spend(Cut::Errors); // a request of nothing is none
        }
    }

    /// Something came for a request that is over: at first the client cannot know that.
    pub(super) fn stray(&mut self) {
        self.strays += 1;
        if self.strays > STRAYS {
            self.cut = self.cut.or(Some(Cut::Errors));
        }
    }

    /// A head was too large, however few bytes it was packed in.
    pub(super) fn large_head(&mut self) {
        self.spend(Cut::LargeHeads);
    }

    /// The client was sent data.
    pub(super) fn sent_data(&mut self) {
        self.earn(Cut::Pings, 1);
        self.earn(Cut::WindowUpdates, 10);
    }

    /// The client was sent the head of an answer.
    pub(super) fn sent_head(&mut self) {
        self.earn(Cut::Resets, 1);
        self.earn(Cut::Pings, 1);
    }

    /// A stream of the client was reset.
    pub(super) fn sent_reset(&mut self, reason: Reason) {
        self.strays = self.strays.saturating_sub(STRAYS_OF_ONE);
        if BLAMED.contains(&reason) {
            self.spend(Cut::Errors);
        } else {
            self.earn(Cut::Errors, 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8) -> Head {
        Head { length: 8, kind, flags: 0, stream: 1 }
    }

    /// How many of these are taken before the connection is cut off.
    fn taken(watch: &mut Watch, kind: u8, now: u64) -> usize {
        let mut taken = 0;
        loop {
            watch.fill(now);
            watch.received(&frame(kind));
            if watch.cut.take().is_some() {
                return taken;
            }
            taken += 1;
        }
    }

    #[test]
    fn a_budget_fills_up_with_time() {
        let mut watch = Watch::new(0);
        assert_eq!(taken(&mut watch, kind::PING, 0), 40);
        assert_eq!(taken(&mut watch, kind::PING, 999), 0);
        assert_eq!(taken(&mut watch, kind::PING, 1_000), 10);
        assert_eq!(taken(&mut watch, kind::PING, 3_500), 20);
        assert_eq!(taken(&mut watch, kind::PING, 1_000_000), 40, "no more than at the start");
        assert_eq!(taken(&mut watch, kind::SETTINGS, 1_000_000), 20, "each has its own");
    }

    #[test]
    fn what_was_done_is_earned() {
        let mut watch = Watch::new(0);
        for _ in 0..5 {
            watch.sent_data();
        }
        assert_eq!(taken(&mut watch, kind::WINDOW_UPDATE, 0), 60 + 50);
        for _ in 0..10_000 {
            watch.sent_data();
        }
        assert_eq!(taken(&mut watch, kind::WINDOW_UPDATE, 0), 5_000);
        watch.sent_head();
        assert_eq!(taken(&mut watch, kind::RST_STREAM, 0), 40 + 1);
        for _ in 0..10 {
            watch.opened(false);
        }
        assert_eq!(taken(&mut watch, kind::RST_STREAM, 1_000), 10 + 10, "for requests that were let run");
    }

    #[test]
    fn what_comes_for_requests_that_are_over_has_a_bound() {
        let mut watch = Watch::new(0);
        for _ in 0..1_000 {
            watch.sent_reset(Reason::NO_ERROR);
            (0..STRAYS_OF_ONE).for_each(|_| watch.stray());
        }
        assert_eq!(watch.cut(), None, "they cannot know yet");
        (0..STRAYS).for_each(|_| watch.stray());
        assert_eq!(watch.cut(), Some(Cut::Errors));
    }

    #[test]
    fn only_resets_for_mistakes_are_errors() {
        let mut watch = Watch::new(0);
        for _ in 0..100 {
            watch.sent_reset(Reason::NO_ERROR);
            watch.sent_reset(Reason::INTERNAL_ERROR);
            watch.sent_reset(Reason::CANCEL);
        }
        assert_eq!(watch.cut(), None);
        let mut mistakes = 0;
        while watch.cut().is_none() {
            watch.sent_reset(Reason::PROTOCOL_ERROR);
            mistakes += 1;
        }
        assert_eq!((mistakes, watch.cut()), (1_000 + 1, Some(Cut::Errors)));
    }
}
