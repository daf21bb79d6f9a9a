//! Stick tables, what is tracked in them, and the limits of the rules that read their counters.

use super::criterion::{Counter, split_converters};
use super::parse::{Line, Section};
use super::units::{milliseconds, rate};
use crate::accepted;
use crate::marks::Marks;
use crate::names::{name, unused};
use crate::report::Source;
use crate::yaml::{Node, list, map, text};

/// The most requests that a shared sliding log remembers for a key.
const LONGEST_LOG: u64 = 10_000;

/// What is counted separately in a stick table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    parts: Vec<String>,
    skip_missing: bool,
    pub(super) differs: Option<String>,
}

impl Key {
    /// Counts requests without the value of this key by another one. Whether there are such.
    pub(super) fn or(&mut self, other: &Self) -> bool {
        if !self.skip_missing {
            return false;
        }
        match (self.parts.as_slice(), other.parts.as_slice()) {
            ([one], [two]) => self.parts = vec![format!("{one} | {two}")],
            _ => self.parts.clone_from(&other.parts), // all requests count by the other one
        }
        self.skip_missing = other.skip_missing;
        self.differs = self.differs.take().or_else(|| other.differs.clone());
        true
    }
}

/// An entry that requests are tracked in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tracked {
    pub(super) slot: String,
    pub(super) table: String,
    pub(super) key: Key,
    /// Whether each request is counted anew: not for what is tracked at the beginning of a connection.
    pub(super) by_request: bool,
    /// The clients that are not tracked, as entries of `exempt`.
    pub(super) exempt: Vec<String>,
}

struct Table {
    name: String,
    line: usize,
    /// The counters and their periods in milliseconds.
    data: Vec<(String, u64)>,
    used: bool,
}

/// What a limit is made of. Rules that agree in it share their counters.
#[derive(Clone, PartialEq, Eq)]
struct Use {
    table: String,
    key: Key,
    data: String,
    above: u64,
    exempt: Vec<String>,
}

/// All limits of a configuration.
#[derive(Default)]
pub(super) struct Limits {
    tables: Vec<Table>,
    found: Vec<(Use, String, Node)>,
}

impl Limits {
    /// Reads the stick tables.
    pub(super) fn of(sections: &[Section]) -> Self {
        let mut limits = Self::default();
        for section in sections {
            for line in section.lines.iter().filter(|line| line.word(0) == "stick-table") {
                limits.tables.push(Table {
                    name: section.name().to_owned(),
                    line: line.id,
                    data: stored(line),
                    used: false,
                });
            }
        }
        limits
    }

