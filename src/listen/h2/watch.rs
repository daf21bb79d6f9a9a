//! What the frames of a client may cost (RFC 9113 §10.5). HTTP/2 lets a client send frames that ask for work and
//! carry nothing. Each kind of them has a budget: so many at once, so many more each second, and more for what was
//! really done on the connection. Whoever spends one to its end is cut off.

use std::cell::Cell;
use std::rc::Rc;

use super::frames::{Frame, Frames, PREFACE, flag, kind};
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

/// Errors with which streams are reset for what the client did (RFC 9113 §7): PROTOCOL_ERROR, FLOW_CONTROL_ERROR,
/// STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM and COMPRESSION_ERROR. The others are those of early answers and
/// of upstreams.
const BLAMED: [u32; 6] = [1, 3, 5, 6, 7, 9];
/// ENHANCE_YOUR_CALM.
const CALM: u32 = 11;

/// Watches the frames of a connection, both ways.
pub(super) struct Watch {
    received: Frames,
    sent: Frames,
    left: [u32; ALLOWED.len()],
    /// When they were filled up last: the worker's milliseconds.
    filled: u64,
    /// Streams that were opened since then.
    opened: u32,
    /// The highest stream of the client.
    last: u32,
    /// Whether a head is coming that is not whole, and whether it is that of a request.
    head: Option<bool>,
    /// Requests whose heads came whole.
    asked: i64,
    /// Requests that the library passed on.
    begun: Rc<Cell<i64>>,
    /// Both when nothing more had come. The library then passes on what it will before it reads again.
    at_rest: (i64, i64),
    /// Requests that were refused, reset or counted as too large.
    settled: i64,
    /// Whether the client was told that the connection ends, for whatever reason: what it asks then is ignored.
    parting: bool,
    /// Frames that came since the gateway had time to answer them.
    unanswered: u32,
    /// Whether anything came.
    greeted: bool,
    cut: Option<Cut>,
    /// Whether the client was told that the connection ends for its fault.
    told: bool,
}

impl Watch {
    /// Nothing has come yet. `begun` counts the requests that the library passes on.
    pub(super) fn new(begun: Rc<Cell<i64>>, now: u64) -> Self {
        Self {
            received: Frames::after(PREFACE),
            sent: Frames::after(0),
            left: std::array::from_fn(|at| ALLOWED[at].floor),
            filled: now,
            opened: 0,
            last: 0,
            head: None,
            asked: 0,
            begun,
            at_rest: (0, 0),
            settled: 0,
            parting: false,
            unanswered: 0,
            greeted: false,
            cut: None,
            told: false,
        }
    }

    /// Looks at what the client sent.
    pub(super) fn received(&mut self, mut bytes: &[u8], now: u64) {
        self.fill(now);
        self.settle();
        while let Some(frame) = self.received.next(&mut bytes) {
            self.unanswered += 1;
            self.greeted = true;
            self.receive(&frame);
        }
    }

    /// Looks at what the client is sent; says whether that ends the connection for a fault of the client.
    pub(super) fn sent(&mut self, mut bytes: &[u8]) -> bool {
        let told = self.told;
        while let Some(frame) = self.sent.next(&mut bytes) {
            self.send(&frame);
        }
        self.told && !told
    }

    /// Why the connection is to be cut off, if it is.
    pub(super) fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// Whether the client has begun something other than data that it has not finished.
    pub(super) fn unfinished(&self) -> bool {
        self.head.is_some() || self.received.in_other_than_data()
    }

    /// Whether a frame came.
    pub(super) fn greeted(&self) -> bool {
        self.greeted
    }

    /// Whether so much came at once that answers have to go out first.
    pub(super) fn take_breath(&mut self) -> bool {
        self.unanswered > 100 && std::mem::take(&mut self.unanswered) > 0
    }

    /// Nothing more has come for now.
    pub(super) fn rests(&mut self) {
        self.unanswered = 0;
        self.at_rest = (self.asked, self.begun.get());
    }

    /// Heads that the library did not pass on and that were not reset were too large: it answers those by itself, however
    /// few bytes they were packed in.
    fn settle(&mut self) {
        let (asked, begun) = self.at_rest;
        if self.parting || begun != self.begun.get() {
            return;
        }
        while self.cut.is_none() && asked - begun - self.settled > 0 {
            self.settled += 1;
            self.spend(Cut::LargeHeads);
        }
    }

    /// The last frame of the connection, GOAWAY with ENHANCE_YOUR_CALM, if a frame may begin here.
    pub(super) fn farewell(&self) -> Option<[u8; 17]> {
        let [a, b, c, d] = self.last.to_be_bytes();
        let frame = [0, 0, 8, kind::GOAWAY, 0, 0, 0, 0, 0, a, b, c, d, 0, 0, 0, CALM as u8];
        (self.sent.at_boundary() && !self.told).then_some(frame)
    }

