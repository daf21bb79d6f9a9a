//! The small languages inside values: counts, durations, rates, sizes.

use std::time::Duration;

use sluicegate_limiter::{MAX_COUNT, QuotaError, Rate, Span};

use crate::language::calendar::Unit;
use crate::read::report::Mistake;
use crate::read::suggest::{self, UNITS};

/// Periods of the calendar, which rates have.
const CALENDAR: [(&str, Unit); 8] = [
    ("d", Unit::Day),
    ("day", Unit::Day),
    ("days", Unit::Day),
    ("w", Unit::Week),
    ("week", Unit::Week),
    ("weeks", Unit::Week),
    ("month", Unit::Month),
    ("months", Unit::Month),
];

/// `20`, `10k`, `1M`.
pub(crate) fn count(text: &str) -> Result<u64, Mistake> {
    plain_count(text).ok_or_else(|| {
        let mistake = Mistake::new(format!("expected a whole number such as 20, 10k or 1M, found `{text}`"));
        with_spelling(mistake, suggest::count(text).filter(|better| plain_count(better).is_some()))
    })
}

/// A count as the file has it: `20`, `10k`, `1M`.
///
/// # Errors
/// What it should look like.
pub fn parse_count(text: &str) -> Result<u64, Mistake> {
    count(text)
}

/// A rate as the file has it: `100/min`, `20/15s`, `1M/month`.
///
/// # Errors
/// What it should look like.
pub fn parse_rate(text: &str) -> Result<Rate, Mistake> {
    rate(text).map(|(rate, _)| rate)
}

/// A size in bytes as the file has it: `512`, `64KiB`, `10MB`.
///
/// # Errors
/// What it should look like.
pub fn parse_bytes(text: &str) -> Result<u64, Mistake> {
    bytes(text)
}

/// A duration as the file has it: `10s`, `1m30s`, `250ms`.
///
/// # Errors
/// What it should look like.
pub fn parse_duration(text: &str) -> Result<Duration, Mistake> {
    duration(text)
}

/// A count, without a message for what is none.
pub(crate) fn plain_count(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, factor) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(factor))
}

/// A mistake with the spelling that was probably meant, if there is one.
fn with_spelling(mistake: Mistake, better: Option<String>) -> Mistake {
    match better {
        Some(better) => mistake.help(format!("write {better}")),
        None => mistake,
    }
}

/// `250ms`, `30s`, `5min`, `1h30m`.
pub(crate) fn span(text: &str) -> Result<Span, Mistake> {
    plain_span(text).ok_or_else(|| {
        let mistake =
            Mistake::new(format!("expected a duration such as 250ms, 30s, 5min or 2h, found `{text}`"));
        let better = suggest::duration(text).filter(|better| plain_span(better).is_some());
        match better {
            Some(better) if text.trim().bytes().all(|b| b.is_ascii_digit()) => {
                mistake.help(format!("give it a unit: {better}"))
            }
            None if text.contains('.') => mistake.help("whole numbers only, in a smaller unit: 1500ms"),
            better => with_spelling(mistake, better),
        }
    })
}

fn plain_span(text: &str) -> Option<Span> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut nanos = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let letters = rest[digits..].find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len() - digits);
        let number = rest[..digits].parse::<u64>().ok()?;
        let unit = unit(&rest[digits..digits + letters])?;
        nanos = number.checked_mul(unit).and_then(|n| nanos.checked_add(n))?;
        rest = &rest[digits + letters..];
    }
    Some(Span::from_nanos(nanos))
}

/// A duration for the operating system's timers.
pub(crate) fn duration(text: &str) -> Result<Duration, Mistake> {
    span(text).map(Duration::from)
}

