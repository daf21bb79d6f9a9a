//! Durations, sizes and rates of several sources as a gateway.yaml writes them.

/// A duration of Go in milliseconds, such as `1m30s`. A number alone has the unit `default`, in milliseconds.
pub(crate) fn milliseconds(text: &str, default: u64) -> Option<u64> {
    let text = text.trim();
    if let Ok(number) = text.parse::<u64>() {
        return number.checked_mul(default);
    }
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let end = rest[digits..]
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .map_or(rest.len(), |end| digits + end);
        let unit = match &rest[digits..end] {
            "ns" => 1e-6,
            "us" | "µs" => 1e-3,
            "ms" => 1.0,
            "s" => 1e3,
            "m" => 6e4,
            "h" => 3.6e6,
            _ => return None,
        };
        total += number * unit;
        rest = &rest[end..];
    }
    let whole = total.round();
    // The cast is exact: a duration of less than 2^53 ms.
    (!text.is_empty() && (0.0..9e15).contains(&whole)).then_some(whole as u64)
}

/// A duration as the gateway writes it.
pub(crate) fn time(milliseconds: u64) -> String {
    match milliseconds {
        ms if ms % 1000 != 0 => format!("{ms}ms"),
        ms => format!("{}s", ms / 1000),
    }
}

/// A rate as the gateway writes it.
pub(crate) fn rate(count: u64, period: u64) -> String {
    let unit = match period {
        1_000 => "s".to_owned(),
        60_000 => "min".to_owned(),
        3_600_000 => "h".to_owned(),
        86_400_000 => "day".to_owned(),
        ms if ms % 86_400_000 == 0 => format!("{}d", ms / 86_400_000),
        ms => time(ms),
    };
    format!("{count}/{unit}")
}

/// A size of nginx as the gateway writes it.
pub(crate) fn size(text: &str) -> Option<String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].to_ascii_lowercase().as_str() {
        "" => "",
        "k" => "KiB",
        "m" => "MiB",
        "g" => "GiB",
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_rates() {
        assert_eq!(milliseconds("1m30s", 1), Some(90_000));
        assert_eq!((milliseconds("1.5s", 1), milliseconds("10", 1000)), (Some(1500), Some(10_000)));
        assert_eq!((milliseconds("", 1), milliseconds("1x", 1), milliseconds("s", 1)), (None, None, None));
        assert_eq!((time(1500), time(60_000)), ("1500ms".into(), "60s".into()));
        assert_eq!(
            (rate(5, 60_000), rate(5, 15_000), rate(5, 2_592_000_000)),
            ("5/min".into(), "5/15s".into(), "5/30d".into())
        );
        assert_eq!((size("8m").as_deref(), size("0"), size("8x")), (Some("8MiB"), Some("0".into()), None));
    }
}
