//! What programs that collect logs put around a line.

use std::borrow::Cow;

use serde::Deserialize;

/// The line inside one of docker's `json-file`.
pub(super) fn docker(line: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Wrapper<'a> {
        #[serde(borrow)]
        log: Cow<'a, str>,
        #[serde(borrow, rename = "stream")]
        _stream: &'a str,
    }
    // Few lines have this member, and all of docker's begin with it.
    line.contains("\"stream\"")
        .then(|| serde_json::from_str(line).ok())
        .flatten()
        .map(|Wrapper { log, .. }| log)
}

/// The line inside one of the container runtime interface: `TIME STREAM F LINE`.
pub(super) fn of_cri(line: &str) -> &str {
    line.splitn(4, ' ').nth(3).unwrap_or_default()
}

/// The line inside `TIME HOST TAG: LINE`.
pub(super) fn of_syslog(line: &str) -> &str {
    line.splitn(4, ' ').nth(3).unwrap_or_default().trim_start()
}

/// The line inside `<190>Nov 27 06:00:00 HOST TAG: LINE`, with or without the number (RFC 3164), or inside
/// `<190>1 2026-11-27T06:00:00Z HOST TAG - - - LINE` (RFC 5424).
pub(super) fn syslog(line: &str) -> Option<&str> {
    let priority = line.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    let rest = match priority {
        Some((digits, rest)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => line,
    };
    if priority.is_some() && rest.starts_with("1 ") {
        return rest.splitn(8, ' ').nth(7);
    }
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let is_dated =
        MONTHS.iter().any(|month| rest.starts_with(month)) && rest.as_bytes().get(3) == Some(&b' ');
    if !is_dated {
        return priority.and_then(|_| rest.split_once(": ")).map(|(_, inner)| inner);
    }
    // `Nov 27 06:00:00` has 15 characters; a tag ends in a colon.
    let behind = rest.get(16..)?;
    let (_, inner) = behind.split_once(": ")?;
    Some(inner.trim_start())
}

#[cfg(test)]
mod tests {
    use super::super::LineParser;

    #[test]
    fn logs_inside_each_other_are_bounded() {
        let inner = "192.0.2.1 - - [03/Jul/2024:12:00:00 +0200] \"GET / HTTP/1.1\" 200 5";
        for wrapper in [
            "2024-07-03T10:00:00.1Z stdout F ",
            "<190>Jul  3 10:00:00 host nginx: ",
            "2024-07-03T10:00:00Z host nginx: ",
        ] {
            let parse = |times: usize| {
                LineParser::default().parse(format!("{}{inner}", wrapper.repeat(times)).as_bytes())
            };
            assert!(parse(1).unwrap().is_some() && parse(3).unwrap().is_some(), "{wrapper}");
            assert!(parse(4).is_err() && parse(20_000).is_err(), "{wrapper}");
        }
    }
}
