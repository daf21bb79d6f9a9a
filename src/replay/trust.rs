//! Whether the result of a replay can be trusted: what is doubtful about the logs.

use std::collections::HashMap;
use std::net::IpAddr;

use sluicegate_limiter::{Span, Time};

use super::formats::{Format, Request, TimeOf, Unit};
use super::limit_count::LimitCount;
use sluicegate_base::named_enum::named_enum;

/// The most addresses that are counted.
const MOST_ADDRESSES: usize = 1_000_000;
/// The most durations of which the median is computed: of more, every second, fourth and so on.
const MOST_DURATIONS: usize = 1 << 16;
/// With fewer requests, shares say little.
const FEW: u64 = 20;

named_enum! {
    /// How much a finding matters.
    Level {
        /// Nothing is wrong.
        Fine = "ok",
        /// Something that people should know.
        Note = "note",
        /// The result can be wrong because of it.
        Doubt = "doubt",
    }
}

/// Something about the logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// What it is, and what to do about it, as one sentence without a full stop.
    pub text: String,
}

/// What is observed of the lines.
#[derive(Debug, Default)]
pub struct Trust {
    formats: Vec<(Format, u64)>,
    lines: u64,
    /// The latest time of a line.
    latest: Time,
    /// Lines that are earlier than one before them by more than the span within which requests are sorted, and by how much.
    disordered: u64,
    worst: Span,
    durations: Durations,
    /// Lines with a number behind the user agent that may be a duration.
    unknown_numbers: u64,
    addresses: HashMap<IpAddr, u64>,
    /// Requests with X-Forwarded-For from an address that is not a trusted proxy, and the first such address.
    untrusted: u64,
    untrusted_peer: Option<IpAddr>,
    /// Lines that say who sent the request.
    named: u64,
}

#[derive(Debug, Default)]
struct Durations {
    some: Vec<u64>,
    count: u64,
    every: u64,
    units: Vec<(Unit, u64)>,
    /// Those of lines with the time of the end, and how many of them are longer than the span within which requests are sorted.
    of_ends: u64,
    too_long: u64,
}

fn count<T: PartialEq>(all: &mut Vec<(T, u64)>, one: T) {
    match all.iter_mut().find(|(known, _)| *known == one) {
        Some((_, count)) => *count += 1,
        None => all.push((one, 1)),
    }
}

impl Durations {
    fn add(&mut self, duration: Span, unit: Unit) {
        self.every = self.every.max(1);
        if self.count.is_multiple_of(self.every) {
            self.some.push(duration.as_nanos());
        }
        self.count += 1;
        count(&mut self.units, unit);
        if self.some.len() == MOST_DURATIONS {
            let mut at = 0;
            self.some.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.every *= 2;
        }
    }

    fn median(&self) -> Option<Span> {
        let mut all = self.some.clone();
        all.sort_unstable();
        all.get(all.len() / 2).copied().map(Span::from_nanos)
    }
}

impl Trust {
    /// Observes the next line. `window` is the span within which requests are sorted.
    pub fn line(&mut self, request: &Request, window: Span) {
        self.lines += 1;
        count(&mut self.formats, request.format);
        let behind = self.latest.since(request.time);
        if behind > window {
            self.disordered += 1;
            self.worst = self.worst.max(behind);
        }
        self.latest = self.latest.max(request.time);
        self.unknown_numbers += u64::from(request.unknown_number);
        self.named += u64::from(request.identity.is_some());
        if let Some((duration, unit)) = request.duration {
            self.durations.add(duration, unit);
            if request.time_of == TimeOf::End {
                self.durations.of_ends += 1;
                self.durations.too_long += u64::from(duration > window);
            }
        }
    }

    /// Observes the address of a request. `resolved` is the client after what trusted proxies say.
    pub(super) fn client(&mut self, request: &Request, resolved: IpAddr) {
        if self.addresses.len() < MOST_ADDRESSES || self.addresses.contains_key(&resolved) {
            *self.addresses.entry(resolved).or_default() += 1;
        }
        let peer = request.client.to_canonical();
        if resolved == peer
            && let Some(list) = request.parts.headers.get("x-forwarded-for")
        {
            let last = list.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
            let named = std::str::from_utf8(last).ok().and_then(|last| last.parse::<IpAddr>().ok());
            if named.is_some_and(|named| named.to_canonical() != peer) {
                self.untrusted += 1;
                self.untrusted_peer.get_or_insert(peer);
            }
        }
    }

