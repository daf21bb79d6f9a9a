//! Rates, durations, sizes and counts in other common spellings -> the spelling of this file.
//!
//! The result is shown as help below an error; it is never used as the value.

const SECOND: u128 = 1_000_000_000;
const MINUTE: u128 = 60 * SECOND;
const HOUR: u128 = 60 * MINUTE;
const DAY: u128 = 24 * HOUR;

/// A unit of time.
pub(crate) struct Unit {
    /// Its name in durations.
    name: &'static str,
    /// Its name in rates.
    alone: &'static str,
    /// Its length in nanoseconds.
    pub(crate) nanos: u128,
    /// The spellings that the file accepts.
    pub(crate) accepted: &'static [&'static str],
    /// Other common spellings.
    others: &'static [&'static str],
}

const fn unit(
    [name, alone]: [&'static str; 2],
    nanos: u128,
    accepted: &'static [&'static str],
    others: &'static [&'static str],
) -> Unit {
    Unit { name, alone, nanos, accepted, others }
}

/// From the shortest to the longest.
pub(crate) const UNITS: [Unit; 7] = [
    unit(["us", "us"], 1_000, &["us"], &["µs", "μs", "usec", "usecs", "microsecond", "microseconds"]),
    unit(["ms", "ms"], 1_000_000, &["ms"], &["msec", "msecs", "millis", "millisecond", "milliseconds"]),
    unit(["s", "s"], SECOND, &["s", "sec", "secs", "second", "seconds"], &[]),
    unit(["min", "min"], MINUTE, &["m", "min", "mins", "minute", "minutes"], &["mn"]),
    unit(["h", "h"], HOUR, &["h", "hour", "hours"], &["hr", "hrs"]),
    unit(["d", "day"], DAY, &["d", "day", "days"], &[]),
    unit(["w", "week"], 7 * DAY, &["w"], &["wk", "week", "weeks"]),
];

/// Nouns after the count of a rate. They are ignored.
const NOUNS: [&str; 14] = [
    "r", "req", "reqs", "request", "requests", "query", "queries", "call", "calls", "hit", "hits", "time",
    "times", "x",
];

/// Rates in one word: requests per second, and their like.
const PER: [(&str, usize); 10] = [
    ("rps", 2),
    ("qps", 2),
    ("tps", 2),
    ("ps", 2),
    ("rpm", 3),
    ("qpm", 3),
    ("rph", 4),
    ("qph", 4),
    ("rpd", 5),
    ("qpd", 5),
];

/// Factors of sizes: their name, the factor, how else people name it, and the next smaller one.
const SIZES: [(&str, u128, &[&str], &str); 9] = [
    ("", 1, &["b", "byte", "bytes"], ""),
    ("kB", 1_000, &["k", "kb", "kbyte", "kbytes", "kilobyte", "kilobytes"], ""),
    ("MB", 1_000_000, &["m", "mb", "mbyte", "mbytes", "megabyte", "megabytes", "mo"], "kB"),
    ("GB", 1_000_000_000, &["g", "gb", "gbyte", "gbytes", "gigabyte", "gigabytes", "go"], "MB"),
    ("KiB", 1 << 10, &["ki", "kib", "kibibyte", "kibibytes"], ""),
    ("MiB", 1 << 20, &["mi", "mib", "mebibyte", "mebibytes"], "KiB"),
    ("GiB", 1 << 30, &["gi", "gib", "gibibyte", "gibibytes"], "MiB"),
    ("TB", 1_000_000_000_000, &["t", "tb", "terabyte", "terabytes", "to"], "GB"),
    ("TiB", 1 << 40, &["ti", "tib", "tebibyte", "tebibytes"], "GiB"),
];

/// `10 requests per second` -> `10/s`; `0.5/s` -> `1/2s`.
pub(crate) fn rate(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let mut words = Words::new(&lower);
    let count = words.decimal()?;
    let magnitude = words.magnitude();
    while words.eat(&NOUNS) {}
    let (period, unit) = match PER.iter().find(|(word, _)| words.eat(&[word])) {
        Some((_, unit)) => (Decimal::ONE, &UNITS[*unit]),
        None => {
            if !words.eat_sign('/') && !words.eat(&["per", "every", "each", "a", "an", "in"]) {
                return None;
            }
            words.eat(&["every", "each", "a", "an"]);
            let number = words.decimal();
            if number.is_none() && words.eat(&["month", "months", "mo", "mth"]) {
                words.end()?;
                let (count, 1) = count.times(magnitude)?.reduced() else { return None };
                return Some(format!("{}/month", short(count, magnitude)));
            }
            (number.unwrap_or(Decimal::ONE), words.unit()?)
        }
    };
    words.end()?;
    // A fraction of a request in a period is a whole request in a longer one.
    let (count, every) = count.times(magnitude)?.reduced();
    let period = period.times(every)?;
    let count = short(count, magnitude);
    match period.reduced() {
        (1, 1) => Some(format!("{count}/{}", unit.alone)),
        _ => Some(format!("{count}/{}", spelled(period, unit)?)),
    }
}

