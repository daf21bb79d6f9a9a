//! Zones and their uses: `limit_req` and `limit_conn`.

use super::context::{Context, Scope};
use super::key::{Key, Lookup, key};
use super::parse::Directive;
use super::units::{flag, name, parameter, unused};
use crate::accepted;
use crate::report::Outcome;
use crate::yaml::{Node, list, map, text};

/// The most limits of a route.
const MOST: usize = 32;

/// A zone: one table of counters.
struct Zone<'a> {
    directive: &'a Directive,
    name: String,
    key: Result<Key, String>,
    /// Requests per period, as gateway.yaml writes it; empty for `limit_conn_zone`.
    rate: String,
    /// How nginx rounds the rate.
    rounding: Option<String>,
}

/// What a limit is made of. Uses of a zone that agree in all of it share their counters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Use {
    zone: usize,
    /// `burst` of `limit_req`, or the number of `limit_conn`.
    number: u64,
    delays: bool,
    dry_run: bool,
    /// For keys with `$server_name`.
    server: Option<String>,
}

/// All limits of a configuration.
#[derive(Default)]
pub(super) struct Limits<'a> {
    zones: Vec<Zone<'a>>,
    found: Vec<(Use, String, Node)>,
}

/// The limits of a route.
#[derive(Default)]
pub(super) struct Applied<'a> {
    pub(super) names: Vec<Node>,
    /// The status of refusals, if it is not 429.
    pub(super) status: Option<u16>,
    /// The limits that could not be converted.
    pub(super) lost: Vec<&'a Directive>,
}

/// A limit is lost: the report says why.
struct Lost;

impl<'a> Limits<'a> {
    /// Reads the zones of the block `http`.
    pub(super) fn of(http: &Scope<'a>, cx: &mut Context) -> Self {
        let lookups: Vec<_> =
            ["map", "geo"].iter().flat_map(|name| http.own(name)).filter_map(Lookup::of).collect();
        let mut limits = Self::default();
        for directive in http.own("limit_req_zone").into_iter().chain(http.own("limit_conn_zone")) {
            let zone = parameter(&directive.args, "zone").and_then(|zone| zone.split(':').next());
            let Some(zone) = zone else {
                cx.unsupported(directive, "it has no `zone=NAME:SIZE`");
                continue;
            };
            let (rate, rounding) =
                match (directive.name.as_str(), parameter(&directive.args, "rate").map(rate)) {
                    ("limit_req_zone", None | Some(None)) => {
                        cx.unsupported(directive, "its rate is not N r/s or N r/m");
                        continue;
                    }
                    (_, Some(Some(rate))) => rate,
                    (_, None | Some(None)) => (String::new(), None),
                };
            let key = key(directive.arg(0), &lookups);
            if let Err(why) = &key {
                cx.unsupported(directive, why.clone());
            }
            limits.zones.push(Zone { directive, name: zone.to_owned(), key, rate, rounding });
        }
        for lookup in &lookups {
            let used =
                limits.zones.iter().find(|zone| reaches(zone.directive.arg(0), lookup.variable(), &lookups));
            match used {
                Some(zone) if zone.key.is_ok() => {
                    cx.converted(lookup.directive, format!("in the limits of zone {}", zone.name))
                }
                Some(zone) => cx.unsupported(
                    lookup.directive,
                    format!("the key of zone {} cannot be converted", zone.name),
                ),
                None => {}
            }
        }
        limits
    }

