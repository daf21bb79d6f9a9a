//! When requests arrived, by logs that are written when they end.
//!
//! nginx and Apache write a line when a request has ended, with its time in whole seconds. Taken literally, slow requests would
//! arrive too late, and the requests of one second all at once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sluicegate_limiter::{Span, Time};

use super::trust::counted;
use super::{Request, TimeOf};
use sluicegate_base::named_enum::named_enum;

named_enum! {
    /// What the times of a log are.
    Times {
        /// JSON lines have the time of arrival; lines in the combined format that of the end, if they have a duration.
        Auto = "auto",
        /// The arrival of the request.
        Arrival = "arrival",
        /// The end of the request: it arrived earlier by its duration.
        End = "end",
    }
}

/// The most requests that wait to be sorted.
const MOST: usize = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// A request with its place in the logs.
#[derive(Debug)]
pub struct Item {
    /// The request.
    pub request: Request,
    /// The number of its line.
    pub line: u64,
    /// The index of its file.
    pub file: usize,
}

/// How arrivals are restored.
#[derive(Clone, Copy, Debug)]
pub struct ArrivalSettings {
    /// What the times are.
    pub times: Times,
    /// Whether requests with times in whole seconds are spread over the second.
    pub spread: bool,
    /// How much earlier than a line of the log a request of a later line may have arrived.
    pub window: Span,
}

/// Restores the order in which requests arrived.
#[derive(Debug)]
pub struct Arrivals {
    settings: ArrivalSettings,
    /// Requests with the same time in whole seconds.
    second: Vec<Item>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// The latest time of a line.
    latest: Time,
    /// The arrival of the last request that was passed on.
    passed: Time,
    sequence: u64,
    /// Requests that were spread.
    pub spread: u64,
    /// Requests whose arrival was computed from their duration.
    pub restored: u64,
    /// Requests that came later than the window allows, and count at the latest time seen.
    pub late: u64,
    /// Requests in the combined format that have no duration.
    pub without_duration: u64,
}

#[derive(Debug)]
struct Waiting {
    arrival: Time,
    sequence: u64,
    item: Item,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.arrival, self.sequence).cmp(&(other.arrival, other.sequence))
    }
}

impl Arrivals {
    /// Nothing has arrived yet.
    pub fn new(settings: ArrivalSettings) -> Self {
        Self {
            settings,
            second: Vec::new(),
            waiting: BinaryHeap::new(),
            latest: Time::EPOCH,
            passed: Time::EPOCH,
            sequence: 0,
            spread: 0,
            restored: 0,
            late: 0,
            without_duration: 0,
        }
    }

    /// Takes the next line of the logs, and passes on the requests that no later line can precede.
    ///
    /// # Errors
    /// Those of `next`.
    pub fn push<E>(&mut self, item: Item, next: &mut impl FnMut(Item) -> Result<(), E>) -> Result<(), E> {
        let whole = item.request.time.as_nanos().is_multiple_of(SECOND);
        if !self.settings.spread || !item.request.coarse || !whole {
            self.end_second(next)?;
            return self.sort(item, next);
        }
        if self.second.first().is_some_and(|first| first.request.time != item.request.time)
            || self.second.len() >= MOST
        {
            self.end_second(next)?;
        }
        self.second.push(item);
        Ok(())
    }

    /// Passes on all that is left.
    ///
    /// # Errors
    /// Those of `next`.
    pub fn finish<E>(&mut self, next: &mut impl FnMut(Item) -> Result<(), E>) -> Result<(), E> {
        self.end_second(next)?;
        while let Some(Reverse(waiting)) = self.waiting.pop() {
            self.pass(waiting.item, next)?;
        }
        Ok(())
    }

    /// Spreads the requests of one second evenly.
    fn end_second<E>(&mut self, next: &mut impl FnMut(Item) -> Result<(), E>) -> Result<(), E> {
        let count = self.second.len() as u64;
        if count > 1 {
            self.spread += count;
        }
        let mut items = std::mem::take(&mut self.second);
        for (at, mut item) in (0..).zip(items.drain(..)) {
            item.request.time = item.request.time.plus(Span::from_nanos(SECOND * at / count));
            self.sort(item, next)?;
        }
        self.second = items; // keeps its memory
        Ok(())
    }

