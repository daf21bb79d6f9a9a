//! Which numbers are durations. A number that may be one of bytes or of requests is none.

use std::str::FromStr;

use sluicegate_limiter::Span;

use super::texts::Field;
use sluicegate_base::named_enum::named_enum;

named_enum! {
    /// The unit of a duration.
    Unit {
        /// Seconds.
        Seconds = "s",
        /// Milliseconds.
        Millis = "ms",
        /// Microseconds.
        Micros = "us",
        /// Nanoseconds.
        Nanos = "ns",
    }
}

/// Which field behind the user agent is a duration: `1us`, `2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationField {
    /// Its number, from 1.
    pub number: usize,
    /// Its unit.
    pub unit: Unit,
}

impl FromStr for DurationField {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let number = text[..digits].parse().ok().filter(|number| *number > 0);
        let unit = match &text[digits..] {
            "" => Some(Unit::Seconds),
            unit => Unit::ALL.iter().copied().find(|known| known.name() == unit),
        };
        match number.zip(unit) {
            Some((number, unit)) => Ok(Self { number, unit }),
            None => {
                Err("write the number of a field behind the user agent and its unit: 1s, 2ms, 1us".into())
            }
        }
    }
}

impl Unit {
    /// A duration of a number of this unit; `None` if it is negative, or longer than 30 years.
    pub(super) fn span(self, number: f64) -> Option<(Span, Self)> {
        let seconds = match self {
            Self::Seconds => number,
            Self::Millis => number / 1e3,
            Self::Micros => number / 1e6,
            Self::Nanos => number / 1e9,
        };
        (0.0..1e9).contains(&seconds).then(|| (Span::from_nanos((seconds * 1e9).round() as u64), self))
    }

    /// The same of a text.
    pub(super) fn parse(self, text: &str) -> Option<(Span, Self)> {
        self.span(text.parse().ok()?)
    }
}

/// The duration that a field says by itself: `12ms`, `0.012s`, or a number with a fraction, which is one of seconds. Ratios stand in
/// quotes, so that a number in quotes is one of seconds only with three digits behind the point, as servers write times.
pub(super) fn in_field(field: &Field<'_>) -> Option<(Span, Unit)> {
    const NAMES: [&str; 4] = ["rt", "request_time", "duration", "time"];
    let text = match field.text.split_once('=') {
        Some((name, value)) => NAMES.contains(&name).then_some(value.trim_matches('"'))?,
        None => field.text,
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if !unit.is_empty() {
        return Unit::ALL.iter().find(|known| known.name() == unit)?.parse(number);
    }
    let (_, fraction) = number.split_once('.')?;
    (!field.quoted || fraction.len() == 3).then(|| Unit::Seconds.parse(number))?
}

/// Whether a field is a whole number, which nothing is known of.
pub(super) fn is_unknown_number(field: &Field<'_>) -> bool {
    !field.text.is_empty() && field.text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_durations_only_if_they_say_so() {
        let read = |text, quoted| in_field(&Field { text, quoted }).map(|(span, _)| span.as_nanos() / 1_000);
        for (text, quoted, micros) in [
            ("0.012", false, Some(12_000)),
            ("0.5", false, Some(500_000)),
            ("0.012", true, Some(12_000)),
            ("2.35", true, None),
            ("12ms", false, Some(12_000)),
            ("0.25ms", false, Some(250)),
            ("150us", false, Some(150)),
            ("1.5s", false, Some(1_500_000)),
            ("rt=0.100", false, Some(100_000)),
            ("uct=0.100", false, None),
            ("250", false, None),
            ("250", true, None),
            ("-", false, None),
            ("", true, None),
            ("1.2.3", false, None),
            ("12px", false, None),
        ] {
            assert_eq!(read(text, quoted), micros, "{text} {quoted}");
        }
        assert_eq!("1us".parse(), Ok(DurationField { number: 1, unit: Unit::Micros }));
        assert_eq!("3".parse(), Ok(DurationField { number: 3, unit: Unit::Seconds }));
        for wrong in ["", "us", "0s", "1 s", "1min", "-1s"] {
            assert!(wrong.parse::<DurationField>().is_err(), "{wrong}");
        }
    }
}
