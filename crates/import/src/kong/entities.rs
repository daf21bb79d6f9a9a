//! Services, routes, consumers and plugins, wherever they are written.

use super::known;
use crate::fields::{Field, Value};
use crate::marks::Marks;
use crate::names::{name, unused};
use crate::report::Outcome;
use crate::yaml::Node;

/// A consumer with its keys, for the file of consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Its name.
    pub name: String,
    /// Its keys, as they are sent.
    pub keys: Vec<String>,
}

/// A service.
pub(super) struct Service<'a> {
    pub(super) field: &'a Field,
    pub(super) name: String,
}

/// A route and its service.
pub(super) struct Route<'a> {
    pub(super) field: &'a Field,
    pub(super) name: String,
    pub(super) service: Option<usize>,
}

/// A consumer.
pub(super) struct Person<'a> {
    pub(super) field: &'a Field,
    pub(super) name: String,
    /// The name in the file of consumers.
    pub(super) written: String,
}

/// A plugin and the entities that it is for.
pub(super) struct Plugin<'a> {
    pub(super) field: &'a Field,
    pub(super) name: &'a str,
    pub(super) service: Option<String>,
    pub(super) route: Option<String>,
    pub(super) consumer: Option<String>,
    /// A group of consumers; such plugins are not converted.
    pub(super) group: Option<String>,
}

/// All entities of a file.
pub(super) struct Entities<'a> {
    pub(super) services: Vec<Service<'a>>,
    pub(super) routes: Vec<Route<'a>>,
    pub(super) consumers: Vec<Person<'a>>,
    pub(super) plugins: Vec<Plugin<'a>>,
    pub(super) upstreams: Vec<&'a Field>,
    /// Groups of consumers, with their members.
    groups: Vec<&'a Field>,
    keys: Vec<(String, &'a Field)>,
}

fn items<'a>(field: &'a Field, word: &str) -> &'a [Field] {
    field.get(word).map_or(&[], Field::items)
}

/// The name that an entity is referred to by: `service: NAME`, `service: {name: NAME}` or `{id: ID}`.
fn reference(field: &Field, word: &str) -> Option<String> {
    let found = field.get(word)?;
    found.text().map(str::to_owned).or_else(|| named(found))
}

fn named(field: &Field) -> Option<String> {
    ["name", "username", "id"].iter().find_map(|key| field.text_of(key)).map(str::to_owned)
}

impl<'a> Entities<'a> {
    pub(super) fn of(document: &'a Field, marks: &mut Marks) -> Self {
        let mut found = Self {
            services: Vec::new(),
            routes: Vec::new(),
            consumers: Vec::new(),
            plugins: Vec::new(),
            upstreams: items(document, "upstreams").iter().collect(),
            groups: items(document, "consumer_groups").iter().collect(),
            keys: Vec::new(),
        };
        for field in items(document, "services") {
            let host = field.text_of("host").or_else(|| field.text_of("url")).unwrap_or("service");
            let name = field.text_of("name").or_else(|| field.text_of("id")).unwrap_or(host);
            // Without names, several may have one host.
            let name = unused(name, &|name| found.services.iter().any(|known| known.name == name));
            found.services.push(Service { field, name: name.clone() });
            found.add_plugins(field, (Some(&name), None, None), marks);
        }
        for (number, service) in items(document, "services").iter().enumerate() {
            for field in items(service, "routes") {
                found.add_route(field, Some(number), marks);
            }
        }
        for field in items(document, "routes") {
            let service = reference(field, "service");
            let number =
                found.services.iter().position(|known| service.as_ref().is_some_and(|name| known.is(name)));
            if let Some(written) = field.get("service") {
                match number {
                    Some(number) => marks.all(
                        written,
                        Outcome::Converted,
                        &format!("the upstream of {}", found.services[number].name),
                    ),
                    None => marks.all(written, Outcome::Unsupported, "there is no such service"),
                }
            }
            found.add_route(field, number, marks);
        }
        for field in items(document, "consumers") {
            let name = ["username", "custom_id", "id"]
                .iter()
                .find_map(|key| field.text_of(key))
                .unwrap_or("consumer")
                .to_owned();
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.@+:/".contains(c);
            let written: String = name.chars().map(|c| if allowed(c) { c } else { '-' }).take(120).collect();
            let written = unused(&written, &|name| found.consumers.iter().any(|known| known.written == name));
            for key in items(field, "keyauth_credentials") {
                found.keys.push((name.clone(), key));
            }
            found.add_plugins(field, (None, None, Some(&name)), marks);
            found.consumers.push(Person { field, name, written });
        }
        for key in items(document, "keyauth_credentials") {
            if let Some(owner) = reference(key, "consumer") {
                found.keys.push((owner, key));
            }
        }
        for group in items(document, "consumer_groups") {
            found.add_plugins(group, (None, None, None), marks);
        }
        found.add_plugins(document, (None, None, None), marks);
        let (plugins, absent) = std::mem::take(&mut found.plugins)
            .into_iter()
            .partition::<Vec<_>, _>(|plugin| found.has_scope(plugin));
        for plugin in absent {
            let text = "left out: the route or service that it is for is not in this file, or not enabled";
            marks.unsupported(plugin.field.number, text);
        }
        found.plugins = plugins;
        for plugin in &found.plugins {
            match &plugin.consumer {
                Some(_) if plugin.name == "rate-limiting" => {}
                Some(name) if known::restricts(plugin.name) => marks.unsupported(
                    plugin.field.number,
                    format!("the keys of {name} are left out of consumers.yaml until you replace it: plugins of consumers other than rate-limiting have no equivalent"),
                ),
                Some(_) => marks.unsupported(
                    plugin.field.number,
                    "left out: plugins of consumers other than rate-limiting have no equivalent",
                ),
                None => {}
            }
        }
        found
    }

