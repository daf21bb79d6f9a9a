//! In which order several logs are read: that of their times, whatever the order of their names.

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use sluicegate_limiter::{Span, Time};

use super::logs::{self, STDIN};
use crate::replay::{Known, LineParser};
use sluicegate_base::clock::rfc3339;

/// The lines that are read to find the first time of a file.
const MOST_LINES: usize = 1_000;

/// The logs in the order of their first times. Standard input, pipes and logs without a time keep their places, because they
/// cannot be looked at before they are read, and then nothing is sorted.
pub(super) fn by_time(logs: &[PathBuf], known: &Known) -> Vec<PathBuf> {
    let mut sorted = logs.to_vec();
    let is_file = |log: &PathBuf| log != Path::new(STDIN) && log.is_file();
    if logs.len() < 2 || !logs.iter().all(is_file) {
        return sorted;
    }
    sorted.sort_by_cached_key(|log| first_time(log, known).unwrap_or(Time::from_nanos(u64::MAX)));
    sorted
}

fn first_time(log: &Path, known: &Known) -> Option<Time> {
    let mut lines = logs::open(log, &ProgressBar::hidden()).ok()?;
    let (mut parser, mut line) = (LineParser::new(known.clone()), Vec::new());
    for _ in 0..MOST_LINES {
        if !lines.read_line(&mut line).ok()? {
            return None;
        }
        if let Ok(Some(request)) = parser.parse(&line) {
            return Some(request.time);
        }
    }
    None
}

/// That the logs are not read in the order in which they were given.
pub(super) fn order_note(given: &[PathBuf], sorted: &[PathBuf]) -> Option<String> {
    let names: Vec<String> = sorted.iter().map(|log| log.display().to_string()).collect();
    (given != sorted).then(|| format!("the logs were read in the order of their times: {}", names.join(", ")))
}

/// Until when the logs go.
#[derive(Default)]
pub(super) struct Spans {
    current: usize,
    latest: Time,
}

/// A log that goes on when the next one has begun.
pub(super) struct Before {
    pub(super) file: usize,
    pub(super) latest: Time,
}

impl Spans {
    /// Notes the time of a line. Returns the log before if it goes on for longer than `window` after this one has begun.
    pub(super) fn overlap(&mut self, file: usize, time: Time, window: Span) -> Option<Before> {
        let before = Before { file: self.current, latest: self.latest };
        let is_new = file != self.current;
        self.current = file;
        self.latest = if is_new { time } else { self.latest.max(time) };
        (is_new && before.latest.since(time) > window).then_some(before)
    }
}

/// The error that two logs overlap.
pub(super) fn overlapping(before: &str, next: &str, (latest, time): (Time, Time)) -> String {
    format!(
        "{before} and {next} overlap: the first goes on to {}, the second begins at {}. Requests must come in the order of their \
         times: merge the two, or replay them one by one",
        rfc3339(latest),
        rfc3339(time)
    )
}
