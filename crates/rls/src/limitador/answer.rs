//! What is answered: headers, and the JSON of limits and counters.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::file::Limit;
use crate::plan::Outcome;

/// The rate limit headers of an answer, in the form of draft-polli-ratelimit-headers-03; none if no limit applies. First comes the
/// limit with the fewest hits left.
pub fn headers(outcomes: &[(&Limit, Outcome)]) -> Vec<(&'static str, String)> {
    let mut sorted: Vec<_> = outcomes.iter().collect();
    sorted.sort_by_key(|(_, outcome)| outcome.remaining);
    let Some((first, outcome)) = sorted.first() else { return Vec::new() };
    let mut limits = first.max_value.to_string();
    for (limit, _) in &sorted {
        // Writing to a String cannot fail.
        let _ = write!(limits, ", {};w={}", limit.max_value, limit.seconds);
        if let Some(name) = &limit.name {
            let is_allowed = |c: char| (c == ' ' || c.is_ascii_graphic()) && !matches!(c, '"' | '\\');
            let _ = write!(limits, ";name=\"{}\"", name.replace(|c| !is_allowed(c), "'"));
        }
    }
    vec![
        ("x-ratelimit-limit", limits),
        ("x-ratelimit-remaining", outcome.remaining.to_string()),
        ("x-ratelimit-reset", seconds(*outcome).to_string()),
    ]
}

/// Limits in JSON.
pub fn limits<'l>(limits: impl IntoIterator<Item = &'l Limit>) -> Value {
    limits.into_iter().map(limit).collect()
}

/// Counters in JSON. Those that have counted nothing are left out.
pub fn counters(outcomes: &[(&Limit, Outcome)]) -> Value {
    let used = outcomes.iter().filter(|(limit, outcome)| outcome.remaining < limit.max_value.into());
    let counter = |(one, outcome): &(&Limit, Outcome)| {
        json!({
            "limit": limit(one),
            "set_variables": {},
            "remaining": outcome.remaining,
            "expires_in_seconds": seconds(*outcome),
        })
    };
    used.map(counter).collect()
}

fn limit(limit: &Limit) -> Value {
    json!({
        "id": limit.id,
        "namespace": limit.namespace,
        "max_value": limit.max_value,
        "seconds": limit.seconds,
        "name": limit.name,
        "conditions": limit.conditions.iter().map(|(text, _)| text).collect::<Vec<_>>(),
        "variables": limit.variables.iter().map(|(text, _)| text).collect::<Vec<_>>(),
    })
}

fn seconds(outcome: Outcome) -> u64 {
    outcome.reset.as_secs() + u64::from(outcome.reset.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluicegate_config::Report;

    use super::super::file::parse;
    use super::*;

    #[test]
    fn the_limit_with_the_fewest_hits_left_comes_first() {
        let file = "\
- {namespace: web, max_value: 100, seconds: 60, name: \"a \\\"b\\\"\\n\"}
- {namespace: web, max_value: 5, seconds: 1, id: one}
";
        let all = parse(file, &mut Report::default()).unwrap();
        let of =
            |remaining, reset| Outcome { admitted: true, remaining, reset: Duration::from_millis(reset) };
        let outcomes = [(&all[0], of(100, 60_000)), (&all[1], of(4, 900))];
        let said = headers(&outcomes);
        let said: Vec<_> = said.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert_eq!(
            said,
            [
                ("x-ratelimit-limit", "5, 5;w=1, 100;w=60;name=\"a 'b''\""),
                ("x-ratelimit-remaining", "4"),
                ("x-ratelimit-reset", "1"),
            ]
        );
        assert_eq!(headers(&[]), []);
        let counters = counters(&outcomes);
        assert_eq!(counters.as_array().map(Vec::len), Some(1), "{counters}");
        assert_eq!(counters[0]["limit"], limits([&all[1]])[0]);
        assert_eq!(counters[0]["limit"]["id"], "one");
    }
}
