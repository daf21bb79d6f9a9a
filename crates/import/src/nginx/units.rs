//! Sizes, times and rates of nginx, and its variables in texts.

/// A piece of a text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(String),
    /// The name without the dollar.
    Variable(String),
}

/// The pieces of a text.
pub(super) fn pieces(text: &str) -> Vec<Piece> {
    let mut out = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        literal += before;
        let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let (name, next) = braced.unwrap_or_else(|| after.split_at(end));
        if name.is_empty() {
            literal.push('$');
            rest = after;
            continue;
        }
        if !literal.is_empty() {
            out.push(Piece::Literal(std::mem::take(&mut literal)));
        }
        out.push(Piece::Variable(name.to_owned()));
        rest = next;
    }
    literal += rest;
    if !literal.is_empty() {
        out.push(Piece::Literal(literal));
    }
    out
}

/// A time as the gateway writes it: `60s` of `60`, `1m`, `1h30m`, `500ms`.
pub(super) fn time(text: &str) -> Option<String> {
    let ms = milliseconds(text)?;
    Some(if ms % 1000 == 0 { format!("{}s", ms / 1000) } else { format!("{ms}ms") })
}

/// A time in milliseconds.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let mut total = 0_u64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().ok()?;
        let unit_end =
            rest[digits..].find(|c: char| !c.is_ascii_alphabetic()).map_or(rest.len(), |end| digits + end);
        let unit = match &rest[digits..unit_end] {
            "ms" => 1,
            "" | "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            "M" => 2_592_000_000,
            "y" => 31_536_000_000,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = rest[unit_end..].trim_start();
    }
    Some(total)
}

/// A size as the gateway writes it: `10MiB` of `10m`.
pub(super) fn size(text: &str) -> Option<String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = match unit {
        "" => "",
        "k" | "K" => "KiB",
        "m" | "M" => "MiB",
        "g" | "G" => "GiB",
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}

/// The value of a parameter such as `burst=5`.
pub(super) fn parameter<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
}

/// Whether there is a parameter without a value, such as `nodelay`.
pub(super) fn flag(args: &[String], name: &str) -> bool {
    args.iter().any(|arg| arg == name)
}

/// A name that the gateway accepts, for limits, upstreams and routes: other characters become hyphens.
pub(super) fn name(text: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') { c } else { '-' };
    let mapped: String = text.chars().map(kept).collect();
    let parts: Vec<_> = mapped.split('-').filter(|part| !part.is_empty()).collect();
    let mut joined = parts.join("-");
    joined.truncate(48);
    if joined.is_empty() { "unnamed".to_owned() } else { joined }
}

/// A name that is not taken yet.
pub(super) fn unused(wanted: &str, taken: &dyn Fn(&str) -> bool) -> String {
    if !taken(wanted) {
        return wanted.to_owned();
    }
    (2..).map(|n| format!("{wanted}-{n}")).find(|name| !taken(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_nginx() {
        assert_eq!(time("60").as_deref(), Some("60s"));
        assert_eq!(time("1h30m").as_deref(), Some("5400s"));
        assert_eq!(time("1m 30s").as_deref(), Some("90s"));
        assert_eq!(time("500ms").as_deref(), Some("500ms"));
        assert_eq!((time("x"), time(""), time("99999999999999999999y")), (None, None, None));
        assert_eq!(size("10m").as_deref(), Some("10MiB"));
        assert_eq!((size("512").as_deref(), size("1t")), (Some("512"), None));
        assert_eq!(
            (name("api.example.com /v1/"), name("~ \\.php$")),
            ("api.example.com-v1".into(), ".php".into())
        );
        let variable = |name: &str| Piece::Variable(name.into());
        let literal = |text: &str| Piece::Literal(text.into());
        assert_eq!(pieces("$binary_remote_addr"), [variable("binary_remote_addr")]);
        assert_eq!(
            pieces("a${b}c$d$"),
            [literal("a"), variable("b"), literal("c"), variable("d"), literal("$")]
        );
    }
}
