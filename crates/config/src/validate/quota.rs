//! Quotas: an algorithm with its numbers.

use jiff::tz::TimeZone;
use sluicegate_limiter::{
    Calendar, Concurrency, FixedWindow, LeakyBucket, MAX_COUNT, MAX_LOG_PLACES, MAX_SLICES, Quota,
    QuotaError, Rate, SlidingLog, SlidingWindow, Span, TokenBucket,
};

use super::checks::{in_range, missing, value, word};
use crate::language::calendar::{self, Unit};
use crate::language::values::{self, grouped, outside};
use crate::raw::RawLimit;
use crate::raw::scalars::RawCount;
use crate::read::at::At;
use crate::read::is_wrong;
use crate::read::report::{Place, Problem, Report};

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Token,
    Leaky,
    Fixed,
    Log,
    Sliding,
    Concurrency,
}

const KINDS: [(&str, Kind); 6] = [
    ("token_bucket", Kind::Token),
    ("leaky_bucket", Kind::Leaky),
    ("fixed_window", Kind::Fixed),
    ("sliding_log", Kind::Log),
    ("sliding_window", Kind::Sliding),
    ("concurrency", Kind::Concurrency),
];

pub(super) fn quota(name: &At<String>, raw: &RawLimit, report: &mut Report) -> Option<Quota> {
    if is_wrong!(raw, algorithm) {
        return None; // what belongs to it cannot be message
    }
    let kind =
        raw.algorithm.as_ref().map_or(Some(Kind::Token), |text| word(text, "algorithm", &KINDS, report))?;
    let numbers =
        ["burst_credit", "burst", "slices", "strict", "count_rejected", "max_delay", "overdraft", "zone"];
    let fits = check_fields(kind, raw, report) && !numbers.iter().any(|field| raw.wrong.contains(field));

    let what = format!("the limit `{}`", name.value);
    if kind == Kind::Concurrency {
        let Some(max) = &raw.max else {
            missing(name.at, &what, ("max", "8"), &raw.wrong, report);
            return None;
        };
        let made = checked(Concurrency::new(max.value.0), max, "max", report);
        return made.map(|made| Quota::Concurrency(made, max.value.0)).filter(|_| fits);
    }
    let Some(text) = &raw.rate else {
        missing(name.at, &what, ("rate", "100/min"), &raw.wrong, report);
        return None;
    };
    let rate = value(text, report, values::rate);
    let calendar = calendar_of(kind, raw, text, rate, report);
    let max_delay = raw.max_delay.as_ref().map(|text| value(text, report, values::span));
    let (calendar, (rate, _)) = (calendar?, rate.filter(|_| fits)?);
    let mut quota = Timed { text, rate, raw, max_delay, report };
    match kind {
        Kind::Token => quota.token(),
        Kind::Leaky => quota.leaky(),
        Kind::Fixed => {
            let window = calendar.map(|calendar| FixedWindow::with_calendar(rate, calendar));
            Some(Quota::FixedWindow(window.unwrap_or(FixedWindow::new(rate)), rate))
        }
        Kind::Log => quota.log(),
        Kind::Sliding | Kind::Concurrency => quota.sliding(),
    }
}

