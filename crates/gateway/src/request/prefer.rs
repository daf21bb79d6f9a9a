//! What a client says of answers that come later: `Prefer: respond-async, wait=10` (RFC 7240).

use sluicegate_limiter::Span;
use sluicegate_wire::Headers;

/// The name of the header.
pub(super) const PREFER: &str = "prefer";
const RESPOND_ASYNC: &str = "respond-async";
const WAIT: &str = "wait";

/// What a client prefers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Prefer {
    /// It takes 202 for an answer.
    pub(super) respond_async: bool,
    /// It does not want to wait for longer.
    pub(super) wait: Option<Span>,
}

impl Prefer {
    /// What these headers say; of a preference that is given twice, the first counts.
    pub(super) fn of(headers: &Headers) -> Self {
        let mut prefer = Self::default();
        for preference in headers.get_all(PREFER).flat_map(preferences) {
            let (name, value) = pair(preference);
            if name.eq_ignore_ascii_case(RESPOND_ASYNC.as_bytes()) {
                prefer.respond_async = true;
            }
            if name.eq_ignore_ascii_case(WAIT.as_bytes()) && prefer.wait.is_none() {
                let seconds = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u32>().ok());
                prefer.wait = seconds.map(|seconds| Span::from_secs(seconds.into()));
            }
        }
        prefer
    }

    /// How long the client waits at most for the limits to admit its request; `None` if it does not say.
    pub(super) fn patience(self) -> Option<Span> {
        self.wait.or(self.respond_async.then_some(Span::ZERO))
    }
}

/// Removes from a header what the gateway has applied itself. `None` if nothing is left.
pub(super) fn without_applied(value: &[u8]) -> Option<Vec<u8>> {
    let is_applied = |preference: &&[u8]| {
        let name = pair(preference).0;
        [RESPOND_ASYNC, WAIT].iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
    };
    let left: Vec<&[u8]> = preferences(value).filter(|preference| !is_applied(preference)).collect();
    (!left.is_empty()).then(|| left.join(&b", "[..]))
}

/// The preferences of a header. A quoted value with a comma is taken apart, which makes it none that is known here.
fn preferences(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|preference| !preference.is_empty())
}

/// The name and the value of a preference, without its parameters.
fn pair(preference: &[u8]) -> (&[u8], &[u8]) {
    let first = preference.split(|byte| *byte == b';').next().unwrap_or_default();
    let mut parts = first.splitn(2, |byte| *byte == b'=').map(<[u8]>::trim_ascii);
    let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    (name, value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> (bool, Option<u64>, Option<u64>) {
        let mut headers = Headers::new();
        values.iter().for_each(|value| headers.append(PREFER, value));
        let prefer = Prefer::of(&headers);
        let secs = |span: Span| span.ceil_secs();
        (prefer.respond_async, prefer.wait.map(secs), prefer.patience().map(secs))
    }

    #[test]
    fn preferences_are_read() {
        assert_eq!(of(&[]), (false, None, None));
        assert_eq!(of(&["respond-async"]), (true, None, Some(0)));
        assert_eq!(of(&["Respond-Async; x=1, WAIT = \"7\""]), (true, Some(7), Some(7)));
        assert_eq!(of(&["return=minimal", "wait=3, wait=9"]), (false, Some(3), Some(3)));
        assert_eq!(of(&["wait=-1, wait, respond-asynch, ,"]), (false, None, None));
        assert_eq!(of(&["wait=99999999999"]), (false, None, None));
    }

    #[test]
    fn what_was_applied_is_not_forwarded() {
        assert_eq!(without_applied(b"respond-async, wait=10"), None);
        assert_eq!(without_applied(b"return=minimal, Respond-Async;a").unwrap(), b"return=minimal");
    }
}
