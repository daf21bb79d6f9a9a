//! Replays suggested rates before they are printed.

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use sluicegate_limiter::Time;

use super::logs::{self, STDIN};
use crate::replay::{ArrivalSettings, Arrivals, Item, Known, Replay, Search, Suggestion};
use crate::snapshot::{Snapshot, SnapshotBuilder};

/// How the logs are read.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) logs: &'a [PathBuf],
    pub(super) known: &'a Known,
    pub(super) arrivals: ArrivalSettings,
    /// The index of the listener that received the requests.
    pub(super) listener: usize,
}

/// The suggestions for each limit, by its index, after a replay that knows the statistics of all keys. Reads the logs again as often
/// as is needed.
///
/// # Errors
/// Why there are none.
pub(super) fn suggestions(
    first: &Replay<'_>,
    reading: Reading<'_>,
    progress: impl Fn(usize) -> ProgressBar,
) -> Result<Vec<Vec<Suggestion>>, String> {
    let mut search = Search::new(first);
    for number in 1.. {
        let pass = search.next_pass();
        if pass.is_empty() {
            break;
        }
        // What was read from a pipe cannot be read again.
        if let Some(log) = reading.logs.iter().find(|log| *log == Path::new(STDIN) || !log.is_file()) {
            return Err(format!(
                "rates of these limits are suggested only after a replay with them, and {} can be read only once: name files",
                log.display()
            ));
        }
        let built: Vec<Option<Snapshot>> = pass
            .iter()
            .map(|(limit, count)| {
                let config = search.with_rate(*limit, *count)?;
                Some(SnapshotBuilder::default().build(config, None, None, Time::EPOCH))
            })
            .collect();
        let mut replays: Vec<Option<Replay<'_>>> = built
            .iter()
            .map(|snapshot| Some(Replay::new(snapshot.as_ref()?, reading.listener).with_statistics(false)))
            .collect();
        read_again(&reading, &progress(number), |item| {
            replays.iter_mut().flatten().for_each(|replay| _ = replay.decide(&item.request));
        });
        for ((limit, count), replay) in pass.into_iter().zip(&replays) {
            let refused = replay.as_ref().and_then(|replay| replay.statistics.as_ref());
            search.learn(limit, count, refused.map(|statistics| statistics.limits[limit].refused_keys()));
        }
    }
    Ok(search.found())
}

/// Reads the logs again, and passes on their requests as they arrived.
fn read_again(reading: &Reading<'_>, progress: &ProgressBar, mut each: impl FnMut(&Item)) {
    let mut arrivals = Arrivals::new(reading.arrivals);
    let mut next = |item: Item| {
        each(&item);
        Ok::<(), std::convert::Infallible>(())
    };
    let line = |file: usize, line: u64, request: Result<_, String>| match request {
        Ok(request) => arrivals.push(Item { request, line, file }, &mut next),
        Err(_) => Ok(()), // it was told
    };
    let Ok(()) = logs::read(reading.logs, reading.known, progress, line, |_, _| ());
    let Ok(()) = arrivals.finish(&mut next);
    progress.finish_and_clear();
}