/// The calendar by which a limit counts, if it does; `None` where something is wrong with it, and that is reported.
///
/// Weeks and months always follow the calendar: multiples of seconds since the epoch would begin on arbitrary days.
fn calendar_of(
    kind: Kind,
    raw: &RawLimit,
    text: &At<String>,
    rate: Option<(Rate, Option<Unit>)>,
    report: &mut Report,
) -> Option<Option<&'static Calendar>> {
    let zone = match &raw.zone {
        Some(name) => Some(value(name, report, calendar::zone)?),
        None if is_wrong!(raw, zone) => return None,
        None => None,
    };
    let (_, unit) = rate?;
    match (unit, &raw.zone) {
        (Some(Unit::Month), _) if kind != Kind::Fixed => {
            report.error(
                text.problem("a month is not a fixed time, so only fixed_window counts by it")
                    .help("write `algorithm: fixed_window` beside it, or a number of days: 30d"),
            );
            None
        }
        (None, Some(zone)) if kind == Kind::Fixed => {
            report.error(
                zone.problem(
                    "`zone` means nothing for this rate: only days, weeks and months begin in a zone",
                )
                .help("write a rate per day, week or month, such as 1M/month, or remove `zone`"),
            );
            None
        }
        (Some(Unit::Day), None) => Some(None), // whole days since the epoch
        (Some(unit), _) if kind == Kind::Fixed => {
            Some(Some(calendar::calendar(&zone.unwrap_or(TimeZone::UTC), unit)))
        }
        _ => Some(None),
    }
}

/// All algorithms.
const ALL: &[Kind] = &[Kind::Token, Kind::Leaky, Kind::Fixed, Kind::Log, Kind::Sliding, Kind::Concurrency];

/// Whether every field that is given belongs to the algorithm; reports those that do not.
fn check_fields(kind: Kind, raw: &RawLimit, report: &mut Report) -> bool {
    fn at<T>(field: Option<&At<T>>) -> Option<Place> {
        field.map(|field| field.at)
    }
    // With leases, `strict` says that they may admit nothing above the limit.
    let is_leased = raw.sync.as_ref().is_some_and(|sync| sync.value != "exact");
    let timed = &[Kind::Token, Kind::Leaky, Kind::Fixed, Kind::Log, Kind::Sliding][..];
    let fields: [(&str, Option<Place>, &[Kind]); 14] = [
        ("burst", at(raw.burst.as_ref()), &[Kind::Token, Kind::Leaky]),
        ("burst_credit", at(raw.burst_credit.as_ref()), &[Kind::Token]),
        ("penalty", at(raw.penalty.as_ref()), &[Kind::Token, Kind::Fixed, Kind::Log, Kind::Sliding]),
        ("queue", at(raw.queue.as_ref()), &[Kind::Token, Kind::Leaky]),
        ("accept", at(raw.accept.as_ref()), &[Kind::Token, Kind::Leaky]),
        ("slices", at(raw.slices.as_ref()), &[Kind::Sliding]),
        ("strict", at(raw.strict.as_ref()), if is_leased { ALL } else { &[Kind::Sliding] }),
        ("count_rejected", at(raw.count_rejected.as_ref()), &[Kind::Log]),
        ("max_delay", at(raw.max_delay.as_ref()), &[Kind::Leaky]),
        ("zone", at(raw.zone.as_ref()), &[Kind::Fixed]),
        ("overdraft", at(raw.overdraft.as_ref()), &[Kind::Token]),
        ("max", at(raw.max.as_ref()), &[Kind::Concurrency]),
        ("rate", at(raw.rate.as_ref()), timed),
        ("cost", at(raw.cost.as_ref()), timed),
    ];
    let own = KINDS.iter().find(|(_, known)| *known == kind).map_or("", |(word, _)| *word);
    let mut fits = true;
    for (field, place, kinds) in fields {
        let Some(place) = place.filter(|_| !kinds.contains(&kind)) else { continue };
        let owners: Vec<&str> =
            KINDS.iter().filter(|(_, k)| kinds.contains(k)).map(|(word, _)| *word).collect();
        let help = match kind {
            Kind::Concurrency if kinds == timed => {
                "concurrency counts requests in flight: it has `max`, and every request takes one place"
                    .to_owned()
            }
            _ => format!("it belongs to {}", owners.join(", ")),
        };
        report.error(Problem::new(place, format!("`{field}` means nothing for {own}")).help(help));
        fits = false;
    }
    fits
}

/// What the quota of an algorithm with a rate is made of.
struct Timed<'a> {
    text: &'a At<String>,
    rate: Rate,
    raw: &'a RawLimit,
    max_delay: Option<Option<Span>>,
    report: &'a mut Report,
}

