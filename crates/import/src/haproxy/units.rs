//! Times of HAProxy.

/// A time in milliseconds: `10s`, `1m`, `500` (milliseconds).
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    match &text[digits..] {
        "us" => Some(number.div_ceil(1000)),
        "" | "ms" => Some(number),
        "s" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "d" => number.checked_mul(86_400_000),
        _ => None,
    }
}

/// A time as the gateway writes it.
pub(super) fn duration(milliseconds: u64) -> String {
    match milliseconds {
        ms if ms % 3_600_000 == 0 && ms > 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 && ms > 0 => format!("{}min", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

/// A rate as the gateway writes it: `20/10s`, `5/min`.
pub(super) fn rate(count: u64, milliseconds: u64) -> String {
    let period = match milliseconds {
        1000 => "s".to_owned(),
        60_000 => "min".to_owned(),
        3_600_000 => "h".to_owned(),
        86_400_000 => "day".to_owned(),
        ms => duration(ms),
    };
    format!("{count}/{period}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_haproxy() {
        assert_eq!(
            (milliseconds("10s"), milliseconds("500"), milliseconds("1m"), milliseconds("x")),
            (Some(10_000), Some(500), Some(60_000), None)
        );
        assert_eq!(
            (duration(90_000), duration(500), duration(3_600_000)),
            ("90s".into(), "500ms".into(), "1h".into())
        );
        assert_eq!((rate(20, 10_000), rate(5, 60_000)), ("20/10s".into(), "5/min".into()));
    }
}