    /// Sorts a request by its arrival.
    fn sort<E>(&mut self, mut item: Item, next: &mut impl FnMut(Item) -> Result<(), E>) -> Result<(), E> {
        let ended = match self.settings.times {
            Times::Auto => item.request.time_of == TimeOf::End,
            Times::Arrival => false,
            Times::End => true,
        };
        let duration = item.request.duration.map(|(duration, _)| duration);
        let duration = duration.filter(|duration| ended && !duration.is_zero());
        self.latest = self.latest.max(item.request.time);
        self.without_duration += u64::from(ended && item.request.duration.is_none());
        if let Some(duration) = duration {
            self.restored += 1;
            let nanos = item.request.time.as_nanos().saturating_sub(duration.as_nanos());
            item.request.time = Time::from_nanos(nanos);
        }
        // Without durations nothing has to be sorted, and requests keep the order of the file.
        if duration.is_none() && self.waiting.is_empty() && self.restored == 0 {
            return self.pass(item, next);
        }
        let (arrival, sequence) = (item.request.time, self.sequence);
        self.sequence += 1;
        self.waiting.push(Reverse(Waiting { arrival, sequence, item }));
        let due = |first: &Waiting, latest: Time, window: Span| first.arrival.plus(window) <= latest;
        while self.waiting.len() > MOST
            || self.waiting.peek().is_some_and(|Reverse(first)| due(first, self.latest, self.settings.window))
        {
            let Some(Reverse(first)) = self.waiting.pop() else { break };
            self.pass(first.item, next)?;
        }
        Ok(())
    }

    fn pass<E>(&mut self, item: Item, next: &mut impl FnMut(Item) -> Result<(), E>) -> Result<(), E> {
        self.late += u64::from(self.restored > 0 && item.request.time < self.passed);
        self.passed = self.passed.max(item.request.time);
        next(item)
    }

    /// What was assumed, in sentences.
    pub fn assumptions(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.restored > 0 {
            let seconds = self.settings.window.ceil_secs();
            all.push(format!(
                "{} arrived earlier than their line says, by their duration; they were sorted within {seconds} s",
                counted(self.restored, "request")
            ));
        }
        if self.late > 0 {
            all.push(format!(
                "{} of them arrived even earlier: they count at the latest time seen",
                self.late
            ));
        }
        if self.spread > 0 {
            all.push(format!(
                "the times of {} are whole seconds: they were spread evenly over their second (--spread off takes \
                 them literally)",
                counted(self.spread, "request")
            ));
        }
        if self.without_duration > 0 {
            all.push(format!(
                "{} written when the request ended, without a duration: that time counts as the arrival",
                match self.without_duration {
                    1 => "1 line was".to_owned(),
                    lines => format!("{lines} lines were"),
                }
            ));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::LineParser;
    use super::*;

    fn item(line: u64, time: &str, duration: &str) -> Item {
        let text = format!("192.0.2.1 - - [{time}] \"GET /{line} HTTP/1.1\" 200 1 \"-\" \"-\" {duration}");
        Item { request: LineParser::default().parse(text.as_bytes()).unwrap().unwrap(), line, file: 0 }
    }

    fn passed(settings: ArrivalSettings, items: Vec<Item>) -> (Vec<(u64, u64)>, Arrivals) {
        let mut arrivals = Arrivals::new(settings);
        let mut all = Vec::new();
        let mut next = |item: Item| {
            all.push((item.line, item.request.time.as_nanos() % 60_000_000_000 / 1_000_000));
            Ok::<(), ()>(())
        };
        for item in items {
            arrivals.push(item, &mut next).unwrap();
        }
        arrivals.finish(&mut next).unwrap();
        (all, arrivals)
    }

    const SETTINGS: ArrivalSettings =
        ArrivalSettings { times: Times::Auto, spread: true, window: Span::from_secs(60) };

    #[test]
    fn whole_seconds_are_spread() {
        let at = "10/Oct/2000:13:55:03 +0000";
        let items = || (0..4).map(|line| item(line, at, "")).collect();
        let (all, arrivals) = passed(SETTINGS, items());
        assert_eq!(all, [(0, 3_000), (1, 3_250), (2, 3_500), (3, 3_750)]);
        assert_eq!((arrivals.spread, arrivals.without_duration), (4, 4));
        let (all, _) = passed(ArrivalSettings { spread: false, ..SETTINGS }, items());
        assert_eq!(all, [(0, 3_000), (1, 3_000), (2, 3_000), (3, 3_000)]);
    }

    #[test]
    fn who_arrived_first_is_first() {
        let items = || {
            vec![
                item(1, "10/Oct/2000:13:55:03 +0000", "0.5"),
                item(2, "10/Oct/2000:13:55:04 +0000", "0.1"),
                item(3, "10/Oct/2000:13:55:05 +0000", "4.0"),
            ]
        };
        let (all, arrivals) = passed(SETTINGS, items());
        assert_eq!(all, [(3, 1_000), (1, 2_500), (2, 3_900)]);
        assert_eq!((arrivals.restored, arrivals.late), (3, 0));
        let (all, arrivals) = passed(ArrivalSettings { window: Span::SECOND, ..SETTINGS }, items());
        assert_eq!(all, [(1, 2_500), (3, 1_000), (2, 3_900)], "what is too late is not waited for");
        assert_eq!(arrivals.late, 1);
        let (all, _) = passed(ArrivalSettings { times: Times::Arrival, ..SETTINGS }, items());
        assert_eq!(all, [(1, 3_000), (2, 4_000), (3, 5_000)]);
    }
}