impl Timed<'_> {
    fn burst(&self) -> u64 {
        self.raw.burst.as_ref().map_or(self.rate.count(), |burst| burst.value.0)
    }

    /// The tokens that a full bucket has: the burst, and what is saved of unused periods.
    fn with_credit(&mut self, burst: u64) -> Option<u64> {
        let Some(credit) = &self.raw.burst_credit else { return Some(burst) };
        let Some(periods) = &credit.value.periods else {
            missing(credit.at, "`burst_credit`", ("periods", "5"), &credit.value.wrong, self.report);
            return None;
        };
        let periods = in_range(periods, 1..=10_000, "periods", self.report)?;
        let all = periods.saturating_mul(self.rate.count()).saturating_add(burst);
        if all > MAX_COUNT {
            let most = grouped(MAX_COUNT);
            let problem = Problem::new(credit.at, format!("the bucket would hold {} tokens", grouped(all)));
            self.report.error(problem.help(format!("{most} at most: save fewer periods")));
            return None;
        }
        Some(all)
    }

    fn at_burst<T>(&mut self, made: Result<T, QuotaError>) -> Option<T> {
        match &self.raw.burst {
            Some(burst) => checked(made, burst, "burst", self.report),
            None => checked(made, self.text, "rate", self.report),
        }
    }

    fn token(&mut self) -> Option<Quota> {
        let burst = self.burst();
        let burst = self.with_credit(burst)?;
        let made = TokenBucket::new(self.rate, burst);
        let overdraft = self.raw.overdraft.as_ref().map(|overdraft| overdraft.value.0);
        self.at_burst(made).map(|made| {
            let made = overdraft.map_or(made, |overdraft| made.with_overdraft(overdraft));
            Quota::TokenBucket(made, self.rate, burst)
        })
    }

    fn leaky(&mut self) -> Option<Quota> {
        let max_delay = match self.max_delay {
            Some(None) => return None, // wrong, and reported
            Some(Some(span)) => Some(span),
            None => None,
        };
        let burst = self.burst();
        let made = LeakyBucket::new(self.rate, burst, max_delay);
        self.at_burst(made).map(|made| Quota::LeakyBucket(made, self.rate, burst))
    }

    fn log(&mut self) -> Option<Quota> {
        let count_rejected = self.raw.count_rejected.as_ref().is_some_and(|f| f.value);
        let made = SlidingLog::new(self.rate, count_rejected);
        checked(made, self.text, "rate", self.report).map(|made| Quota::SlidingLog(made, self.rate))
    }

    fn sliding(&mut self) -> Option<Quota> {
        let one = At { at: self.text.at, value: RawCount(1) };
        let slices = self.raw.slices.as_ref().unwrap_or(&one);
        let made = SlidingWindow::new(self.rate, u32::try_from(slices.value.0).unwrap_or(u32::MAX));
        let strict = self.raw.strict.as_ref().is_some_and(|strict| strict.value);
        let made = checked(made, slices, "slices", self.report)?;
        Some(Quota::SlidingWindow(if strict { made.strict() } else { made }, self.rate))
    }
}

fn checked<T, U>(made: Result<T, QuotaError>, at: &At<U>, field: &str, report: &mut Report) -> Option<T> {
    let field = format!("`{field}`");
    let message = |error| match error {
        QuotaError::Count(n) => outside(&field, 1, MAX_COUNT, n),
        QuotaError::Slices(n) => outside(&field, 1, u64::from(MAX_SLICES), u64::from(n)),
        QuotaError::LogPlaces(n) => {
            format!(
                "{field}: a sliding_log holds at most {} places a key, not {}",
                grouped(MAX_LOG_PLACES),
                grouped(n)
            )
        }
        QuotaError::Period(_) => format!("{field}: {error}"),
    };
    made.map_err(|error| report.error(at.problem(message(error)))).ok()
}
