//! Trace context (W3C Trace Context): the headers that say which trace a request belongs to.
//!
//! The gateway is one span of the trace: it keeps the trace id of the request, uses the span id of the request as its parent, and
//! sends its own span id to the upstream. The access log has the ids.

use sluicegate_config::{Accept, TraceConfig};
use sluicegate_wire::Headers;
use sluicegate_wire::number::hex;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// The length of a traceparent of version 00.
const LENGTH: usize = 55;
/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;
/// The flags that the gateway knows: sampled, and random trace id (level 2). Others are sent as zero.
const KNOWN: u8 = SAMPLED | 2;
/// The most bytes of tracestate that are forwarded.
const MAX_STATE: usize = 512;
/// Entries above this length are removed first if it is longer.
const LONG_ENTRY: usize = 128;

/// The trace and the span of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trace id, never zero.
    pub id: u128,
    /// The span id of the client; `None` if the trace begins here.
    pub parent: Option<u64>,
    /// The span id of the gateway, never zero.
    pub span: u64,
    flags: u8,
}

impl Trace {
    /// The trace of a request: that of its traceparent, if the sender is accepted and the field is well-formed, otherwise a new
    /// one, if the gateway creates traces. `trusted` says whether the peer is a trusted proxy.
    pub fn of(
        config: &TraceConfig,
        headers: &Headers,
        trusted: bool,
        mut random: impl FnMut() -> u64,
    ) -> Option<Self> {
        let is_accepted = match config.accept {
            Accept::Anybody => true,
            Accept::Trusted => trusted,
            Accept::Nobody => false,
        };
        let traceparent = headers.only(TRACEPARENT).filter(|_| is_accepted);
        if let Some((id, parent, flags)) = traceparent.and_then(parse) {
            return Some(Self { id, parent: Some(parent), span: random().max(1), flags: flags & KNOWN });
        }
        config.create.then(|| {
            let id = u128::from(random()) << 64 | u128::from(random());
            let flags = if config.sampled.takes(random()) { SAMPLED } else { 0 };
            Self { id: id.max(1), parent: None, span: random().max(1), flags }
        })
    }

    /// Whether the trace is recorded.
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Writes the headers for the upstream. Without a trace, those of the client are removed, because they are not trusted.
    pub fn write(trace: Option<&Self>, headers: &mut Headers) {
        let Some(trace) = trace else {
            headers.remove(TRACEPARENT);
            headers.remove(TRACESTATE);
            return;
        };
        let mut value = *b"00-................................-................-00";
        value[3..19].copy_from_slice(&hex((trace.id >> 64) as u64));
        value[19..35].copy_from_slice(&hex(trace.id as u64));
        value[36..52].copy_from_slice(&hex(trace.span));
        value[54] += trace.flags & KNOWN;
        headers.remove(TRACEPARENT);
        headers.append_unchecked(TRACEPARENT.as_bytes(), &value);
        if trace.parent.is_none() {
            headers.remove(TRACESTATE); // it belongs to a traceparent that is not forwarded
        } else {
            bound_state(headers);
        }
    }
}

/// The trace id, span id and flags of a traceparent. Of later versions, the part that version 00 defines is read.
fn parse(text: &[u8]) -> Option<(u128, u64, u8)> {
    let digits = |from: usize, to: usize| {
        text.get(from..to)?.iter().try_fold(0_u128, |number, byte| {
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                _ => return None, // also upper case, which the format excludes
            };
            Some(number << 4 | u128::from(digit))
        })
    };
    let dashes = [2, 35, 52].iter().all(|at| text.get(*at) == Some(&b'-'));
    let version = digits(0, 2)?;
    let length = match version {
        0 => text.len() == LENGTH,
        0xff => false,
        _ => text.len() == LENGTH || text.get(LENGTH) == Some(&b'-'),
    };
    let (id, span, flags) = (digits(3, 35)?, digits(36, 52)? as u64, digits(53, 55)? as u8);
    (dashes && length && id != 0 && span != 0).then_some((id, span, flags))
}

