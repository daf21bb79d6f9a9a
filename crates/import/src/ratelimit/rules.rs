//! Descriptors as limits.

use sluicegate_rls::wire::ratelimit::Unit;

use super::entry::{Meaning, Meanings};
use crate::fields::Field;
use crate::marks::Marks;
use crate::report::{Outcome, Source};
use crate::sections::Sections;
use crate::units::rate;
use crate::yaml::{Node, list, map, text};

/// A limit of the files and the requests that it applies to.
pub(super) struct Rule {
    /// The name of the limit; `None` for descriptors without a limit, which only exclude others.
    pub(super) limit: Option<String>,
    pub(super) source: Source,
    pub(super) path: Option<String>,
    pub(super) host: Option<String>,
    /// Paths and hosts for which a descriptor beside it is looked up first.
    pub(super) other_paths: Vec<String>,
    pub(super) other_hosts: Vec<String>,
    /// Whether it belongs to routes that the files do not name.
    pub(super) constant: bool,
    pub(super) skips: bool,
    pub(super) by_address: bool,
}

/// An entry of a descriptor.
#[derive(Clone)]
struct Entry<'a> {
    key: &'a str,
    value: Option<&'a str>,
    /// Whether all values that a wildcard matches share a counter.
    shared: bool,
    meaning: Meaning,
    /// Values of descriptors beside it, which are looked up first.
    others: Vec<&'a str>,
}

/// Reads the descriptors of a file.
pub(super) struct Rules<'a> {
    pub(super) meanings: &'a Meanings,
    /// What names of limits begin with.
    pub(super) prefix: Option<&'a str>,
    pub(super) marks: &'a mut Marks,
    pub(super) sections: &'a mut Sections,
    pub(super) found: &'a mut Vec<Rule>,
}