    /// The limits in force in a scope of a server.
    pub(super) fn apply(&mut self, scope: &Scope<'a>, server: &str, cx: &mut Context) -> Applied<'a> {
        let mut applied = Applied::default();
        let mut statuses = Vec::new();
        let mut seen = Vec::new();
        let (mut queue, mut places) = (None, Vec::new());
        let named = scope.last("server_name").is_some_and(|names| !names.arg(0).is_empty());
        for (kind, name) in [("limit_req", "limit_req"), ("limit_conn", "limit_conn")] {
            let uses = scope.all(name);
            if uses.is_empty() {
                continue;
            }
            let dry_run = scope.last(&format!("{kind}_dry_run"));
            if let Some(directive) = dry_run {
                cx.converted(directive, "mode: shadow");
            }
            statuses.push(status(scope, kind, cx));
            for directive in uses {
                let dry_run = dry_run.is_some_and(|directive| directive.arg(0) == "on");
                let limit = match self.used(directive, dry_run, named.then_some(server), cx) {
                    Ok(Some(limit)) => limit,
                    Ok(None) => continue,
                    Err(Lost) => {
                        applied.lost.extend((!dry_run).then_some(directive));
                        continue;
                    }
                };
                if seen.contains(&limit) {
                    cx.ignored(directive, "the route has this limit already");
                    continue;
                }
                if seen.len() == MOST {
                    cx.unsupported(
                        directive,
                        format!("left out: a route has at most {MOST} limits. Join some of them"),
                    );
                    continue;
                }
                applied.names.push(text(&limit).source(&directive.source));
                if kind == "limit_conn" {
                    places.push(directive);
                } else if self.found.iter().any(|(used, name, _)| *name == limit && used.delays) {
                    queue = Some(limit.clone());
                }
                seen.push(limit);
            }
        }
        if let Some(queue) = queue {
            for directive in places {
                cx.approximated(
                    directive,
                    format!("requests that wait in the queue of limit {queue} hold a place of this limit; in nginx they do not, so more are refused here"),
                );
            }
        }
        statuses.dedup();
        applied.status = statuses.first().copied().flatten();
        if statuses.len() > 1 && !applied.names.is_empty() {
            cx.report.note(
                "limit_req_status and limit_conn_status differ somewhere: a route has one status for all of its refusals, that of limit_req",
            );
        }
        applied
    }

    /// The name of the limit that a directive uses; none if nginx counts nothing.
    fn used(
        &mut self,
        directive: &'a Directive,
        dry_run: bool,
        server: Option<&str>,
        cx: &mut Context,
    ) -> Result<Option<String>, Lost> {
        let requests = directive.name == "limit_req";
        let wanted =
            if requests { parameter(&directive.args, "zone").unwrap_or_default() } else { directive.arg(0) };
        let found =
            self.zones.iter().position(|zone| zone.name == wanted && zone.rate.is_empty() != requests);
        let Some(zone) = found else {
            cx.unsupported(directive, format!("there is no zone `{wanted}` that could be converted"));
            return Err(Lost);
        };
        let Ok(key) = self.zones[zone].key.clone() else {
            cx.unsupported(
                directive,
                format!("the key of its zone cannot be converted: see {}", self.zones[zone].directive.source),
            );
            return Err(Lost);
        };
        if key.only_server && server.is_none() {
            cx.ignored(directive, "its server has no name, so its key is empty, and nginx counts nothing");
            return Ok(None);
        }
        let number =
            if requests { parameter(&directive.args, "burst").unwrap_or("0") } else { directive.arg(1) };
        let Ok(number) = number.parse::<u64>() else {
            cx.unsupported(directive, format!("`{number}` is not a number"));
            return Err(Lost);
        };
        let delay =
            parameter(&directive.args, "delay").and_then(|delay| delay.parse::<u64>().ok()).unwrap_or(0);
        let delays = requests && number > delay && !flag(&directive.args, "nodelay");
        let server = key.per_server.then(|| server.unwrap_or_default().to_owned());
        let used = Use { zone, number, delays: delays && delay == 0, dry_run, server };
        let known = self.found.iter().find(|(other, ..)| *other == used).map(|(_, name, _)| name.clone());
        let name = match known {
            Some(name) => name,
            None => self.add(used.clone(), &key, directive, cx).ok_or(Lost)?,
        };
        self.explain(directive, &used, &name, delays.then_some(delay), cx);
        Ok(Some(name))
    }

    /// Says what a use became.
    fn explain(&self, directive: &Directive, used: &Use, name: &str, delay: Option<u64>, cx: &mut Context) {
        let zone = &self.zones[used.zone];
        let others = self
            .found
            .iter()
            .find(|(other, ..)| other.zone == used.zone && other != used && other.server == used.server);
        let (outcome, text) = match (others, delay) {
            (Some((_, other, _)), _) => {
                let text = format!(
                    "limit {name}; nginx counts all uses of zone {} together, here those with other numbers count apart (as {other}), \
                     so both together admit more",
                    zone.name
                );
                (Outcome::Approximated, text)
            }
            (None, Some(delay)) if delay > 0 => {
                let text = format!(
                    "limit {name}; the same requests are admitted, but none is delayed. nginx delays those after the first {delay}. To \
                     delay all: `algorithm: leaky_bucket`"
                );
                (Outcome::Approximated, text)
            }
            (None, Some(_)) => {
                (Outcome::Converted, format!("limit {name}: a queue, from which requests leave at the rate"))
            }
            (None, None) if directive.name == "limit_conn" => (Outcome::Converted, format!("limit {name}")),
            (None, None) => (
                Outcome::Converted,
                format!(
                    "limit {name}: burst {} is nginx's {} and the request itself",
                    used.number + 1,
                    used.number
                ),
            ),
        };
        cx.mark(directive, outcome, text);
    }

    /// Adds a limit, if the gateway accepts it.
    fn add(&mut self, used: Use, key: &Key, directive: &Directive, cx: &mut Context) -> Option<String> {
        let zone = &self.zones[used.zone];
        let mut wanted = name(&zone.name);
        if let Some(server) = &used.server {
            wanted = format!("{wanted}-{}", name(server));
        }
        let taken = |wanted: &str| self.found.iter().any(|(_, name, _)| name == wanted);
        if taken(&wanted) {
            let word = if directive.name == "limit_req" { "burst" } else { "max" };
            let dry_run = if used.dry_run { "-dry-run" } else { "" };
            wanted = format!("{wanted}-{word}{}{dry_run}", used.number);
        }
        let name = unused(&wanted, &taken);
        let mut node = map().with("key", parts(key));
        if directive.name == "limit_conn" {
            node = node.with("algorithm", text("concurrency")).with("max", text(used.number.max(1)));
        } else if used.delays {
            node = node
                .with("algorithm", text("leaky_bucket"))
                .with("rate", text(&zone.rate))
                .with("burst", text(used.number + 1));
        } else {
            node = node.with("rate", text(&zone.rate)).with("burst", text(used.number + 1));
        }
        if used.dry_run {
            node = node.with("mode", text("shadow"));
        }
        if !key.exempt.is_empty() {
            node = node.with("exempt", list(key.exempt.iter().map(text)));
        }
        node = node.with_some("when", when(key));
        if key.skip_missing {
            node = node.with("on_missing", text("skip"));
        }
        if let Err(why) = accepted::limit(&node) {
            cx.unsupported(directive, format!("left out: {why}"));
            return None;
        }
        let source = &zone.directive.source;
        let node = node.source(source).comment(&directive.source);
        let differs: Vec<_> = key.differs.iter().cloned().chain(zone.rounding.clone()).collect();
        let outcome = if differs.is_empty() { Outcome::Converted } else { Outcome::Approximated };
        let differs = differs.iter().map(|text| format!("; {text}")).collect::<String>();
        cx.mark(zone.directive, outcome, format!("limits of zone {}{differs}", zone.name));
        if key.parts.iter().any(|part| part == "ip") {
            cx.report.note(
                "nginx counts every IPv6 address apart. Here all addresses of one /64 are one client, because that is what one client has; \
                 client_ip: {ipv6_prefix: 128} counts as nginx does",
            );
        }
        cx.report.note(
            "nginx forgets the oldest counters when a zone is full, and rounds times to milliseconds. Here no counter in use is forgotten, so \
             the sizes of zones are not converted",
        );
        self.found.push((used, name.clone(), node));
        Some(name)
    }

    /// The section `limits`.
    pub(super) fn finish(self, cx: &mut Context) -> Node {
        for (index, zone) in self.zones.iter().enumerate() {
            if zone.key.is_ok() && !self.found.iter().any(|(used, ..)| used.zone == index) {
                cx.ignored(zone.directive, "nothing uses this zone");
            }
        }
        self.found.into_iter().fold(map(), |section, (_, name, node)| section.with(name, node)).block()
    }
}

/// Whether a key depends on a variable, itself or through other lookups.
fn reaches(key: &str, variable: &str, lookups: &[Lookup<'_>]) -> bool {
    let names =
        |text: &str, name: &str| text.contains(&format!("${name}")) || text.contains(&format!("${{{name}}}"));
    let through = |lookup: &&Lookup<'_>| {
        lookup.directive.args.iter().any(|arg| arg.trim_start_matches('$') == variable)
            || lookup.directive.children().iter().any(|entry| names(entry.arg(0), variable))
    };
    names(key, variable)
        || lookups.iter().filter(|lookup| names(key, lookup.variable())).any(|lookup| through(&lookup))
}

fn parts(key: &Key) -> Node {
    match key.parts.as_slice() {
        [part] => text(part),
        parts => list(parts.iter().map(text)),
    }
}

fn when(key: &Key) -> Option<Node> {
    let mut when = map();
    if !key.methods.is_empty() {
        when.insert("methods", list(key.methods.iter().map(text)));
    }
    if !key.headers.is_empty() {
        when.insert(
            "headers",
            key.headers.iter().fold(map(), |all, (name, value)| all.with(name, text(value))),
        );
    }
    if !key.values.is_empty() {
        when.insert("key", list(key.values.iter().map(text)));
    }
    (!when.is_empty()).then_some(when)
}

/// The status of refusals, if it is not 429.
fn status(scope: &Scope<'_>, kind: &str, cx: &mut Context) -> Option<u16> {
    let Some(directive) = scope.last(&format!("{kind}_status")) else {
        cx.report.note(
            "refused requests are answered 429 with Retry-After; nginx answers 503 unless limit_req_status and limit_conn_status say otherwise. \
             reject: {status: 503} on a route keeps the 503",
        );
        return None;
    };
    match directive.arg(0).parse::<u16>() {
        Ok(429) => {
            cx.converted(directive, "the status of refusals, with Retry-After");
            None
        }
        Ok(status @ (400..=443 | 445..=599)) => {
            cx.converted(directive, format!("reject: {{status: {status}}} on its routes"));
            Some(status)
        }
        _ => {
            cx.approximated(directive, "refused requests are answered 429");
            None
        }
    }
}

/// A rate such as `10r/s`, and how nginx rounds it.
fn rate(text: &str) -> Option<(String, Option<String>)> {
    let (count, unit) = text.split_once("r/")?;
    let count: u64 = count.parse().ok().filter(|count| (1..=1_000_000_000).contains(count))?;
    match unit {
        "s" => Some((format!("{count}/s"), None)),
        // nginx counts in thousandths of a request per second.
        "m" => {
            let rounded = count * 1000 / 60;
            let exact = rounded * 60 == count * 1000;
            let slower =
                100.0 * (count as f64 * 1000.0 / 60.0 - rounded as f64) / (count as f64 * 1000.0 / 60.0);
            let rounding = format!(
                "nginx rounds {count}r/m to {}.{:03} requests a second, {slower:.1} % less; here it is exact",
                rounded / 1000,
                rounded % 1000
            );
            Some((format!("{count}/min"), (!exact && slower >= 1.0).then_some(rounding)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_nginx() {
        assert_eq!(rate("10r/s"), Some(("10/s".into(), None)));
        assert_eq!(rate("30r/m"), Some(("30/min".into(), None)));
        assert_eq!(rate("5r/m").unwrap().1, None);
        assert!(rate("1r/m").unwrap().1.unwrap().contains("0.016 requests a second, 4.0 % less"));
        assert_eq!(
            (rate("10r/h"), rate("0r/s"), rate("x"), rate("99999999999999r/s")),
            (None, None, None, None)
        );
    }
}