/// `100/min`, `20/15s`, `1M/month`; and the period of the calendar that is named. A month has 31 days for those who do not
/// count by the calendar.
pub(crate) fn rate(text: &str) -> Result<(Rate, Option<Unit>), Mistake> {
    let Some((number, period, unit)) = plain_rate(text) else {
        let mistake =
            Mistake::new(format!("expected a rate such as 100/min, 10/s or 20/15s, found `{text}`"));
        let better = |text: &str| suggest::rate(text).filter(|better| plain_rate(better).is_some());
        // nginx has both in one directive: `rate=10r/s burst=20`.
        let with_burst = text.split_once("burst").and_then(|(rate, burst)| {
            let burst = plain_count(burst.trim_start_matches([' ', '=', ':']))?;
            Some(format!("write `rate: {}` and `burst: {burst}`", better(rate.trim_end_matches([' ', ',']))?))
        });
        return Err(match (plain_count(text), with_burst) {
            (Some(_), _) => mistake.help(format!("say per what: {0}/s or {0}/min", text.trim())),
            (None, Some(help)) => mistake.help(help),
            (None, None) => with_spelling(mistake, better(text)),
        });
    };
    let rate = Rate::new(number, period).map_err(|error| {
        let why = match error {
            QuotaError::Count(n) => outside("the count", 1, MAX_COUNT, n),
            // The limiter would write the period in seconds, and that is not how it was written.
            QuotaError::Period(_) => "the period is between 1ms and 366 days".to_owned(),
            other => other.to_string(),
        };
        Mistake::new(format!("in the rate `{text}`: {why}"))
    })?;
    Ok((rate, unit))
}

/// A count and a period, whatever they are, and the period of the calendar that is named.
pub(crate) fn plain_rate(text: &str) -> Option<(u64, Span, Option<Unit>)> {
    let (left, right) = text.split_once('/')?;
    let (number, right) = (plain_count(left)?, right.trim());
    if let Some((_, unit)) = CALENDAR.iter().find(|(name, _)| *name == right) {
        return Some((number, unit.span(), Some(*unit)));
    }
    Some((number, unit(right).map(Span::from_nanos).or_else(|| plain_span(right))?, None))
}

/// The message for a number out of bounds.
pub(crate) fn outside(what: &str, least: u64, most: u64, found: u64) -> String {
    format!("{what} is between {} and {}, not {}", grouped(least), grouped(most), grouped(found))
}

/// 1000000 as 1,000,000.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `512`, `64KiB`, `10MB`.
pub(crate) fn bytes(text: &str) -> Result<u64, Mistake> {
    plain_bytes(text).ok_or_else(|| {
        let mistake = Mistake::new(format!("expected a size such as 64KiB, 10MB or 1GiB, found `{text}`"));
        with_spelling(mistake, suggest::size(text).filter(|better| plain_bytes(better).is_some()))
    })
}

fn plain_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let factor = match text[split..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "kib" => 1 << 10,
        "m" | "mb" => 1_000_000,
        "mib" => 1 << 20,
        "g" | "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        _ => return None,
    };
    text[..split].parse::<u64>().ok().and_then(|n| n.checked_mul(factor))
}

/// The names of the periods that only rates have.
#[cfg(feature = "schema")]
pub(crate) fn calendar_units() -> Vec<&'static str> {
    CALENDAR.iter().map(|(name, _)| *name).filter(|name| unit(name).is_none()).collect()
}

/// The names of all units.
#[cfg(feature = "schema")]
pub(crate) fn units() -> Vec<&'static str> {
    UNITS.iter().flat_map(|unit| unit.accepted).copied().collect()
}

fn unit(text: &str) -> Option<u64> {
    UNITS.iter().find(|unit| unit.accepted.contains(&text)).map(|unit| unit.nanos as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_as_the_manual_writes_them() {
        for (text, count, seconds) in [
            ("100/min", 100, 60),
            ("10/s", 10, 1),
            ("5000/h", 5_000, 3_600),
            ("1M/day", 1_000_000, 86_400),
            ("20/15s", 20, 15),
            ("10k/d", 10_000, 86_400),
            ("7/90s", 7, 90),
        ] {
            let (rate, _) = rate(text).unwrap();
            assert_eq!((rate.count(), rate.period()), (count, Span::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_told() {
        for text in ["100", "100/", "/min", "1.5/s", "-1/s", "10/fortnight", "0/s", "2G/s", "1/0s", "1/400d"]
        {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(
            [grouped(0), grouped(999), grouped(1_000), grouped(12_345_678)],
            ["0", "999", "1,000", "12,345,678"]
        );
    }

    #[test]
    fn durations_and_sizes() {
        assert_eq!(span("250ms"), Ok(Span::from_millis(250)));
        assert_eq!(span("1h30m"), Ok(Span::from_secs(5_400)));
        assert_eq!(span("2h"), Ok(Span::from_secs(7_200)));
        assert!(
            span("5").is_err() && span("").is_err() && span("s").is_err() && span("99999999999999d").is_err()
        );
        assert_eq!((bytes("64KiB"), bytes("10MB"), bytes("7")), (Ok(65_536), Ok(10_000_000), Ok(7)));
    }
}