    fn add_route(&mut self, field: &'a Field, service: Option<usize>, marks: &mut Marks) {
        if service
            .is_some_and(|number| self.services[number].field.get("enabled").is_some_and(Field::says_no))
        {
            marks.all(field, Outcome::Ignored, "its service is not enabled");
            return;
        }
        let number = self.routes.len() + 1;
        let name = field
            .text_of("name")
            .or_else(|| field.text_of("id"))
            .map_or_else(|| format!("route-{number}"), str::to_owned);
        self.add_plugins(field, (None, Some(&name), None), marks);
        self.routes.push(Route { field, name, service });
    }

    fn add_plugins(
        &mut self,
        owner: &'a Field,
        scope: (Option<&str>, Option<&str>, Option<&str>),
        marks: &mut Marks,
    ) {
        for field in items(owner, "plugins") {
            let Some(name) = field.text_of("name") else { continue };
            if field.get("enabled").is_some_and(Field::says_no) {
                marks.ignored(field.number, "it is not enabled");
                continue;
            }
            let owned = || self.groups.iter().any(|group| std::ptr::eq(*group, owner)).then(|| named(owner));
            let group = reference(field, "consumer_group").or_else(|| owned().flatten());
            if group.is_some() {
                let text = "left out, and the keys of its consumers, unless a limit for everybody takes its place: `plan` of a consumer, and `plans` of limits";
                marks.all(field, Outcome::Unsupported, text);
            }
            let of =
                |word: &str, own: Option<&str>| reference(field, word).or_else(|| own.map(str::to_owned));
            let plugin = Plugin {
                field,
                name,
                service: of("service", scope.0),
                route: of("route", scope.1),
                consumer: of("consumer", scope.2),
                group,
            };
            for word in ["service", "route", "consumer", "enabled"] {
                if let Some(written) = field.get(word) {
                    marks.all(written, Outcome::Converted, "what the plugin is for");
                }
            }
            self.plugins.push(plugin);
        }
    }

    /// Whether the route and the service are there that a plugin is for.
    fn has_scope(&self, plugin: &Plugin<'a>) -> bool {
        let of_route = |name: &String| self.routes.iter().any(|route| route.is(name));
        let of_service = |name: &String| self.services.iter().any(|service| service.is(name));
        plugin.route.as_ref().is_none_or(of_route) && plugin.service.as_ref().is_none_or(of_service)
    }

