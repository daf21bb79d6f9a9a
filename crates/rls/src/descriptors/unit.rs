//! The units of limits.

use crate::wire::ratelimit::Unit;

/// All units, with their names in files and their seconds. A month has 30 days and a year 365, whatever the calendar says.
const UNITS: [(Unit, &str, u64); 7] = [
    (Unit::Second, "second", 1),
    (Unit::Minute, "minute", 60),
    (Unit::Hour, "hour", 3_600),
    (Unit::Day, "day", 86_400),
    (Unit::Week, "week", 604_800),
    (Unit::Month, "month", 2_592_000),
    (Unit::Year, "year", 31_536_000),
];

impl Unit {
    /// The unit that a file names, in capitals or not.
    pub fn named(text: &str) -> Option<Self> {
        UNITS.iter().find(|(_, name, _)| name.eq_ignore_ascii_case(text)).map(|(unit, ..)| *unit)
    }

    /// The unit that has so many seconds; [`Unit::Unknown`] if there is none.
    pub fn of_seconds(seconds: u64) -> Self {
        UNITS.iter().find(|(.., length)| *length == seconds).map_or(Self::Unknown, |(unit, ..)| *unit)
    }

    /// Its seconds; none of [`Unit::Unknown`].
    pub fn seconds(self) -> Option<u64> {
        UNITS.iter().find(|(unit, ..)| *unit == self).map(|(.., seconds)| *seconds)
    }

    /// Its name in files; `unknown` of [`Unit::Unknown`].
    pub fn name(self) -> &'static str {
        UNITS.iter().find(|(unit, ..)| *unit == self).map_or("unknown", |(_, name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_have_names_and_lengths() {
        for (unit, name, seconds) in UNITS {
            assert_eq!((Unit::named(name), Unit::named(&name.to_uppercase())), (Some(unit), Some(unit)));
            assert_eq!((unit.seconds(), unit.name(), Unit::of_seconds(seconds)), (Some(seconds), name, unit));
        }
        assert_eq!((Unit::named("unknown"), Unit::named("seconds"), Unit::named("")), (None, None, None));
        assert_eq!((Unit::of_seconds(15), Unit::Unknown.seconds()), (Unit::Unknown, None));
    }
}