    /// Why durations cannot be what they are taken for, if they cannot.
    pub fn impossible(&self, window: Span) -> Option<String> {
        let Durations { of_ends, too_long, .. } = self.durations;
        (of_ends >= FEW && too_long * 2 > of_ends).then(|| {
            format!(
                "{too_long} of {of_ends} requests took longer than {window} (median {}), so their arrivals cannot be restored: is \
                 that number the duration, and in seconds? Say which field it is with --duration-field N[s|ms|us], or, if they \
                 are that long, raise --reorder",
                self.durations.median().unwrap_or_default()
            )
        })
    }

    /// What was found. `limits` are the names and counts of the limits, `unmatched` and `unreadable` of `lines` say what no limit
    /// judged.
    pub fn findings(
        &self,
        limits: &[(&str, LimitCount)],
        (unmatched, unreadable): (u64, u64),
        order: Option<&str>,
    ) -> Vec<Finding> {
        let mut all = Vec::new();
        let mut add = |level, text: String| all.push(Finding { level, text });
        for (format, count) in &self.formats {
            add(Level::Fine, format!("{}: {}", counted(*count, "line"), format.name()));
        }
        if self.formats.iter().any(|(format, _)| *format == Format::HaProxy) {
            add(Level::Note, "HAProxy writes times without a zone: they are taken for UTC".to_owned());
        }
        if let Some(order) = order {
            add(Level::Note, order.to_owned());
        }
        if unreadable > 0 {
            let level = if unreadable * 100 > self.lines { Level::Doubt } else { Level::Note };
            add(level, format!("{} could not be read", counted(unreadable, "line")));
        }
        if unmatched > 0 {
            let level = if unmatched * 10 > self.lines { Level::Doubt } else { Level::Note };
            let text = format!(
                "{unmatched} of {} requests ({}) match no route, so no limit judged them",
                self.lines,
                share(unmatched, self.lines)
            );
            add(level, text);
        }
        if self.disordered > 0 {
            let text = format!(
                "{} {} out of order, by up to {}: they count at the latest time before them; sort the log by time",
                self.disordered,
                if self.disordered == 1 { "line is" } else { "lines are" },
                self.worst
            );
            add(Level::Doubt, text);
        }
        self.of_durations(&mut add);
        self.of_addresses(&mut add);
        for (name, limit) in limits {
            let asked = limit.asked + limit.without_key;
            if limit.without_key > 0 && asked > 0 {
                let level = if limit.without_key * 20 > asked { Level::Doubt } else { Level::Note };
                let text = format!(
                    "limit {name}: its key is missing in {} of {asked} requests ({}){}",
                    limit.without_key,
                    share(limit.without_key, asked),
                    match self.named {
                        0 =>
                            "; such requests are counted as `on_missing` says. Few access logs have headers or credentials: see docs/operations.md#keys-that-the-log-does-not-have",
                        _ => "",
                    }
                );
                add(level, text);
            }
        }
        all
    }

    fn of_durations(&self, add: &mut impl FnMut(Level, String)) {
        let Durations { count, units, .. } = &self.durations;
        if let Some(median) = self.durations.median() {
            let units: Vec<&str> = units.iter().map(|(unit, _)| unit.name()).collect();
            let text =
                format!("{count} durations, written in {}, with a median of {median}", units.join(" and "));
            let odd = median > Span::from_secs(30);
            add(
                if odd { Level::Doubt } else { Level::Fine },
                text + if odd { ": is the unit right?" } else { "" },
            );
        }
        if self.unknown_numbers > 0 {
            let text = format!(
                "{} {} a number behind the user agent that was not taken for a duration; if it is one, say so with \
                 --duration-field N[s|ms|us]",
                self.unknown_numbers,
                if self.unknown_numbers == 1 { "line has" } else { "lines have" }
            );
            add(Level::Note, text);
        }
    }

    fn of_addresses(&self, add: &mut impl FnMut(Level, String)) {
        if let Some(peer) = self.untrusted_peer {
            let text = format!(
                "{} {} X-Forwarded-For, but {peer}, which sent {}, is not a trusted proxy, so its clients count as \
                 one: `client_ip: {{trusted_proxies: [{peer}]}}` if it is yours",
                self.untrusted,
                if self.untrusted == 1 { "request carries" } else { "requests carry" },
                if self.untrusted == 1 { "it" } else { "them" }
            );
            add(Level::Doubt, text);
        }
        let requests: u64 = self.addresses.values().sum();
        let busiest = self.addresses.iter().max_by_key(|(address, count)| (**count, **address));
        if let Some((address, count)) = busiest.filter(|(_, count)| requests >= FEW && **count * 2 > requests)
        {
            let text = format!(
                "{address} sends {} of the requests: if it is a proxy, log the client's address, or X-Forwarded-For and name the \
                 proxy in `client_ip.trusted_proxies`",
                share(*count, requests)
            );
            add(Level::Doubt, text);
        }
    }
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

/// A number of things: `1 line`, `2 lines`.
pub(super) fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
