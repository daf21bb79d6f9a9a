//! The plugin rate-limiting.

use super::entities::{Entities, Person, Plugin, Route};
use super::scope;
use crate::accepted;
use crate::fields::{Field, Value};
use crate::marks::Marks;
use crate::names::{name, unused};
use crate::yaml::{Node, list, map, text};

/// The periods of Kong, and those of rates.
const PERIODS: [(&str, &str); 6] =
    [("second", "s"), ("minute", "min"), ("hour", "h"), ("day", "day"), ("month", "month"), ("year", "365d")];

/// A limit of a plugin: its counters are shared by all routes that the plugin applies to.
struct Found {
    plugin: usize,
    period: &'static str,
    /// The service, where it counts by service.
    service: Option<String>,
    exempt: Vec<String>,
    name: String,
    node: Node,
}

/// All limits of a file.
#[derive(Default)]
pub(super) struct Limits<'a> {
    found: Vec<Found>,
    redis: Option<&'a Field>,
    /// A limit that only asks for a key.
    authenticated: Option<Node>,
}

/// A field that cannot be converted, and why.
pub(super) type Lost<'a> = (&'a Field, String);

/// The field of a rate, its period and its count.
type Rate<'a> = (&'a Field, &'static str, u64);

/// What the limits of a route add to it.
#[derive(Default)]
pub(super) struct Applied<'a> {
    pub(super) names: Vec<Node>,
    /// Whether its answers have no rate limit headers.
    pub(super) hides_headers: bool,
    pub(super) reject: Option<Node>,
    /// A plugin that limits, and why it cannot be converted: its route has to be closed.
    pub(super) lost: Option<Lost<'a>>,
}

/// The rates of a plugin.
///
/// # Errors
/// What is wrong with the first that is not one.
fn rates<'a>(plugin: &Plugin<'a>) -> Result<Vec<Rate<'a>>, Lost<'a>> {
    let mut out = Vec::new();
    for (word, period) in PERIODS {
        let Some(field) = plugin.field.at(&["config", word]) else { continue };
        if matches!(field.value, Value::Empty) {
            continue;
        }
        let count = field.text().and_then(|text| text.parse::<u64>().ok()).filter(|count| *count > 0);
        let count = count.ok_or((field, "it is not a number of requests".to_owned()))?;
        let limit = map()
            .with("key", text("ip"))
            .with("algorithm", text("fixed_window"))
            .with("rate", text(format!("{count}/{period}")));
        accepted::limit(&limit).map_err(|why| (field, why))?;
        out.push((field, period, count));
    }
    if out.is_empty() { Err((plugin.field, "it has no number of requests".to_owned())) } else { Ok(out) }
}