    fn fill(&mut self, now: u64) {
        let seconds = u32::try_from(now.saturating_sub(self.filled) / 1_000).unwrap_or(u32::MAX);
        if seconds == 0 {
            return;
        }
        self.filled = now;
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

    fn receive(&mut self, frame: &Frame) {
        match frame.kind {
            kind::DATA if frame.data() == 0 && !frame.has(flag::END_STREAM) => self.spend(Cut::EmptyData),
            kind::DATA => {}
            kind::HEADERS => {
                let request = frame.stream > self.last;
                if request {
                    self.last = frame.stream;
                    self.opened += 1;
                    self.earn(Cut::Priorities, 2);
                    self.earn(Cut::WindowUpdates, 4);
                    self.earn(Cut::Others, 1);
                    if frame.length == 0 {
                        self.spend(Cut::Errors); // a request of nothing is none
                    }
                }
                self.head_goes_on(frame, request);
            }
            kind::CONTINUATION => {
                if frame.length == 0 {
                    self.spend(Cut::Errors);
                }
                self.head_goes_on(frame, self.head.unwrap_or(false));
            }
            kind::PRIORITY | kind::PRIORITY_UPDATE => self.spend(Cut::Priorities),
            kind::RST_STREAM => {
                self.settled += 1;
                self.spend(Cut::Resets);
            }
            kind::SETTINGS => self.spend(Cut::Settings),
            kind::PING => self.spend(Cut::Pings),
            kind::WINDOW_UPDATE => self.spend(Cut::WindowUpdates),
            _ => self.spend(Cut::Others),
        }
    }

    /// A head, or more of one.
    fn head_goes_on(&mut self, frame: &Frame, request: bool) {
        let whole = frame.has(flag::END_HEADERS);
        self.asked += i64::from(whole && request);
        self.head = (!whole).then_some(request);
    }

    fn send(&mut self, frame: &Frame) {
        match frame.kind {
            kind::DATA => {
                self.earn(Cut::Pings, 1);
                self.earn(Cut::WindowUpdates, 10);
            }
            kind::HEADERS => {
                self.earn(Cut::Resets, 1);
                self.earn(Cut::Pings, 1);
            }
            kind::RST_STREAM if BLAMED.contains(&frame.error()) => {
                self.settled += 1;
                self.spend(Cut::Errors);
            }
            kind::RST_STREAM => self.earn(Cut::Errors, 8),
            kind::GOAWAY => {
                self.parting = true;
                self.told |= frame.error() != 0;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        let mut watch = Watch::new(Rc::default(), 0);
        watch.received(&[b'p'; PREFACE as usize], 0);
        watch
    }

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    /// How many of these are taken before the connection is cut off.
    fn taken(watch: &mut Watch, bytes: &[u8], now: u64) -> usize {
        let mut taken = 0;
        loop {
            watch.received(bytes, now);
            if watch.cut.take().is_some() {
                return taken;
            }
            taken += 1;
        }
    }

    #[test]
    fn a_budget_fills_up_with_time() {
        let mut watch = watch();
        let ping = frame(kind::PING, 0, 0, &[0; 8]);
        assert_eq!(taken(&mut watch, &ping, 0), 40);
        assert_eq!(taken(&mut watch, &ping, 999), 0);
        assert_eq!(taken(&mut watch, &ping, 1_000), 10);
        assert_eq!(taken(&mut watch, &ping, 3_500), 20);
        assert_eq!(taken(&mut watch, &ping, 1_000_000), 40, "no more than at the start");
        assert_eq!(taken(&mut watch, &frame(kind::SETTINGS, 0, 0, b""), 1_000_000), 20, "each has its own");
    }

    #[test]
    fn what_was_done_is_earned() {
        let mut watch = watch();
        let update = frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
        for _ in 0..5 {
            watch.sent(&frame(kind::DATA, 0, 1, b"data"));
        }
        assert_eq!(taken(&mut watch, &update, 0), 60 + 50);
        for _ in 0..10_000 {
            watch.sent(&frame(kind::DATA, 0, 1, b"data"));
        }
        assert_eq!(taken(&mut watch, &update, 0), 5_000);
        let reset = frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]);
        watch.sent(&frame(kind::HEADERS, flag::END_HEADERS, 1, b""));
        assert_eq!(taken(&mut watch, &reset, 0), 40 + 1);
        for stream in (1..20).step_by(2) {
            watch.received(&frame(kind::HEADERS, flag::END_HEADERS, stream, b"x"), 0);
        }
        assert_eq!(taken(&mut watch, &reset, 1_000), 10 + 10, "for requests that were let run");
    }

    #[test]
    fn only_resets_for_mistakes_are_errors() {
        let mut watch = watch();
        let reset = |error| frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, error]);
        for _ in 0..100 {
            watch.sent(&reset(0));
            watch.sent(&reset(2));
            watch.sent(&reset(8));
        }
        assert_eq!(watch.cut(), None);
        let mut mistakes = 0;
        while watch.cut().is_none() {
            watch.sent(&reset(1));
            mistakes += 1;
        }
        assert_eq!((mistakes, watch.cut()), (1_000 + 1, Some(Cut::Errors)));
    }

    #[test]
    fn heads_that_are_not_passed_on_were_too_large() {
        let mut watch = watch();
        let head = |stream| frame(kind::HEADERS, flag::END_HEADERS, stream, b"x");
        for stream in (1..200).step_by(2) {
            watch.received(&head(stream), 0);
            watch.rests();
            watch.begun.set(watch.begun.get() + 1);
            watch.received(b"", 0);
            watch.rests();
        }
        assert_eq!((watch.left[Cut::LargeHeads as usize], watch.cut()), (20, None));
        for stream in 201..=222 {
            watch.received(&head(stream), 0);
            watch.rests();
        }
        watch.received(b"", 0);
        assert_eq!(watch.cut(), Some(Cut::LargeHeads));
    }

    #[test]
    fn the_last_word_is_said_between_frames() {
        let mut watch = watch();
        watch.received(&frame(kind::HEADERS, flag::END_HEADERS, 7, b"x"), 0);
        let data = frame(kind::DATA, 0, 1, b"data");
        watch.sent(&data[..10]);
        assert_eq!(watch.farewell(), None);
        watch.sent(&data[10..]);
        assert_eq!(watch.farewell().unwrap()[9..], [0, 0, 0, 7, 0, 0, 0, 11]);
        assert!(watch.sent(&frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 7, 0, 0, 0, 1])), "it was told");
        assert_eq!(watch.farewell(), None, "once");
    }
}