impl Rules<'_> {
    pub(super) fn read(&mut self, document: &Field) {
        self.walk(document, &[]);
    }

    fn walk<'f>(&mut self, parent: &'f Field, chain: &[Entry<'f>]) {
        let Some(descriptors) = parent.get("descriptors") else { return };
        for descriptor in descriptors.items() {
            let Some(key_field) = descriptor.get("key") else {
                self.marks.unsupported(descriptor.number, "a descriptor has a `key`");
                continue;
            };
            let key = key_field.text().unwrap_or_default();
            let Some((meaning, guessed)) = Meaning::of(key, self.meanings) else {
                self.marks.unsupported(descriptor.number, unknown(key));
                continue;
            };
            let value = descriptor.get("value");
            self.key(key_field, key, &meaning, guessed);
            let siblings = descriptors
                .items()
                .iter()
                .filter(|other| other.text_of("key") == Some(key) && other.number != descriptor.number);
            let others = match value {
                Some(value) if !value.text().unwrap_or_default().contains('*') => Vec::new(),
                // An exact value comes before a wildcard, and both before the key alone.
                Some(_) => {
                    siblings.filter_map(|other| other.text_of("value")).filter(|v| !v.contains('*')).collect()
                }
                None => siblings.filter_map(|other| other.text_of("value")).collect(),
            };
            let entry = Entry {
                key,
                value: value.and_then(Field::text),
                shared: descriptor.is_true("share_threshold"),
                meaning,
                others,
            };
            let chain: Vec<_> = chain.iter().cloned().chain([entry]).collect();
            self.options(descriptor);
            if descriptor.get("rate_limit").is_some() {
                self.rule(descriptor, &chain);
            } else if let Some(value) = value {
                self.marks.converted(
                    value.number,
                    "a condition of the limits within it, which other limits of this key do not have",
                );
            }
            self.walk(descriptor, &chain);
        }
    }

    /// Says what the key of a descriptor is.
    fn key(&mut self, field: &Field, key: &str, meaning: &Meaning, guessed: bool) {
        let number = field.number;
        match (key, meaning) {
            ("masked_remote_address", _) => self.marks.approximated(
                number,
                "key: ip; Envoy masks the address as its action says: for a prefix write ip/24 or ip/64",
            ),
            (_, Meaning::Constant) => self.marks.approximated(
                number,
                "the text is one that the configuration of an Envoy route sends: the limit is written, and no route has it. Name it \
                 in `limits` of the routes that it belongs to",
            ),
            (":path", Meaning::Path) => {
                self.marks.approximated(number, "the path without its query, which :path of Envoy contains")
            }
            (_, meaning) if guessed => {
                let text = format!(
                    "{}, as its name says; Envoy may send something else under this name: then --key {key}=KEY",
                    meaning.key()
                );
                self.marks.approximated(number, text);
            }
            (_, meaning) => self.marks.converted(number, meaning.key()),
        }
    }

    /// Fields of a descriptor that are no condition and no number.
    fn options(&mut self, descriptor: &Field) {
        let said = [
            (
                "detailed_metric",
                Outcome::Ignored,
                "metrics have no values of keys; `sluicegate top` and the admin API show them",
            ),
            (
                "value_to_metric",
                Outcome::Ignored,
                "metrics have no values of keys; `sluicegate top` and the admin API show them",
            ),
            (
                "metadata",
                Outcome::Unsupported,
                "limits have no metadata: routes can add headers with response_headers",
            ),
            (
                "quota_mode",
                Outcome::Unsupported,
                "the limit is enforced for itself; the gateway has no groups of quotas of which one must be left",
            ),
        ];
        for (name, outcome, text) in said {
            if let Some(field) = descriptor.get(name) {
                self.marks.all(field, outcome, text);
            }
        }
        if let (Some(field), None) = (descriptor.get("shadow_mode"), descriptor.get("rate_limit")) {
            self.marks.ignored(field.number, "the descriptor has no limit of its own");
        }
        if let Some(field) = descriptor.get("share_threshold") {
            let wildcard = descriptor.text_of("value").is_some_and(|value| value.contains('*'));
            match wildcard {
                true => {
                    self.marks.converted(field.number, "whether all values of the wildcard share a counter")
                }
                false => self.marks.ignored(field.number, "the descriptor has no wildcard"),
            }
        }
    }

    fn rule(&mut self, descriptor: &Field, chain: &[Entry<'_>]) {
        let Some(limit) = descriptor.get("rate_limit") else { return };
        let mut rule = Rule {
            limit: None,
            source: limit.source.clone(),
            path: None,
            host: None,
            other_paths: Vec::new(),
            other_hosts: Vec::new(),
            constant: false,
            skips: false,
            by_address: false,
        };
        let (node, doubt) = match requests(chain, &mut rule) {
            Ok(found) => found,
            Err(why) => {
                self.marks.unsupported(descriptor.number, format!("left out: {why}"));
                return;
            }
        };
        let quota = self.quota(limit);
        let unlimited = limit.is_true("unlimited");
        let name = self.name(limit, chain);
        let shown = match (&quota, unlimited) {
            (_, true) => "no limit; limits of its key alone do not apply to these requests".to_owned(),
            (Some(rate), false) => format!("limit {name}: {rate}"),
            (None, false) => {
                let text = "left out: it has no number of requests per second, minute, hour, day, week, month or year";
                self.marks.unsupported(descriptor.number, text);
                return;
            }
        };
        if let Some(field) = descriptor.get("shadow_mode") {
            self.marks.converted(field.number, "mode: shadow, if it is true");
        }
        let node = match quota {
            Some(rate) if !unlimited => {
                let shadow = descriptor.is_true("shadow_mode").then(|| text("shadow"));
                let node = node.with("algorithm", text("fixed_window")).with("rate", text(rate));
                let node = node.with_some("mode", shadow).source(&limit.source);
                let above = "no route has it: name it in `limits` of the routes that it belongs to";
                Some(if rule.constant { node.above(above) } else { node })
            }
            _ => None,
        };
        if let Some(node) = node {
            match self.sections.limit(&name, node) {
                Ok(name) => rule.limit = Some(name),
                Err(message) => {
                    self.marks.unsupported(descriptor.number, format!("left out: {message}"));
                    return;
                }
            }
        }
        self.say(descriptor, limit, &shown, doubt.as_deref());
        self.found.push(rule);
    }

    /// Says what became of the fields of a limit.
    fn say(&mut self, descriptor: &Field, limit: &Field, shown: &str, doubt: Option<&str>) {
        if let Some(value) = descriptor.get("value") {
            match doubt {
                Some(doubt) => self.marks.approximated(value.number, doubt),
                None => self.marks.converted(value.number, "a condition"),
            }
        } else if let (Some(doubt), Some(key)) = (doubt, descriptor.get("key")) {
            self.marks.approximated(key.number, doubt);
        }
        for name in ["unit", "requests_per_unit", "unlimited"] {
            let Some(field) = limit.get(name) else { continue };
            let month = matches!(field.text(), Some("month" | "MONTH"));
            match month {
                true => self.marks.converted(
                    field.number,
                    format!("{shown}: 30 days, as in the service; N/month follows the calendar"),
                ),
                false => self.marks.converted(field.number, shown),
            }
        }
        if let Some(field) = limit.get("name") {
            self.marks.converted(field.number, "the name of the limit");
        }
        if let Some(field) = limit.get("replaces") {
            let text = "both limits apply here; in the service this one replaces the other. Take the other one from routes that have \
                        this one";
            self.marks.all(field, Outcome::Unsupported, text);
        }
    }

    fn quota(&self, limit: &Field) -> Option<String> {
        let seconds = Unit::named(limit.text_of("unit")?)?.seconds()?;
        let count = limit.text_of("requests_per_unit")?.parse().ok()?;
        Some(rate(count, seconds * 1000))
    }

    fn name(&self, limit: &Field, chain: &[Entry<'_>]) -> String {
        let own = limit.text_of("name").map(str::to_owned);
        let parts = chain.iter().map(|entry| match entry.value {
            Some(value) => format!("{}-{value}", entry.key),
            None => entry.key.to_owned(),
        });
        let own = own.unwrap_or_else(|| parts.collect::<Vec<_>>().join("-"));
        match self.prefix {
            Some(prefix) => format!("{prefix}-{own}"),
            None => own,
        }
    }
}

/// The key and the conditions of a limit, with what differs.
fn requests(chain: &[Entry<'_>], rule: &mut Rule) -> Result<(Node, Option<String>), String> {
    let (mut parts, mut headers, mut methods) = (Vec::new(), map(), Vec::new());
    let (mut values, mut exempt, mut doubt) = (Vec::new(), Vec::new(), None);
    for entry in chain {
        let wildcard = entry.value.is_some_and(|value| value.contains('*'));
        let counted_apart = entry.value.is_none() || wildcard && !entry.shared;
        let others = entry.others.iter().map(|other| (*other).to_owned());
        match (&entry.meaning, entry.value) {
            (Meaning::Constant, _) => rule.constant = true,
            (Meaning::Path, value) => {
                rule.path = value.map(str::to_owned).or(rule.path.take());
                rule.other_paths.extend(others);
            }
            (Meaning::Host, Some(value)) if wildcard => {
                return Err(format!(
                    "the gateway has no limits for hosts such as {value}: use a route with this host"
                ));
            }
            (Meaning::Host, value) => {
                rule.host = value.map(str::to_owned).or(rule.host.take());
                rule.other_hosts.extend(others);
            }
            (Meaning::Key(key), Some(value)) => match key.split_once(':') {
                Some(("header", name)) if !wildcard || value == "*" => headers.insert(name, text(value)),
                None if key == "method" && !wildcard => methods.push(text(value)),
                _ if !wildcard && chain.len() == 1 => {
                    parts.push(key.clone());
                    values.push(text(value));
                }
                _ => {
                    return Err(format!(
                        "a limit has no condition for {key} {value} here: use a route, or rules of the limit for single keys"
                    ));
                }
            },
            (Meaning::Key(key), None) => {
                let by_itself = chain.len() == 1;
                match entry.others.as_slice() {
                    [] => {}
                    others if by_itself && others.iter().all(|other| !other.contains('*')) => {
                        exempt.extend(others.iter().map(text))
                    }
                    others => {
                        doubt = Some(format!(
                            "it applies to {key} {} as well, beside the descriptors for these values; in the service only those do",
                            others.join(", ")
                        ));
                    }
                }
            }
        }
        if counted_apart {
            rule.by_address |= entry.meaning.key() == "ip";
            rule.skips |= entry.meaning.key().contains(':');
            parts.push(entry.meaning.key().to_owned());
        }
    }
    parts.retain(|part| part != "global");
    parts.dedup();
    let key = match parts.as_slice() {
        [] => text("global"),
        [one] => text(one),
        several => list(several.iter().map(text)),
    };
    let mut when = map();
    if !methods.is_empty() {
        when.insert("methods", list(methods));
    }
    if !headers.is_empty() {
        when.insert("headers", headers);
    }
    if !values.is_empty() {
        when.insert("key", list(values));
    }
    let mut node = map().with("key", key);
    if !when.is_empty() {
        node.insert("when", when);
    }
    if !exempt.is_empty() {
        node.insert("exempt", list(exempt));
    }
    if rule.skips {
        node.insert("on_missing", text("skip"));
    }
    Ok((node, doubt))
}

fn unknown(key: &str) -> String {
    format!(
        "left out: its name does not say what of a request `{key}` is. See the rate_limits of Envoy, and import again with --key \
         {key}=KEY, where KEY is a key of limits such as header:X-Name, query:name, user or api_key"
    )
}