impl<'a> Limits<'a> {
    /// The limits of a route. `by_key` says whether its requests have verified keys, `required` whether they need one.
    pub(super) fn apply(
        &mut self,
        entities: &Entities<'a>,
        route: &Route<'a>,
        by_key: bool,
        required: bool,
        marks: &mut Marks,
    ) -> Applied<'a> {
        let mut applied = Applied::default();
        let mut own = scope::consumers(entities, "rate-limiting", route);
        let general = scope::plugin(entities, "rate-limiting", route, None);
        if by_key {
            own.retain(|(_, plugin)| match (rates(plugin), general) {
                (Ok(_), _) => true,
                (Err((field, why)), Some(_)) => {
                    let text =
                        format!("left out, and the limit of all others holds for this consumer: {why}");
                    marks.unsupported(field.number, text);
                    false
                }
                (Err(lost), None) => {
                    applied.lost = Some(lost);
                    false
                }
            });
        }
        let exempt: Vec<String> = if by_key {
            own.iter().map(|(person, _)| format!("consumer:{}", person.written)).collect()
        } else {
            Vec::new()
        };
        if let Some(plugin) = general {
            self.plugin(entities, plugin, route, None, &exempt, by_key, marks, &mut applied);
        }
        for (person, plugin) in own {
            match by_key {
                true => self.plugin(entities, plugin, route, Some(person), &[], by_key, marks, &mut applied),
                false => marks.unsupported(
                    plugin.field.number,
                    format!("left out on route {}: no key-auth says who sends a request", route.name),
                ),
            }
        }
        if required {
            self.authenticated = Some(
                map()
                    .with("key", text("consumer"))
                    .with("rate", text("1G/s"))
                    .with("on_missing", text("deny")),
            );
            applied.names.push(text("authenticated").comment("401 without a known key"));
        }
        applied
    }

    #[allow(clippy::too_many_arguments, reason = "the facts of one plugin at one route")]
    fn plugin(
        &mut self,
        entities: &Entities<'a>,
        plugin: &Plugin<'a>,
        route: &Route<'a>,
        person: Option<&Person<'a>>,
        exempt: &[String],
        by_key: bool,
        marks: &mut Marks,
        applied: &mut Applied<'a>,
    ) {
        let (rates, config) = match (rates(plugin), plugin.field.get("config")) {
            (Ok(rates), Some(config)) => (rates, config),
            (Err(lost), _) => {
                applied.lost = Some(lost);
                return;
            }
            (Ok(_), None) => return, // rates are in it
        };
        marks.converted(plugin.field.number, "limits");
        let service = route.service.map(|number| entities.services[number].short());
        let by = config.text_of("limit_by").unwrap_or("consumer");
        let key = match person {
            Some(_) => {
                // `when` has the name of a consumer, which is a value of no other key.
                if let Some(field) = config.get("limit_by").filter(|_| by == "credential") {
                    marks.approximated(field.number, "key: consumer, for all its keys together");
                }
                "consumer".to_owned()
            }
            None => key(config, by, by_key, marks),
        };
        for (field, period, count) in rates {
            let service = service.clone().filter(|_| by == "service");
            let same = |found: &&Found| {
                found.plugin == plugin.field.number
                    && found.period == period
                    && found.service == service
                    && found.exempt == exempt
            };
            if let Some(known) = self.found.iter().find(same) {
                let node = text(&known.name).source(&field.source);
                if !applied.names.iter().any(|name| name.as_text() == Some(known.name.as_str())) {
                    applied.names.push(node);
                }
                continue;
            }
            let mut node = map()
                .with("key", text(&key))
                .with("algorithm", text("fixed_window"))
                .with("rate", text(format!("{count}/{period}")));
            if let Some(person) = person {
                node.insert("when", map().with("key", list([text(&person.written)])));
            }
            if !exempt.is_empty() {
                node.insert("exempt", list(exempt.iter().map(text)));
            }
            if person.is_none() && key.contains("header:") && !key.contains('|') {
                node.insert("on_missing", text("skip"));
            }
            if config.text_of("policy") == Some("redis") {
                self.redis = self.redis.or_else(|| plugin.field.get("config"));
                let open = config.text_of("fault_tolerant") != Some("false");
                node.insert("on_store_failure", text(if open { "open" } else { "closed" }));
            } else {
                node.insert("scope", text("local"));
            }
            let owner = owner(plugin, service.as_deref(), person);
            let word = field.path.rsplit('.').next().unwrap_or_default();
            let wanted = name(&format!("{owner}-{word}"));
            let name = unused(&wanted, &|name| self.found.iter().any(|found| found.name == name));
            match word {
                "year" => marks.approximated(
                    field.number,
                    format!("limit {name}: windows of 365 days, not calendar years"),
                ),
                _ => marks.converted(field.number, format!("limit {name}")),
            }
            applied.names.push(text(&name).source(&field.source));
            self.found.push(Found {
                plugin: plugin.field.number,
                period,
                service,
                exempt: exempt.to_vec(),
                name,
                node: node.source(&field.source),
            });
        }
        answers(config, marks, applied);
    }

    /// The section `store`.
    pub(super) fn store(&self, marks: &mut Marks) -> Node {
        let Some(config) = self.redis else { return map() };
        // `redis: {host: …}` since Kong 3.6, `redis_host` before.
        let field = |word: &str| config.at(&["redis", word]).or_else(|| config.get(&format!("redis_{word}")));
        let value = |word: &str| field(word).and_then(Field::text);
        let scheme = if value("ssl") == Some("true") { "rediss" } else { "redis" };
        let url = format!(
            "{scheme}://{}:{}",
            value("host").unwrap_or("127.0.0.1"),
            value("port").unwrap_or("6379")
        );
        let mut redis = map().with("url", text(url).source(&config.source));
        for (word, target) in [("username", "username"), ("database", "database")] {
            if let Some(value) = value(word).filter(|value| !value.is_empty()) {
                redis.insert(target, text(value));
            }
        }
        if let Some(milliseconds) = value("timeout").and_then(|text| text.parse::<u64>().ok()) {
            redis.insert("timeout", text(format!("{milliseconds}ms")));
        }
        for word in ["host", "port", "username", "database", "timeout", "ssl"] {
            if let Some(field) = field(word) {
                marks.converted(field.number, "store.redis");
            }
        }
        if let Some(field) = field("password") {
            redis = redis.above("Write the password to a file, and add: password: {file: redis.password}");
            marks.unsupported(field.number, "secrets are not copied: write it to a file, and add `password: {file: redis.password}` to store.redis");
        }
        map().with("redis", redis.block())
    }

    /// The section `limits`.
    pub(super) fn finish(self) -> Node {
        let own =
            self.authenticated.into_iter().fold(map(), |section, node| section.with("authenticated", node));
        self.found.into_iter().fold(own, |section, found| section.with(found.name, found.node)).block()
    }
}