    pub(super) fn has_table(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.name == name)
    }

    /// The name of the limit that a rule has become, and how it differs.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn used(
        &mut self,
        counter: &Counter,
        tracked: &[Tracked],
        exempt: &[String],
        rule: &Source,
        marks: &mut Marks,
    ) -> Result<(String, Option<String>), String> {
        let tracked = match &counter.slot {
            Some(slot) => tracked
                .iter()
                .find(|tracked| tracked.slot == *slot)
                .ok_or_else(|| format!("nothing that could be converted tracks requests as sc{slot}"))?,
            None => {
                let of_table =
                    |tracked: &&Tracked| counter.table.as_ref().is_none_or(|table| *table == tracked.table);
                let by_address = |tracked: &&Tracked| tracked.key.parts == ["ip"];
                tracked
                    .iter()
                    .filter(by_address)
                    .find(of_table)
                    .ok_or("no rule before it tracks the address (`track-sc0 src`) in this table")?
            }
        };
        let wanted = counter.table.as_ref().unwrap_or(&tracked.table);
        let Some(table) = self.tables.iter_mut().find(|table| table.name == *wanted) else {
            return Err(format!("there is no stick-table in `{wanted}`"));
        };
        let Some(period) =
            table.data.iter().find(|(data, _)| *data == counter.data).map(|(_, period)| *period)
        else {
            return Err(match counter.data.as_str() {
                data if data.contains("gpc") || data.contains("gpt") => {
                    "a counter or tag that rules set: `ban: {after: N, within: TIME, for: TIME}` of a limit refuses clients for a time".to_owned()
                }
                data => format!("the stick-table of `{wanted}` does not store {data}"),
            });
        };
        let used = Use {
            table: table.name.clone(),
            key: tracked.key.clone(),
            data: counter.data.clone(),
            above: counter.above,
            exempt: exempt
                .iter()
                .chain(tracked.exempt.iter().filter(|one| !exempt.contains(one)))
                .cloned()
                .collect(),
        };
        table.used = true;
        let by_connection = counter.data.starts_with("conn_") || counter.data == "sess_rate";
        let differs = (by_connection && !tracked.by_request).then(|| {
            "it counts requests, where HAProxy counts connections; see max_connections_per_ip of the listener".to_owned()
        });
        if let Some((_, name, _)) = self.found.iter().find(|(known, ..)| *known == used) {
            return Ok((name.clone(), differs));
        }
        let line = table.line;
        let node = limit(&used, period, &|_| true)?;
        // The lists are in another section.
        accepted::limit(&limit(&used, period, &|entry| !entry.starts_with("list:"))?)?;
        marks.converted(line, "limits that count in it; counters in use are never forgotten, so `size` and `expire` are not converted");
        if let Some(differs) = &used.key.differs {
            marks.approximated(line, differs.clone());
        }
        let taken = |wanted: &str| self.found.iter().any(|(_, name, _)| name == wanted);
        let mut wanted = name(&used.table);
        if taken(&wanted) {
            wanted = name(&format!("{}-{}", used.table, used.above));
        }
        let name = unused(&wanted, &taken);
        if used.above > LONGEST_LOG && used.data.ends_with("_rate") {
            marks.report.note(format!(
                "limit {name} is a sliding_window, because a sliding_log of {} requests takes much memory: refused requests do not count in it",
                used.above
            ));
        }
        if used.data == "http_err_rate" || used.data == "http_fail_rate" {
            marks.report.note(format!(
                "limit {name} counts answers of the servers; {} of HAProxy counts malformed requests, too",
                used.data
            ));
        }
        self.found.push((used, name.clone(), node.comment(rule)));
        Ok((name, differs))
    }

    /// Whether any limit counts requests of a period.
    pub(super) fn counts_rates(&self) -> bool {
        self.found.iter().any(|(used, ..)| used.data.ends_with("_rate"))
    }

    /// The limits that count in the entry of a tracked key.
    pub(super) fn count_in(&self, tracked: &Tracked) -> Vec<&str> {
        let same = |used: &Use| used.table == tracked.table && used.key == tracked.key;
        self.found.iter().filter(|(used, ..)| same(used)).map(|(_, name, _)| name.as_str()).collect()
    }

    /// The section `limits`.
    pub(super) fn finish(self, marks: &mut Marks) -> Node {
        for table in &self.tables {
            if !table.used && !marks.has(table.line) {
                marks.ignored(table.line, "no rule that was converted reads its counters");
            }
        }
        self.found.into_iter().fold(map(), |section, (_, name, node)| section.with(name, node)).block()
    }
}

/// The counters of `store`, with their periods.
fn stored(line: &Line) -> Vec<(String, u64)> {
    let mut out = Vec::new();
    for (at, word) in line.words.iter().enumerate() {
        if word != "store" {
            continue;
        }
        for data in split_converters(line.word(at + 1)) {
            let (data, period) = data.split_once('(').unwrap_or((&data, "0"));
            let period = period.trim_end_matches(')').rsplit(',').next().and_then(milliseconds).unwrap_or(0);
            out.push((data.trim().to_owned(), period));
        }
    }
    out
}