/// `10 seconds` -> `10s`; `1.5s` -> `1500ms`.
pub(crate) fn duration(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let mut words = Words::new(&lower);
    words.eat(&["pt"]); // ISO 8601
    let mut parts = String::new();
    loop {
        let number = words.decimal()?;
        if words.rest.is_empty() && parts.is_empty() {
            return spelled(number, &UNITS[2]);
        }
        parts += &spelled(number, words.unit()?)?;
        words.eat(&["and"]);
        words.eat_sign(',');
        if words.rest.is_empty() {
            return Some(parts);
        }
    }
}

/// `1.5 MB` -> `1500kB`; `10 megabytes` -> `10MB`.
pub(crate) fn size(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let mut words = Words::new(&lower);
    let number = words.decimal()?;
    let word = words.word();
    words.end()?;
    let (mut name, mut factor, _, mut smaller) =
        *SIZES.iter().find(|(name, _, others, _)| *name == word || others.contains(&word))?;
    let bytes = number.times(factor)?;
    let (bytes, 1) = bytes.reduced() else { return None };
    while !bytes.is_multiple_of(factor) || factor > 1 << 30 {
        (name, factor, _, smaller) = *SIZES.iter().find(|(name, ..)| *name == smaller)?;
    }
    Some(format!("{}{name}", bytes / factor))
}

/// `1,000` -> `1000`; `1.5k` -> `1500`.
pub(crate) fn count(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let mut words = Words::new(&lower);
    let number = words.decimal()?;
    let magnitude = words.magnitude();
    while words.eat(&NOUNS) {}
    words.end()?;
    match (number.reduced(), magnitude) {
        ((n, 1), 1_000) => Some(format!("{n}k")),
        ((n, 1), 1_000_000) => Some(format!("{n}M")),
        (_, _) => match number.times(magnitude)?.reduced() {
            (n, 1) => Some(n.to_string()),
            _ => None,
        },
    }
}

/// A count in the magnitude in which it was written, if it is whole in that.
fn short(count: u128, magnitude: u128) -> String {
    match (magnitude, count / magnitude) {
        (1_000, n) if n > 0 && count.is_multiple_of(magnitude) => format!("{n}k"),
        (1_000_000, n) if n > 0 && count.is_multiple_of(magnitude) => format!("{n}M"),
        _ => count.to_string(),
    }
}

/// A number of units as whole ones, or as whole ones of the next smaller unit that has any.
fn spelled(number: Decimal, unit: &Unit) -> Option<String> {
    let (nanos, 1) = number.times(unit.nanos)?.reduced() else { return None };
    let fits = |smaller: &&Unit| smaller.nanos <= unit.nanos && nanos.is_multiple_of(smaller.nanos);
    let unit = UNITS.iter().rev().find(fits)?;
    Some(format!("{}{}", nanos / unit.nanos, unit.name))
}

/// A number with digits behind the point: `1.5` is 15 / 10.
#[derive(Clone, Copy)]
struct Decimal {
    digits: u128,
    scale: u128,
}

impl Decimal {
    const ONE: Self = Self { digits: 1, scale: 1 };

    fn times(self, factor: u128) -> Option<Self> {
        Some(Self { digits: self.digits.checked_mul(factor)?, scale: self.scale })
    }

    /// Numerator and denominator without a common divisor.
    fn reduced(self) -> (u128, u128) {
        let (mut a, mut b) = (self.digits, self.scale);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        (self.digits / a, self.scale / a)
    }
}