/// Reduces tracestate to one field of at most [`MAX_STATE`] bytes: removes long entries first, then those at the end.
fn bound_state(headers: &mut Headers) {
    let mut lines = headers.get_all(TRACESTATE);
    let Some(first) = lines.next() else { return };
    if first.len() <= MAX_STATE && lines.next().is_none() {
        return;
    }
    let entries = || {
        let lines = headers.get_all(TRACESTATE).flat_map(|line| line.split(|b| *b == b','));
        lines.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty())
    };
    let all: usize = entries().map(|entry| entry.len() + 1).sum();
    let mut state: Vec<u8> = Vec::new();
    for entry in entries().filter(|entry| all <= MAX_STATE + 1 || entry.len() <= LONG_ENTRY) {
        if state.len() + entry.len() + 1 > MAX_STATE {
            break;
        }
        if !state.is_empty() {
            state.push(b',');
        }
        state.extend_from_slice(entry);
    }
    match state.is_empty() {
        false => headers.insert(TRACESTATE, state),
        true => _ = headers.remove(TRACESTATE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_well_formed_fields_are_read() {
        let read = Some((0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7, 1));
        assert_eq!(parse(GOOD.as_bytes()), read);
        let later = GOOD.replacen("00", "cc", 1);
        assert_eq!(parse(later.as_bytes()), read);
        assert_eq!(parse(format!("{later}-more").as_bytes()), read);
        for bad in [
            "",
            "00",
            &GOOD.to_uppercase(),
            &GOOD.replacen("00", "ff", 1),
            &format!("{GOOD}-more"),
            &format!("{later}more"),
            &GOOD[..54],
            &GOOD.replace('-', "_"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        for length in 0..GOOD.len() {
            assert_eq!(parse(&GOOD.as_bytes()[..length]), None);
        }
    }

    fn headers(lines: &[(&str, &str)]) -> Headers {
        lines.iter().copied().collect()
    }

    #[test]
    fn a_trace_is_continued_or_created() {
        let config = TraceConfig::default();
        let mut next = 6;
        let mut random = || {
            next += 1;
            next
        };
        let request = headers(&[("traceparent", GOOD)]);
        let trace = Trace::of(&config, &request, false, &mut random).unwrap();
        assert_eq!((trace.parent, trace.span, trace.flags), (Some(0x00f0_67aa_0ba9_02b7), 7, 1));
        let twice = headers(&[("traceparent", GOOD), ("traceparent", GOOD)]);
        assert_eq!(Trace::of(&config, &twice, false, &mut random).unwrap().parent, None);
        let nobody = TraceConfig { accept: Accept::Nobody, create: false, ..config };
        assert_eq!(Trace::of(&nobody, &request, true, &mut random), None);
        let trusted = TraceConfig { accept: Accept::Trusted, create: false, ..config };
        assert_eq!(Trace::of(&trusted, &request, false, &mut random), None);
        assert!(Trace::of(&trusted, &request, true, &mut random).is_some());
    }

    #[test]
    fn written_headers_can_be_read() {
        for flags in 0..=3 {
            let trace = Trace { id: 1 << 100 | 5, parent: None, span: 9, flags };
            let mut headers = headers(&[("tracestate", "a=1")]);
            Trace::write(Some(&trace), &mut headers);
            let written = headers.get(TRACEPARENT).unwrap();
            assert_eq!(parse(written), Some((trace.id, trace.span, flags)), "{written:?}");
            assert!(!headers.contains_key(TRACESTATE), "the state of another trace");
        }
    }

    #[test]
    fn the_state_is_bounded() {
        let long = format!("long={}", "x".repeat(200));
        let many: Vec<String> = (0..60).map(|n| format!("vendor{n:02}=1234567")).collect();
        let mut headers = headers(&[("tracestate", &long), ("tracestate", &many.join(" , "))]);
        bound_state(&mut headers);
        let lines: Vec<_> = headers.get_all(TRACESTATE).collect();
        let text = std::str::from_utf8(lines[0]).unwrap();
        assert!(
            lines.len() == 1 && text.len() <= MAX_STATE && text.starts_with("vendor00=1234567,vendor01"),
            "{text}"
        );
        assert!(text.split(',').all(|entry| many.iter().any(|known| known == entry)), "no entry is cut");
    }
}
