//! Times as logs write them.

use sluicegate_limiter::Time;

use super::line_error::{LineError, bad};

/// Whether a word begins like `2026-11-27T06:00:00`.
pub(super) fn is_date(word: &str) -> bool {
    let bytes = word.as_bytes();
    bytes.len() >= 19
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && bytes[10] == b'T'
        && bytes[..4].iter().all(u8::is_ascii_digit)
}

/// `10/Oct/2000:13:55:36 -0700`.
pub(super) fn of_combined(text: &str) -> Result<Time, LineError> {
    let parsed = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", text);
    let Ok(time) = parsed.and_then(|time| time.to_timestamp()) else {
        return bad(format!("`{text}` is not a time such as 10/Oct/2000:13:55:36 -0700"));
    };
    since_1970(time)
}

/// `06/Feb/2009:12:14:14.655`, which is taken for UTC.
pub(super) fn of_haproxy(text: &str) -> Result<Time, LineError> {
    let parsed = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S%.f %z", format!("{text} +0000"));
    let Ok(time) = parsed.and_then(|time| time.to_timestamp()) else {
        return bad(format!("`{text}` is not a time such as 06/Feb/2009:12:14:14.655"));
    };
    since_1970(time)
}

fn since_1970(time: jiff::Timestamp) -> Result<Time, LineError> {
    let nanos = u64::try_from(time.as_nanosecond()).map_err(|_| LineError("a time before 1970".into()))?;
    Ok(Time::from_nanos(nanos))
}

/// A time of RFC 3339, in the combined format, or a number since the epoch: by its size of seconds, milliseconds, microseconds or
/// nanoseconds. The text is parsed, because a float would lose the last digits.
pub(super) fn of_text(text: &str) -> Result<Time, LineError> {
    if let Some(time) = decimal(text) {
        return Ok(time);
    }
    let nanos = match text.parse::<jiff::Timestamp>() {
        Ok(time) => u64::try_from(time.as_nanosecond()).ok(),
        Err(_) => match text.parse::<f64>() {
            Ok(seconds) => Some(seconds).filter(|s| (0.0..1.8e10).contains(s)).map(|s| (s * 1e9) as u64),
            Err(_) => of_combined(text).ok().map(Time::as_nanos),
        },
    };
    nanos.map(Time::from_nanos).ok_or_else(|| LineError(format!("`{text}` is not a time")))
}

/// `1719850000.25`, to the nanosecond; more digits are dropped. Seconds of the year 5138 and later are milliseconds, and so on.
fn decimal(text: &str) -> Option<Time> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?;
    // The number of digits of a nanosecond in this unit.
    let digits: u32 = match whole.checked_ilog10().unwrap_or(0) {
        ..11 => 9,
        11..14 => 6,
        14..17 => 3,
        _ => 0,
    };
    let fraction = &fraction[..fraction.len().min(digits as usize)];
    let nanos = match fraction {
        "" => 0,
        some => some.parse::<u64>().ok()? * 10_u64.pow(digits - some.len() as u32),
    };
    let nanos = whole.checked_mul(10_u64.pow(digits))?.checked_add(nanos)?;
    Some(Time::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_all_digits() {
        for (text, nanos) in [
            ("1719850000.25", 1_719_850_000_250_000_000),
            ("1720000800.000001", 1_720_000_800_000_001_000),
            ("1720000800", 1_720_000_800_000_000_000),
            ("1719850000250", 1_719_850_000_250_000_000),
            ("1719850000250.5", 1_719_850_000_250_500_000),
            ("1719850000250125", 1_719_850_000_250_125_000),
            ("1719850000250125001", 1_719_850_000_250_125_001),
            ("2024-07-03T10:00:00.123456Z", 1_720_000_800_123_456_000),
            ("2024-07-03T12:00:00+02:00", 1_720_000_800_000_000_000),
            ("03/Jul/2024:12:00:00 +0200", 1_720_000_800_000_000_000),
        ] {
            assert_eq!(of_text(text).unwrap().as_nanos(), nanos, "{text}");
        }
        for text in ["yesterday", "null", "-5", ""] {
            assert!(of_text(text).is_err(), "{text}");
        }
        assert_eq!(of_haproxy("03/Jul/2024:10:00:00.250").unwrap().as_nanos(), 1_720_000_800_250_000_000);
    }
}