/// The unread rest of a text in lower case, without leading white space.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.trim() }
    }

    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest[bytes..].trim_start();
    }

    /// A number: `10`, `1.5`, `0,5`, `1,000`, `1_000`. None of one that could be either of two.
    fn decimal(&mut self) -> Option<Decimal> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut end = digits(self.rest);
        let mut plain = self.rest[..end].to_owned();
        let mut places = 0;
        while let Some(mark @ (b'.' | b',' | b'_')) = self.rest.as_bytes().get(end) {
            let more = digits(&self.rest[end + 1..]);
            match (mark, more) {
                (_, 0) => break,
                (b'_', _) => {}
                // A comma before three digits groups them; a point there may group them in other countries.
                (b',', 3) if !plain.starts_with('0') => {}
                (b'.', 3) if plain.len() <= 3 && !plain.starts_with('0') => return None,
                _ if places > 0 => return None,
                _ => places = more,
            }
            plain += &self.rest[end + 1..end + 1 + more];
            end += 1 + more;
        }
        let digits = plain.parse::<u64>().ok().filter(|_| places <= 9)?;
        self.advance(end);
        Some(Decimal { digits: digits.into(), scale: 10_u128.pow(places as u32) })
    }

    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| !c.is_alphabetic()).unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        self.advance(end);
        word
    }

    /// Takes the next word if it is one of these.
    fn eat(&mut self, known: &[&str]) -> bool {
        let mut ahead = Self { rest: self.rest };
        let eaten = known.contains(&ahead.word());
        if eaten {
            *self = ahead;
        }
        eaten
    }

    fn eat_sign(&mut self, sign: char) -> bool {
        let eaten = self.rest.starts_with(sign);
        if eaten {
            self.advance(sign.len_utf8());
        }
        eaten
    }

    fn magnitude(&mut self) -> u128 {
        match () {
            () if self.eat(&["k", "thousand"]) => 1_000,
            () if self.eat(&["m", "mio", "million"]) => 1_000_000,
            () if self.eat(&["g", "billion"]) => 1_000_000_000,
            () => 1,
        }
    }

    fn unit(&mut self) -> Option<&'static Unit> {
        let word = self.word();
        UNITS.iter().find(|unit| unit.accepted.contains(&word) || unit.others.contains(&word))
    }

    /// Whether nothing is left but a full stop.
    fn end(&mut self) -> Option<()> {
        self.eat_sign('.');
        self.rest.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(suggest: impl Fn(&str) -> Option<String>, pairs: &[(&str, Option<&str>)]) {
        for (text, expected) in pairs {
            assert_eq!(suggest(text).as_deref(), *expected, "{text}");
        }
    }

    #[test]
    fn rates_in_other_words() {
        all(
            rate,
            &[
                ("10r/s", Some("10/s")),
                ("100 per minute", Some("100/min")),
                ("0.5/s", Some("1/2s")),
                ("0,5/s", Some("1/2s")),
                ("1.5/s", Some("3/2s")),
                ("2.5k/min", Some("2500/min")),
                ("10rps", Some("10/s")),
                ("600 rpm", Some("600/min")),
                ("1/sec.", Some("1/s")),
                ("5 req/s", Some("5/s")),
                ("10 requests every 15 seconds", Some("10/15s")),
                ("5/1.5s", Some("5/1500ms")),
                ("1,000/hour", Some("1000/h")),
                ("10k requests a day", Some("10k/day")),
                ("1/0.5s", Some("1/500ms")),
                ("100/Min", Some("100/min")),
                ("0.1/min", Some("1/10min")),
                ("10m/h", Some("10M/h")),
                ("1M per month", Some("1M/month")),
                ("5 a week", Some("5/week")),
                ("0.5/month", None),
                ("100/fortnight", None),
                ("100", None),
                ("1.500/s", None),
                ("", None),
                ("/s", None),
                ("99999999999999999999/s", None),
            ],
        );
    }

    #[test]
    fn durations_in_other_words() {
        all(
            duration,
            &[
                ("1.5s", Some("1500ms")),
                ("10 seconds", Some("10s")),
                ("30", Some("30s")),
                ("1 h 30 m", Some("1h30min")),
                ("1 hour and 30 minutes", Some("1h30min")),
                ("0.5 days", Some("12h")),
                ("PT30S", Some("30s")),
                ("250 µs", Some("250us")),
                ("30Sec", Some("30s")),
                ("1 fortnight", None),
                ("soon", None),
                ("", None),
            ],
        );
    }

    #[test]
    fn sizes_and_counts_in_other_words() {
        all(
            size,
            &[
                ("10 megabytes", Some("10MB")),
                ("1.5MB", Some("1500kB")),
                ("1.5MiB", Some("1536KiB")),
                ("10Mi", Some("10MiB")),
                ("10TB", Some("10000GB")),
                ("1,000", Some("1000")),
                ("0.3KiB", None),
                ("much", None),
            ],
        );
        all(
            count,
            &[
                ("1,000", Some("1000")),
                ("1_000", Some("1000")),
                ("1.5k", Some("1500")),
                ("10 k", Some("10k")),
                ("10m", Some("10M")),
                ("100 requests", Some("100")),
                ("2.5", None),
                ("many", None),
            ],
        );
    }
}
