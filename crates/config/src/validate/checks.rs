//! What many sections validate: durations, counts, words, names, secrets.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::HeaderName;

use crate::language::secret::Secret;
use crate::language::values;
use crate::raw::scalars::{RawCount, RawSecret};
use crate::read::at::{At, Folder, utf8_text};
use crate::read::foreign;
use crate::read::report::{Mistake, Place, Problem, Report};

/// Names go into metrics, headers and files.
const MAX_NAME: usize = 64;

/// `text` read by `parse`, whose mistake is reported at its place.
pub(super) fn value<T, E: Into<Mistake>>(
    text: &At<String>,
    report: &mut Report,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    parse(&text.value).map_err(|mistake| report.error(mistake.into().at(text.at))).ok()
}

/// A duration between two bounds, which are given as values and as messages show them.
pub(super) fn between(
    text: &At<String>,
    field: &str,
    (least, least_text): (Duration, &str),
    (most, most_text): (Duration, &str),
    report: &mut Report,
) -> Option<Duration> {
    value(text, report, |text| match text {
        "0" | "0s" if least.is_zero() => Ok(least),
        _ => match values::duration(text)? {
            fits if (least..=most).contains(&fits) => Ok(fits),
            _ => Err(Mistake::new(format!("`{field}` is between {least_text} and {most_text}, not {text}"))),
        },
    })
}

/// A duration of at most `most`, which is given as a value and as messages show it.
pub(super) fn at_most(
    text: &At<String>,
    field: &str,
    (most, most_text): (Duration, &str),
    report: &mut Report,
) -> Option<Duration> {
    value(text, report, |text| match values::duration(text)? {
        fits if fits <= most => Ok(fits),
        _ => Err(Mistake::new(format!("`{field}` is at most {most_text}, not {text}"))),
    })
}

pub(super) fn in_range(
    count: &At<RawCount>,
    range: RangeInclusive<u64>,
    field: &str,
    report: &mut Report,
) -> Option<u64> {
    let n = count.value.0;
    if range.contains(&n) {
        return Some(n);
    }
    let message = values::outside(&format!("`{field}`"), *range.start(), *range.end(), n);
    report.error(count.problem(message));
    None
}

/// A secret, empty if there is none; `None` if its file cannot be read, and that is reported.
pub(super) fn secret(raw: Option<&At<RawSecret>>, folder: Folder<'_>, report: &mut Report) -> Option<Secret> {
    match raw.map(|raw| &raw.value) {
        None => Some(Secret::default()),
        Some(RawSecret::Value(value)) => Some(Secret::new(value)),
        Some(RawSecret::File(path)) => {
            let bytes = folder.content(path, report)?.bytes;
            let text = utf8_text(bytes)
                .map_err(|error| report.error(path.problem(format!("cannot read {}: {error}", path.value))));
            text.ok().map(|text| Secret::new(text.trim()))
        }
    }
}

/// One of a few words.
pub(super) fn word<T: Copy>(
    text: &At<String>,
    what: &str,
    words: &[(&str, T)],
    report: &mut Report,
) -> Option<T> {
    if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text.value) {
        return Some(*meaning);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let problem = text.problem(format!("unknown {what} `{}`", text.value));
    if let Some(help) = foreign::word(what, &text.value) {
        report.error(problem.help(help));
        return None;
    }
    let otherwise = || format!("known: {}", known.join(", "));
    report.error(problem.did_you_mean(&text.value, known.iter().copied(), otherwise));
    None
}

/// Reports a field that `what` needs and does not have. One that is among the `wrong` ones is there, and reported.
pub(super) fn missing(
    at: Place,
    what: &str,
    (field, example): (&str, &str),
    wrong: &[&str],
    report: &mut Report,
) {
    if !wrong.contains(&field) {
        report.error(
            Problem::new(at, format!("{what} needs `{field}`")).help(format!("such as `{field}: {example}`")),
        );
    }
}

/// Reports if not exactly one of three fields is given. The two helps are for none and for several. Fields in `wrong`
/// are already reported.
pub(super) fn exactly_one(
    at: Place,
    what: &str,
    fields: [(&str, Option<Place>); 3],
    [none, several]: [&str; 2],
    wrong: &[&str],
    report: &mut Report,
) {
    let mut given = fields.iter().filter_map(|(name, at)| Some((name, (*at)?)));
    let Some((first, _)) = given.next() else {
        if !fields.iter().any(|(name, _)| wrong.contains(name)) {
            let [(a, _), (b, _), (c, _)] = fields;
            report.error(Problem::new(at, format!("{what} needs one of `{a}`, `{b}` and `{c}`")).help(none));
        }
        return;
    };
    for (name, at) in given {
        report.error(Problem::new(at, format!("{what} has `{first}` and `{name}`")).help(several));
    }
}

/// Reports a list without items.
pub(super) fn empty(at: Place, field: &str, help: &str, report: &mut Report) {
    report.error(Problem::new(at, format!("`{field}` is empty")).help(help));
}

/// Names go into label values and structured headers as they are.
pub(super) fn check_name(name: &At<String>, what: &str, report: &mut Report) {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.value.is_empty() || name.value.len() > MAX_NAME || !name.value.bytes().all(good) {
        let article = if what.starts_with('u') { "an" } else { "a" };
        report.error(
            name.problem(format!("`{}` cannot be the name of {article} {what}", name.value))
                .help(format!("use up to {MAX_NAME} letters, digits, dots, hyphens and underscores")),
        );
    }
}

pub(super) fn header_name(text: &str) -> Result<HeaderName, Mistake> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| match text {
        "" => Mistake::new("a header needs a name"),
        _ => Mistake::new(format!("`{text}` is not a header name")),
    })
}

pub(super) fn max_head(text: &At<String>, report: &mut Report) -> Option<u64> {
    value(text, report, |text| match values::bytes(text)? {
        bytes @ 0x2000..=0x10_0000 => Ok(bytes),
        _ => Err(Mistake::new(format!("`max_head` is between 8KiB and 1MiB, not {text}"))),
    })
}

pub(super) fn max_body(text: &At<String>, report: &mut Report) -> Option<u64> {
    value(text, report, |text| {
        values::bytes(text).map_err(|mistake| match text.contains(|c: char| c.is_ascii_digit()) {
            true => mistake,
            false => mistake.help("leave `max_body` out for no bound"),
        })
    })
}