    /// A consumer by its name, custom id or id.
    pub(super) fn consumer(&self, name: &str) -> Option<&Person<'a>> {
        let is = |person: &&Person<'a>| {
            person.name == name
                || person.field.text_of("custom_id") == Some(name)
                || person.field.text_of("id") == Some(name)
        };
        self.consumers.iter().find(is)
    }

    /// Whether a consumer has a plugin of its own that restricts it, and that `except` does not name.
    pub(super) fn is_restricted(&self, name: &str, except: &str) -> bool {
        let wanted = self.consumer(name).map_or(name, |person| person.name.as_str());
        let of = |owner: &str| self.consumer(owner).map_or(owner, |person| person.name.as_str()) == wanted;
        // A limit for everybody holds for the members of a group, too.
        let general = |plugin: &Plugin<'_>| {
            plugin.name == "rate-limiting"
                && [&plugin.service, &plugin.route, &plugin.consumer, &plugin.group]
                    .iter()
                    .all(|of| of.is_none())
        };
        let limited = self.plugins.iter().any(general);
        self.plugins.iter().filter(|plugin| known::restricts(plugin.name)).any(|plugin| match &plugin.group {
            Some(group) => (plugin.name != "rate-limiting" || !limited) && self.is_member(wanted, group),
            None => plugin.name != except && plugin.consumer.as_deref().is_some_and(of),
        })
    }

    /// Whether a consumer belongs to a group, as the consumer or the group says.
    fn is_member(&self, name: &str, group: &str) -> bool {
        let refers = |item: &Field| item.text().map(str::to_owned).or_else(|| named(item));
        let groups = self.consumer(name).map_or(&[] as &[Field], |person| items(person.field, "groups"));
        let is = |field: &Field, text: &str| {
            named(field).as_deref() == Some(text) || field.text_of("id") == Some(text)
        };
        let entity = self.groups.iter().find(|field| is(field, group));
        let is_group = |text: &str| text == group || entity.is_some_and(|field| is(field, text));
        let is_person = |text: &str| self.consumer(text).is_some_and(|person| person.name == name);
        let members = entity.map_or(&[] as &[Field], |field| items(field, "consumers"));
        groups.iter().filter_map(refers).any(|text| is_group(&text))
            || members.iter().filter_map(refers).any(|text| is_person(&text))
    }

    /// The consumers of the file of consumers: those that have keys.
    pub(super) fn file(&self, marks: &mut Marks) -> Vec<Consumer> {
        let mut out: Vec<Consumer> = Vec::new();
        for (owner, field) in &self.keys {
            let Some(key) = field.get("key") else { continue };
            let (Some(value), Some(person)) = (key.text(), self.consumer(owner)) else { continue };
            if self.is_restricted(owner, "rate-limiting") {
                let text = format!("left out: a plugin of {} has no equivalent", person.written);
                marks.unsupported(key.number, text);
                continue;
            }
            if let Some(ttl) = field.get("ttl").filter(|ttl| ttl.text() != Some("0")) {
                let text = "the key is left out, because those of consumers.yaml have no end: add it with `sluicegate consumers add-key`, and remove it when its time is over";
                [key, ttl].iter().for_each(|field| marks.unsupported(field.number, text));
                continue;
            }
            marks.converted(
                key.number,
                format!("a key of {} in consumers.yaml, as its SHA-256", person.written),
            );
            match out.iter_mut().find(|known| known.name == person.written) {
                Some(known) => known.keys.push(value.to_owned()),
                None => out.push(Consumer { name: person.written.clone(), keys: vec![value.to_owned()] }),
            }
        }
        for person in &self.consumers {
            let has_key = out.iter().any(|known| known.name == person.written);
            for word in ["username", "custom_id"] {
                if let Some(field) = person.field.get(word) {
                    match has_key {
                        true => marks.converted(field.number, format!("{} in consumers.yaml", person.written)),
                        false => marks.approximated(field.number, "it has no key, and is not in consumers.yaml: add it with `sluicegate consumers add`"),
                    }
                }
            }
        }
        out
    }
}

impl Route<'_> {
    pub(super) fn is(&self, name: &str) -> bool {
        self.name == name || self.field.text_of("id") == Some(name)
    }
}

impl Service<'_> {
    pub(super) fn is(&self, name: &str) -> bool {
        self.name == name || self.field.text_of("id") == Some(name)
    }

    /// A name for its limits and upstream.
    pub(super) fn short(&self) -> String {
        name(&self.name)
    }
}

/// Keeps keys, passwords and certificates out of the report.
pub(super) fn conceal(field: &mut Field) {
    let secret = |key: &str| {
        [
            "password",
            "redis_password",
            "key",
            "secret",
            "client_secret",
            "cert",
            "private_key",
            "session_secret",
            "aws_secret",
        ]
        .contains(&key)
    };
    match &mut field.value {
        Value::Empty | Value::Text(_) => {}
        Value::List(items) => items.iter_mut().for_each(conceal),
        Value::Map(entries) => {
            for (key, value) in entries {
                if secret(key) { value.conceal() } else { conceal(value) }
            }
        }
    }
}

/// A text of a field with the line it comes from.
pub(super) fn sourced(field: &Field, node: Node) -> Node {
    node.source(&field.source)
}