/// What limits of a plugin are called by.
fn owner(plugin: &Plugin<'_>, service: Option<&str>, person: Option<&Person<'_>>) -> String {
    let parts = [
        person.map(|person| person.written.as_str()),
        plugin.route.as_deref(),
        plugin.service.as_deref().or(service),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "all".to_owned() } else { parts.join("-") }
}

/// What a limit counts by. Kong falls back to the address where there is no consumer or header.
fn key(config: &Field, by: &str, by_key: bool, marks: &mut Marks) -> String {
    let field = config.get("limit_by");
    let mut say = |text: &str, differs: bool| {
        if let Some(field) = field {
            if differs { marks.approximated(field.number, text) } else { marks.converted(field.number, text) }
        }
    };
    match by {
        "consumer" if by_key => {
            say("key: consumer | ip", false);
            "consumer | ip".to_owned()
        }
        "credential" if by_key => {
            say("key: api_key | ip", false);
            "api_key | ip".to_owned()
        }
        "consumer" | "credential" => {
            say("key: ip, because no key-auth says who sends a request", false);
            "ip".to_owned()
        }
        "service" => {
            say("key: global, a limit for each service", false);
            "global".to_owned()
        }
        "header" => {
            let header = config.text_of("header_name").unwrap_or("X-Api-Key");
            say(&format!("key: header:{header} | ip"), false);
            if let Some(field) = config.get("header_name") {
                marks.converted(field.number, "the key of its limits");
            }
            format!("header:{header} | ip")
        }
        "path" => {
            say("key: ip; requests with config.path count together in Kong", true);
            if let Some(field) = config.get("path") {
                marks.unsupported(field.number, "requests with this path count together in Kong: write a route for it, with a limit by `global`");
            }
            "ip".to_owned()
        }
        "ip" => {
            say("key: ip", false);
            "ip".to_owned()
        }
        other => {
            say(&format!("there is no `{other}`: key: ip"), true);
            "ip".to_owned()
        }
    }
}

/// What clients see of a plugin.
fn answers(config: &Field, marks: &mut Marks, applied: &mut Applied<'_>) {
    if let Some(field) = config.get("hide_client_headers") {
        marks.converted(field.number, "headers of its routes");
        applied.hides_headers |= field.text() == Some("true");
    }
    if let Some(field) = config.get("policy") {
        match field.text() {
            Some("redis") => marks.converted(field.number, "the limits are shared in store.redis"),
            Some("cluster") => marks.approximated(field.number, "scope: local; Kong counts in its database. To share limits: `store: {redis: {url: …}}`, and remove `scope: local`"),
            _ => marks.converted(field.number, "scope: local"),
        }
    }
    if let Some(field) = config.get("fault_tolerant") {
        match config.text_of("policy") {
            Some("redis") => {
                marks.converted(field.number, "on_store_failure: open admits, closed answers 503")
            }
            _ => marks.ignored(field.number, "limits in the process do not fail"),
        }
    }
    if let Some(field) = config.get("sync_rate") {
        marks.ignored(
            field.number,
            "the store is asked about each request; `sync: leased` asks it seldom, within a bound",
        );
    }
    let status = config.text_of("error_code").and_then(|status| status.parse::<u16>().ok());
    let message = config.text_of("error_message");
    let mut node = map();
    if let Some(status) = status.filter(|status| *status != 429) {
        node.insert("status", text(status));
    }
    if let Some(message) = message {
        let quoted = crate::names::literal(&message.replace('\\', "\\\\").replace('"', "\\\""));
        node.insert("body", text(format!("{{{{\"message\": \"{quoted}\"}}}}")));
        node.insert("content_type", text("application/json"));
    }
    for word in ["error_code", "error_message"] {
        if let Some(field) = config.get(word) {
            match accepted::field(None, "reject", &node) {
                Err(why) if !node.is_empty() => marks.unsupported(field.number, why),
                _ => marks.converted(field.number, "reject of its routes"),
            }
        }
    }
    if !node.is_empty() && accepted::field(None, "reject", &node).is_ok() && applied.reject.is_none() {
        applied.reject = Some(node);
    }
}
