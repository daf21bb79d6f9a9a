//! Times of rules as they are written.

use jiff::Timestamp;
use sluicegate_limiter::Time;

/// 2500-01-01 00:00:00 UTC in seconds since the Unix epoch, the first time that a rule cannot name.
const IN_2500: i64 = 16_725_225_600;

/// The time that a field names; `None` if it is absent. Stores can have times from before [`is_rfc3339`] was asked for.
pub(crate) fn time_of(field: &str, text: Option<&str>) -> Result<Option<Time>, String> {
    let Some(text) = text else { return Ok(None) };
    let time: Timestamp = text.parse().map_err(|_| wrong_form(field))?;
    u64::try_from(time.as_nanosecond())
        .ok()
        .map(Time::from_nanos)
        .filter(|_| time.as_second() < IN_2500)
        .map(Some)
        .ok_or_else(|| format!("`{field}` is not between 1970 and 2500"))
}

/// The same of a new rule, whose times have the form of RFC 3339.
pub(crate) fn new_time_of(field: &str, text: Option<&str>) -> Result<Option<Time>, String> {
    match text {
        Some(text) if !is_rfc3339(text) => Err(wrong_form(field)),
        _ => time_of(field, text),
    }
}

fn wrong_form(field: &str) -> String {
    format!(
        "`{field}` is not a time in RFC 3339 (date, time with seconds, and `Z` or an offset); write it like \
         `2026-12-24T00:00:00Z`"
    )
}

/// Whether a text has the form `2026-12-24T00:00:00.5+01:00` (RFC 3339, section 5.6), whatever its numbers, with nanoseconds at most.
fn is_rfc3339(text: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let fits = |form: &[u8], text: &[u8]| {
        form.iter().zip(text).all(|(form, byte)| match form {
            b'0' => byte.is_ascii_digit(),
            b'T' => matches!(byte, b'T' | b't' | b' '),
            _ => byte == form,
        })
    };
    let Some((begin, rest)) = text.as_bytes().split_at_checked(FORM.len()) else { return false };
    let zone = match rest {
        [b'.', fraction @ ..] => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=9).contains(&digits) {
                return false;
            }
            &fraction[digits..]
        }
        zone => zone,
    };
    fits(FORM, begin)
        && match zone {
            [b'Z' | b'z'] => true,
            [b'+' | b'-', offset @ ..] => offset.len() == 5 && fits(b"00:00", offset),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_times_have_the_form_of_rfc_3339() {
        let read = |text| new_time_of("until", Some(text)).map(|time| time.unwrap().as_nanos() / 1_000_000);
        const AT: u64 = 1_798_070_400_000;
        for (text, expected) in [
            ("2026-12-24T00:00:00Z", AT),
            ("2026-12-24t00:00:00z", AT),
            ("2026-12-24 00:00:00Z", AT),
            ("2026-12-24T00:00:00.5Z", AT + 500),
            ("2026-12-24T00:00:00.123456789Z", AT + 123),
            ("2026-12-24T01:30:00+01:30", AT),
            ("2026-12-23T23:00:00-01:00", AT),
            ("2026-12-24T00:00:00-00:00", AT),
            // A leap second counts as the second before it.
            ("2026-12-23T23:59:60Z", AT - 1_000),
        ] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        for wrong in [
            "",
            "2026-12-24",
            "2026-12-24T00:00:00",
            "2026-12-24T00:00Z",
            "2026-12-24T00Z",
            "20261224T000000Z",
            "2026-12-24T00:00:00+01",
            "2026-12-24T00:00:00+0100",
            "2026-12-24T00:00:00+01:00:00",
            "2026-12-24T00:00:00,5Z",
            "2026-12-24T00:00:00.Z",
            "2026-12-24T00:00:00.1234567890Z",
            "2026-12-24T00:00:00Z[UTC]",
            "2026-12-24T00:00:00[Europe/Berlin]",
            " 2026-12-24T00:00:00Z",
            "2026-12-24T00:00:00Z ",
            "+002026-12-24T00:00:00Z",
            "2026-W52-4T00:00:00Z",
            "2026-13-24T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-12-24T24:00:00Z",
            "2026-12-24T00:60:00Z",
            "2026-12-24T00:00:61Z",
            "٢026-12-24T00:00:00Z",
            "1798070400",
            "tomorrow",
        ] {
            assert_eq!(read(wrong), Err(wrong_form("until")), "{wrong:?}");
        }
    }

    #[test]
    fn times_of_stored_rules_are_read_as_before() {
        let time = time_of("until", Some("2026-12-24T01+01")).unwrap().unwrap();
        assert_eq!(time.as_nanos() / 1_000_000_000, 1_798_070_400);
    }
}
