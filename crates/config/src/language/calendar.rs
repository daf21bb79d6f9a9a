//! Days, weeks and months of a time zone -> the table of instants at which they begin.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{ToSpan, tz};
use sluicegate_limiter::{Calendar, Span};

use crate::read::nearest::nearest;
use crate::read::report::Mistake;

/// A period of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Unit {
    Day,
    /// From Monday on, as in ISO 8601.
    Week,
    Month,
}

impl Unit {
    /// The period's usual length, and the longest of a month.
    pub(crate) const fn span(self) -> Span {
        Span::from_secs(
            86_400
                * match self {
                    Self::Day => 1,
                    Self::Week => 7,
                    Self::Month => 31,
                },
        )
    }

    /// Its name in rates.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    fn next(self, day: Date) -> Option<Date> {
        let span = match self {
            Self::Day => 1.day(),
            Self::Week => 1.week(),
            Self::Month => 1.month(),
        };
        day.checked_add(span).ok()
    }
}

/// The time zone of a name such as Europe/Berlin.
pub(crate) fn zone(name: &str) -> Result<TimeZone, Mistake> {
    tz::db().get(name).map_err(|_| {
        let mistake = Mistake::new(format!("there is no time zone called `{name}`"));
        let known: Vec<String> = tz::db().available().map(|name| name.as_str().to_owned()).collect();
        match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => mistake.help(format!("did you mean `{near}`?")),
            None => mistake.help("a name of the tz database, such as Europe/Berlin or UTC"),
        }
    })
}

/// The table of a zone's periods. Every table is made once and kept for good: limits of all later configurations share it,
/// and there are no more of them than zones.
pub(crate) fn calendar(zone: &TimeZone, unit: Unit) -> &'static Calendar {
    static TABLES: Mutex<Option<HashMap<(String, Unit), &'static Calendar>>> = Mutex::new(None);
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let name = zone.iana_name().unwrap_or("UTC").to_owned();
    let table = tables.get_or_insert_default().entry((name, unit));
    table.or_insert_with(|| Box::leak(Box::new(table_of(zone, unit))))
}

fn table_of(zone: &TimeZone, unit: Unit) -> Calendar {
    // A Monday and the first of a month, before the first second that a table can hold and after the last.
    let first = match unit {
        Unit::Week => date(1970, 1, 5),
        Unit::Day | Unit::Month => date(1970, 1, 1),
    };
    let days = std::iter::successors(Some(first), |day| unit.next(*day)).take_while(|day| day.year() < 2106);
    // A day whose midnight is skipped begins later, one that is skipped altogether begins with the next.
    let starts = days.filter_map(|day| day.to_zoned(zone.clone()).ok());
    Calendar::new(starts.filter_map(|start| u32::try_from(start.timestamp().as_second()).ok()))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use sluicegate_limiter::Time;

    use super::*;

    fn at(text: &str) -> Time {
        let nanos = text.parse::<Timestamp>().unwrap().as_nanosecond();
        Time::from_nanos(u64::try_from(nanos).unwrap())
    }

    /// When the period of `now` begins and ends.
    fn period(name: &str, unit: Unit, now: &str) -> (String, String) {
        let calendar = calendar(&zone(name).unwrap(), unit);
        let start = calendar.start(at(now));
        let period = |second: u64| Timestamp::from_second(second as i64).unwrap().to_string();
        (period(start), period(calendar.end(start).unwrap()))
    }

    fn pair(start: &str, end: &str) -> (String, String) {
        (start.to_owned(), end.to_owned())
    }

    #[test]
    fn days_of_23_and_25_hours() {
        let spring = period("Europe/Berlin", Unit::Day, "2026-03-29T10:00:00Z");
        assert_eq!(spring, pair("2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"));
        let autumn = period("Europe/Berlin", Unit::Day, "2026-10-25T10:00:00Z");
        assert_eq!(autumn, pair("2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"));
        // The clock is put forward at midnight: the day begins at one.
        let beirut = period("Asia/Beirut", Unit::Day, "2026-03-29T10:00:00Z");
        assert_eq!(beirut, pair("2026-03-28T22:00:00Z", "2026-03-29T21:00:00Z"));
        // Samoa left out a day: 30 December 2011.
        let apia = period("Pacific/Apia", Unit::Day, "2011-12-30T09:59:59Z");
        assert_eq!(apia, pair("2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"));
    }

    #[test]
    fn weeks_begin_on_monday_and_months_on_the_first() {
        let week = period("Europe/Berlin", Unit::Week, "2026-11-22T12:00:00Z");
        assert_eq!(week, pair("2026-11-15T23:00:00Z", "2026-11-22T23:00:00Z"));
        let month = period("Europe/Berlin", Unit::Month, "2026-03-31T21:59:59.999999999Z");
        assert_eq!(month, pair("2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"));
        let next = period("Europe/Berlin", Unit::Month, "2026-03-31T22:00:00Z");
        assert_eq!(next, pair("2026-03-31T22:00:00Z", "2026-04-30T22:00:00Z"));
        let leap = period("UTC", Unit::Month, "2028-02-29T23:00:00Z");
        assert_eq!(leap, pair("2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"));
        let kolkata = period("Asia/Kolkata", Unit::Month, "2026-11-30T18:30:00Z");
        assert_eq!(kolkata, pair("2026-11-30T18:30:00Z", "2026-12-31T18:30:00Z"));
    }

    #[test]
    fn a_zone_has_one_table_whatever_it_is_called() {
        let (one, two) = (zone("Europe/Berlin").unwrap(), zone("europe/berlin").unwrap());
        assert!(std::ptr::eq(calendar(&one, Unit::Week), calendar(&two, Unit::Week)));
        assert!(!std::ptr::eq(calendar(&one, Unit::Week), calendar(&one, Unit::Day)));
        assert_eq!(zone("Europe/Berln").unwrap_err().help.unwrap(), "did you mean `Europe/Berlin`?");
    }
}
