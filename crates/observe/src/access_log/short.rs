//! The format `short`, for people: a few values in a fixed order, then optional values with their names.
//!
//! ```text
//! 2026-11-22T17:05:00.123Z 203.0.113.9 GET api.test /v1/hello 429 254B 0.4ms route=api reason=limit limit=per-key id=2b2221aa7b924576
//! ```
//!
//! The query is left out: it may hold secrets under any name.

use std::io::Write as _;

use super::line::MAX_VALUE;
use super::record::{End, Record, without_user};
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_wire::number::write_decimal;

/// Appends a request. `second` is the date of its start without fraction and zone.
pub(super) fn short(out: &mut Vec<u8>, record: &Record, end: &End<'_>, second: &str) {
    let millis = (end.begun.as_nanos() / 1_000_000 % 1_000) as u16;
    out.extend_from_slice(second.as_bytes());
    out.extend_from_slice(&[b'.', digit(millis / 100), digit(millis / 10), digit(millis), b'Z', b' ']);
    let _ = write!(out, "{} ", record.client); // memory grows; nothing fails
    let head = record.head.as_ref();
    word(out, head.map(|head| head.method.as_str().as_bytes()));
    out.push(b' ');
    word(out, head.and_then(|head| head.host.as_deref()));
    out.push(b' ');
    // CONNECT has no path.
    let path = head.map(|head| match head.target.path() {
        "" => without_user(head.target.authority().unwrap_or_default().as_bytes()),
        path => path.as_bytes(),
    });
    word(out, path);
    let tenths = end.took.as_nanos() / 100_000;
    out.push(b' ');
    write_decimal(out, u64::from(end.code));
    out.push(b' ');
    write_decimal(out, end.sent);
    out.extend_from_slice(b"B ");
    write_decimal(out, tenths / 10);
    out.extend_from_slice(&[b'.', digit((tenths % 10) as u16), b'm', b's']);
    // Only refused requests show the limit; the headers of other answers name it.
    let limit =
        record.limit.filter(|_| matches!(end.reason, Some(RefusalReason::Limit | RefusalReason::Ban)));
    let shadow = (!record.shadow.is_empty()).then(|| {
        let names: Vec<&str> = record.shadow.iter().map(|index| end.names.limit(*index)).collect();
        names.join(",").into_bytes()
    });
    for (name, value) in [
        (" route=", end.route.map(str::as_bytes)),
        (" reason=", end.reason.map(|reason| reason.name().as_bytes())),
        (" cut=", end.cut.map(|cut| cut.name().as_bytes())),
        (" limit=", limit.map(|(index, _)| end.names.limit(index).as_bytes())),
        (" shadow=", shadow.as_deref()),
        (" server=", record.server.as_ref().map(|server| server.as_bytes())),
        (" id=", Some(end.id.as_bytes())),
    ] {
        if value.is_some() {
            out.extend_from_slice(name.as_bytes());
            word(out, value);
        }
    }
}

fn digit(number: u16) -> u8 {
    b'0' + (number % 10) as u8
}

/// A value as one word: bytes other than visible ASCII are written as `\xHH`, and a missing value as `-`.
fn word(out: &mut Vec<u8>, value: Option<&[u8]>) {
    let value = value.filter(|value| !value.is_empty()).unwrap_or(b"-");
    let value = &value[..value.len().min(MAX_VALUE)];
    let is_plain = |byte: &u8| matches!(byte, b'!'..=b'~') && !matches!(byte, b'"' | b'\\');
    if value.iter().all(is_plain) {
        return out.extend_from_slice(value); // the usual case
    }
    for byte in value {
        match byte {
            byte if is_plain(byte) => out.push(*byte),
            _ => _ = write!(out, "\\x{byte:02X}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_one_word() {
        let mut out = Vec::new();
        word(&mut out, Some(b"a b\"\\\r\n\x1b\xff~"));
        out.push(b' ');
        word(&mut out, Some(b""));
        word(&mut out, None);
        assert_eq!(String::from_utf8(out).unwrap(), r"a\x20b\x22\x5C\x0D\x0A\x1B\xFF~ --");
    }
}