/// The limit that refuses what the rule denies, with some of the entries of `exempt`.
fn limit(used: &Use, period: u64, exempted: &dyn Fn(&str) -> bool) -> Result<Node, String> {
    let Use { data, above, .. } = used;
    let key = match used.key.parts.as_slice() {
        [part] => text(part),
        parts => list(parts.iter().map(text)),
    };
    let node = map().with("key", key);
    let rates = ["http_req_rate", "conn_rate", "sess_rate"];
    let node = match data.as_str() {
        // A request counts before the rule.
        data if *above == 0 && (rates.contains(&data) || data == "conn_cur") => {
            return Err("it refuses every request: write `respond: {status: 429}`".to_owned());
        }
        data if rates.contains(&data) => {
            let log = *above <= LONGEST_LOG;
            let node = node
                .with("algorithm", text(if log { "sliding_log" } else { "sliding_window" }))
                .with("rate", text(rate(*above, period)));
            if log { node.with("count_rejected", crate::yaml::boolean(true)) } else { node }
        }
        "conn_cur" => node.with("algorithm", text("concurrency")).with("max", text(above)),
        "http_err_rate" | "http_fail_rate" => {
            let status = if data == "http_err_rate" { "4xx" } else { "5xx" };
            node.with("algorithm", text("sliding_log"))
                .with("rate", text(rate(above + 1, period)))
                .with("cost", map().with("status", list([text(status)])))
        }
        "bytes_out_rate" | "bytes_in_rate" => {
            return Err("bytes: a limit with `cost: {bytes: response}` or `{bytes: request}`".to_owned());
        }
        data if data.contains("gpc") || data.contains("gpt") => {
            return Err("a counter or tag that rules set: `ban: {after: N, within: TIME, for: TIME}` of a limit refuses clients for a time".to_owned());
        }
        data => return Err(format!("{data} has no period: use a rate")),
    };
    let exempt: Vec<_> = used.exempt.iter().filter(|entry| exempted(entry)).map(text).collect();
    let node = if exempt.is_empty() { node } else { node.with("exempt", list(exempt)) };
    Ok(if used.key.skip_missing { node.with("on_missing", text("skip")) } else { node })
}

/// The key of `track-sc0 SAMPLE`.
///
/// # Errors
/// Why there is none.
pub(super) fn key(sample: &str) -> Result<Key, String> {
    let parts = split_converters(sample);
    let converters: Vec<_> = parts[1..]
        .iter()
        .filter(|converter| !matches!(converter.as_str(), "lower" | "str" | "host_only"))
        .collect();
    let (fetch, argument) = parts[0].split_once('(').unwrap_or((&parts[0], ""));
    let argument = argument.trim_end_matches(')').split(',').next().unwrap_or_default();
    let plain = |part: &str| Ok(Key { parts: vec![part.to_owned()], skip_missing: false, differs: None });
    let named =
        |kind: &str| Ok(Key { parts: vec![format!("{kind}:{argument}")], skip_missing: true, differs: None });
    let several = |parts: &[&str]| {
        Ok(Key {
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
            skip_missing: false,
            differs: Some("HAProxy counts by a hash of 32 bits of the host and the path, so that two of them may share a counter; here each has its own".to_owned()),
        })
    };
    match (fetch, converters.as_slice()) {
        ("src", []) => plain("ip"),
        ("src", [mask]) if mask.starts_with("ipmask(") => {
            let bits = mask.trim_start_matches("ipmask(").trim_end_matches(')').split(',').next().unwrap_or_default();
            match bits.parse::<u8>() {
                Ok(32) => plain("ip"),
                Ok(bits @ 8..=31) => plain(&format!("ip/{bits}")),
                _ => Err(format!("addresses are not counted by {bits} bits")),
            }
        }
        ("hdr" | "req.hdr" | "req.fhdr", []) if argument.eq_ignore_ascii_case("host") => plain("host"),
        ("hdr_ip" | "req.hdr_ip", []) | ("hdr" | "req.hdr" | "req.fhdr", []) if argument.to_ascii_lowercase().starts_with("x-forwarded-for") => Ok(Key {
            parts: vec!["ip".to_owned()],
            skip_missing: false,
            differs: Some("the address in X-Forwarded-For is `ip` here: name the proxies that write it in client_ip.trusted_proxies, because clients can write it, too".to_owned()),
        }),
        ("hdr" | "req.hdr" | "req.fhdr", []) => named("header"),
        ("url_param" | "urlp", []) => named("query"),
        ("cook" | "req.cook", []) => named("cookie"),
        ("path", []) => plain("path"),
        ("method", []) => plain("method"),
        ("base32+src" | "url32+src", []) => several(&["host", "path", "ip"]),
        ("base32" | "base" | "url32", []) => several(&["host", "path"]),
        (_, [converter, ..]) => Err(format!("keys are not converted with `{converter}`")),
        _ => Err(format!("requests are not counted by `{fetch}`")),
    }
}
