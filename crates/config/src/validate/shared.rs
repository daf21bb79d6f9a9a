//! What a store can count.

use sluicegate_limiter::{MAX_SHARED_LOG_PLACES, Quota};

use crate::language::values::grouped;
use crate::raw::RawLimit;
use crate::read::report::{Problem, Report};

/// Refuses what a store cannot count.
pub(super) fn check_shared(quota: &Quota, raw: &RawLimit, report: &mut Report) {
    check_drain(quota, raw, report);
    let Quota::SlidingLog(_, rate) = quota else { return };
    if let Some(text) = raw.rate.as_ref().filter(|_| rate.count() > MAX_SHARED_LOG_PLACES) {
        let (most, count) = (grouped(MAX_SHARED_LOG_PLACES), grouped(rate.count()));
        report.error(
            text.problem(format!(
                "`rate`: a sliding_log holds at most {most} places a key where it is shared, not {count}"
            ))
            .help("use `algorithm: sliding_window`, a lower rate, or `scope: local`"),
        );
    }
}

fn check_drain(quota: &Quota, raw: &RawLimit, report: &mut Report) {
    let place = raw.burst.as_ref().map(|burst| burst.at).or(raw.rate.as_ref().map(|rate| rate.at));
    if let Some(place) = place.filter(|_| !quota.fits_store()) {
        report.error(
            Problem::new(place, "at this rate the whole burst takes more than 199 years to come back").help(
                "a shared limit cannot count that; lower the burst, raise the rate, or use `scope: local`",
            ),
        );
    }
}
