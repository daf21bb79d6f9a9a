//! Plugins other than rate-limiting: who sends a request, who may, and what is changed.

use super::entities::{Entities, Plugin, Route};
use super::known;
use super::scope;
use super::transform;
use crate::accepted;
use crate::fields::Field;
use crate::marks::Marks;
use crate::names::unused;
use crate::yaml::{Node, boolean, list, map, text};

/// Authentication, and lists of addresses.
pub(super) struct Access {
    api_key: Option<Node>,
    /// Whether all routes need a key.
    all: bool,
    header: String,
    in_query: bool,
    lists: Vec<(String, Vec<String>, Node)>,
}

impl Access {
    pub(super) fn of(entities: &Entities<'_>, marks: &mut Marks) -> Self {
        let mut access =
            Self { api_key: None, all: false, header: String::new(), in_query: false, lists: Vec::new() };
        let plugins: Vec<_> = entities.plugins.iter().filter(|plugin| plugin.name == "key-auth").collect();
        let Some(first) = plugins.first() else { return access };
        let mut names: Option<(Vec<&str>, bool, bool)> = None;
        for plugin in &plugins {
            marks.converted(plugin.field.number, "auth.api_key, with consumers.yaml");
            let closed = !is_anonymous(entities, plugin);
            let found = sources(plugin.field.get("config"), closed, marks);
            match &names {
                Some(known) if *known != found => {
                    marks.approximated(
                        plugin.field.number,
                        "the gateway has one auth.api_key: that of the first key-auth",
                    );
                }
                _ => names = Some(found),
            }
        }
        let (names, in_header, in_query) = names.unwrap_or_default();
        let name = names.first().copied().unwrap_or("apikey");
        let mut node = map();
        if in_header {
            name.clone_into(&mut access.header);
            node.insert("header", text(name));
        }
        access.in_query = in_query;
        if in_query {
            node.insert("query", text(name));
        }
        marks.report.note("requests without a known key are answered 401, and count under their address where a limit is by `consumer | ip`: so guessed keys are limited, too. Kong does not count them");
        access.all = entities.routes.iter().all(|route| requires_key(entities, route));
        node.insert("consumers", text("consumers.yaml"));
        if access.all {
            node.insert("required", boolean(true));
        }
        access.api_key = Some(node.source(&first.field.source));
        access
    }

    pub(super) fn has_consumers(&self) -> bool {
        self.api_key.is_some()
    }

    /// Whether keys of the requests of a route are verified, and whether a limit of the route has to ask for one.
    pub(super) fn by_key(&self, entities: &Entities<'_>, route: &Route<'_>) -> (bool, bool) {
        match access_of(entities, route) {
            Some(plugin) => (true, !self.all && !is_anonymous(entities, plugin)),
            None => (false, false),
        }
    }

    /// The section `request_headers`: servers behind Kong trust the headers that key-auth sets, so that those of a client are removed.
    pub(super) fn request_headers(&self, marks: &mut Marks) -> Node {
        if self.api_key.is_none() {
            return map();
        }
        marks.report.note("servers get the name of a consumer in X-Consumer-Username, as from Kong, but no X-Consumer-ID, X-Consumer-Custom-ID, X-Credential-Identifier or X-Anonymous-Consumer; those of clients are removed on all routes");
        let removed = [
            "X-Consumer-ID",
            "X-Consumer-Custom-ID",
            "X-Credential-Identifier",
            "X-Credential-Username",
            "X-Anonymous-Consumer",
        ];
        map()
            .with("remove", list(removed.map(text)))
            .with("set", map().with("X-Consumer-Username", text("{consumer}")))
    }

    /// The section `auth`.
    pub(super) fn section(&self) -> Node {
        match &self.api_key {
            Some(node) => map().with("api_key", node.clone()),
            None => map(),
        }
    }

    /// The section `lists`.
    pub(super) fn lists(&self) -> Node {
        self.lists.iter().fold(map(), |section, (name, _, node)| section.with(name, node.clone())).block()
    }

    /// Adds the fields of all plugins of a route. They are in the order of a file.
    pub(super) fn fields(
        &mut self,
        entities: &Entities<'_>,
        route: &Route<'_>,
        fields: &mut Vec<(String, Node)>,
        marks: &mut Marks,
    ) {
        for plugin in applying(entities, route) {
            let config = plugin.field.get("config");
            match (plugin.name, config) {
                ("key-auth", Some(config)) if config.is_true("hide_credentials") => {
                    let field = config.get("hide_credentials").map_or(config.number, |field| field.number);
                    if self.header.is_empty() {
                        marks.unsupported(field, "a query parameter is forwarded as it is");
                    } else {
                        match self.in_query {
                            true => marks.approximated(
                                field,
                                "request_headers.remove of its routes; a key in the query is forwarded",
                            ),
                            false => marks.converted(field, "request_headers.remove of its routes"),
                        }
                        push(fields, "request_headers", map().with("remove", list([text(&self.header)])));
                    }
                }
                ("ip-restriction", Some(config)) => self.restriction(plugin, config, fields, marks),
                ("ip-restriction", None) => {
                    self.deny(plugin.field, "it has no config", fields, marks);
                }
                ("cors", _) => cors(plugin, config, fields, marks),
                ("request-size-limiting", _) => {
                    if let Err(why) = size(plugin, config, fields, marks) {
                        self.deny(plugin.field, &why, fields, marks);
                    }
                }
                ("request-transformer", Some(config)) => {
                    marks.converted(plugin.field.number, "changes of its routes");
                    push(fields, "request_headers", transform::headers(config, "request_headers", marks));
                    if let Some(uri) = config.at(&["replace", "uri"]) {
                        let to = text(uri.text().unwrap_or_default());
                        match accepted::field(None, "rewrite", &to) {
                            Ok(()) if !uri.text().unwrap_or_default().contains("$(") => {
                                fields.retain(|(name, _)| name != "rewrite" && name != "strip_prefix");
                                fields.push(("rewrite".to_owned(), to));
                                marks.converted(uri.number, "rewrite");
                            }
                            _ => marks
                                .unsupported(uri.number, "write a `rewrite` with variables of the gateway"),
                        }
                    }
                }
                ("response-transformer", Some(config)) => {
                    marks.converted(plugin.field.number, "changes of its routes");
                    push(fields, "response_headers", transform::headers(config, "response_headers", marks));
                }
                _ if known::protects(plugin.name) => {
                    self.deny(plugin.field, &known::of(plugin.name).1, fields, marks);
                }
                _ => {}
            }
        }
    }

    /// Denies everybody on a route, because a part that refuses or limits requests cannot be converted.
    pub(super) fn deny(
        &mut self,
        source: &Field,
        why: &str,
        fields: &mut Vec<(String, Node)>,
        marks: &mut Marks,
    ) {
        marks.unsupported(source.number, format!("its routes deny everybody until you replace it: {why}"));
        let networks = vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()];
        let name = "everybody".to_owned();
        if !self.lists.iter().any(|(known, ..)| *known == name) {
            let node = list(networks.iter().map(text)).source(&source.source);
            self.lists.push((name.clone(), networks, node));
        }
        fields.retain(|(field, _)| field != "deny");
        fields.push(("deny".to_owned(), list([text(name)])));
    }

    fn restriction(
        &mut self,
        plugin: &Plugin<'_>,
        config: &Field,
        fields: &mut Vec<(String, Node)>,
        marks: &mut Marks,
    ) {
        marks.converted(plugin.field.number, "lists of its routes");
        for (words, field) in [(["deny", "blacklist"], "deny"), (["allow", "whitelist"], "allow")] {
            let Some(found) = words.iter().find_map(|word| config.get(word)) else { continue };
            let networks: Vec<String> = found.texts().iter().map(|text| (*text).to_owned()).collect();
            if let Some(wrong) =
                networks.iter().find(|network| sluicegate_config::parse_network(network).is_err())
            {
                return self.deny(found, &format!("`{wrong}` is not a network"), fields, marks);
            }
            if networks.is_empty() {
                marks.ignored(found.number, "it is empty");
                continue;
            }
            let known =
                self.lists.iter().find(|(_, known, _)| *known == networks).map(|(name, ..)| name.clone());
            let name = known.unwrap_or_else(|| {
                let wanted = if field == "deny" { "denied" } else { "allowed" };
                let name = unused(wanted, &|name| self.lists.iter().any(|(known, ..)| known == name));
                let node = list(networks.iter().map(text)).source(&found.source);
                self.lists.push((name.clone(), networks.clone(), node));
                name
            });
            marks.converted(found.number, format!("{field} of its routes: such clients are answered 403"));
            let own = list([text(name)]);
            match fields.iter_mut().find(|(known, _)| known == field) {
                // Another plugin denies everybody.
                Some((_, known)) => {
                    *known = list(known.clone().into_items().into_iter().chain(own.into_items()));
                }
                None => fields.push((field.to_owned(), own)),
            }
        }
        if let Some(status) = config.get("status").filter(|status| status.text() != Some("403")) {
            marks.approximated(status.number, "such clients are answered 403");
        }
        if let Some(message) = config.get("message") {
            marks.approximated(message.number, "the answer is a problem document");
        }
    }
}

/// The plugins that apply to a route and are not of a consumer, each name once.
pub(super) fn applying<'e, 'a>(entities: &'e Entities<'a>, route: &Route<'a>) -> Vec<&'e Plugin<'a>> {
    let mut names: Vec<&str> = Vec::new();
    let mut out = Vec::new();
    for plugin in &entities.plugins {
        if !names.contains(&plugin.name) {
            names.push(plugin.name);
            out.extend(scope::plugin(entities, plugin.name, route, None));
        }
    }
    out
}

/// Whether key-auth refuses requests of a route that have no key.
pub(super) fn requires_key(entities: &Entities<'_>, route: &Route<'_>) -> bool {
    access_of(entities, route).is_some_and(|plugin| !is_anonymous(entities, plugin))
}

fn access_of<'e, 'a>(entities: &'e Entities<'a>, route: &Route<'a>) -> Option<&'e Plugin<'a>> {
    scope::plugin(entities, "key-auth", route, None)
}

/// Whether requests without a key are admitted. Where the consumer for them has plugins that restrict it, they are not: here no request
/// is of that consumer, and nothing would restrict them.
fn is_anonymous(entities: &Entities<'_>, plugin: &Plugin<'_>) -> bool {
    let name = plugin.field.at(&["config", "anonymous"]).and_then(Field::text);
    name.is_some_and(|name| !name.is_empty() && !entities.is_restricted(name, ""))
}

/// The names of a key, and whether it is in a header or in the query.
fn sources<'a>(config: Option<&'a Field>, closed: bool, marks: &mut Marks) -> (Vec<&'a str>, bool, bool) {
    let Some(config) = config else { return (vec!["apikey"], true, true) };
    let names = config.get("key_names").map(|field| {
        match field.texts().len() {
            0 | 1 => marks.converted(field.number, "auth.api_key"),
            _ => marks.approximated(field.number, "auth.api_key has one name: the first"),
        }
        field.texts()
    });
    for word in ["key_in_header", "key_in_query"] {
        if let Some(field) = config.get(word) {
            marks.converted(field.number, "auth.api_key");
        }
    }
    if let Some(field) = config.get("key_in_body") {
        match field.text() {
            Some("true") => marks.unsupported(field.number, "keys are in a header or the query"),
            _ => marks.ignored(field.number, "keys are in a header or the query"),
        }
    }
    if let Some(field) = config.get("anonymous") {
        match closed {
            true => marks.unsupported(
                field.number,
                "requests without a key are answered 401: here the plugins of this consumer would not hold for them",
            ),
            false => marks.converted(field.number, "a request without a key is admitted, as nobody"),
        }
    }
    if let Some(field) = config.get("hide_credentials").filter(|field| field.text() == Some("false")) {
        marks.converted(field.number, "the key is forwarded");
    }
    for word in ["run_on_preflight", "realm"] {
        if let Some(field) = config.get(word) {
            marks.ignored(
                field.number,
                "`cors` and `preflight` of a route say how preflight requests are answered",
            );
        }
    }
    let on = |word: &str| config.text_of(word) != Some("false");
    (names.unwrap_or_else(|| vec!["apikey"]), on("key_in_header"), on("key_in_query"))
}

/// Adds changes to those of an earlier plugin.
fn push(fields: &mut Vec<(String, Node)>, name: &str, node: Node) {
    if node.is_empty() {
        return;
    }
    match fields.iter_mut().find(|(known, _)| known == name) {
        Some((_, known)) => {
            for (verb, value) in node.into_entries() {
                let old = known
                    .clone()
                    .into_entries()
                    .into_iter()
                    .find(|(key, _)| *key == verb)
                    .map(|(_, old)| old);
                let merged = match old {
                    Some(old) if verb == "remove" => {
                        list(old.into_items().into_iter().chain(value.into_items()))
                    }
                    Some(old) => {
                        value.into_entries().into_iter().fold(old, |all, (key, value)| all.with(key, value))
                    }
                    None => value,
                };
                known.insert(verb, merged);
            }
        }
        None => fields.push((name.to_owned(), node)),
    }
}

fn size(
    plugin: &Plugin<'_>,
    config: Option<&Field>,
    fields: &mut Vec<(String, Node)>,
    marks: &mut Marks,
) -> Result<(), String> {
    let field = config.and_then(|config| config.get("allowed_payload_size"));
    let count = field.and_then(Field::text).unwrap_or("128");
    let unit = match config.and_then(|config| config.text_of("size_unit")) {
        Some("kilobytes") => "KiB",
        Some("bytes") => "",
        _ => "MiB",
    };
    let value = text(format!("{count}{unit}"));
    marks.converted(plugin.field.number, "max_body of its routes");
    for word in ["allowed_payload_size", "size_unit"] {
        if let Some(field) = config.and_then(|config| config.get(word)) {
            marks.converted(field.number, format!("max_body: {count}{unit}"));
        }
    }
    if let Some(field) = config.and_then(|config| config.get("require_content_length")) {
        marks.ignored(field.number, "bodies of unknown length are counted while they are forwarded");
    }
    accepted::field(None, "max_body", &value)?;
    fields.push(("max_body".to_owned(), value));
    Ok(())
}

fn cors(plugin: &Plugin<'_>, config: Option<&Field>, fields: &mut Vec<(String, Node)>, marks: &mut Marks) {
    let origins = config.and_then(|config| config.get("origins"));
    let texts = origins.map_or_else(|| vec!["*"], Field::texts);
    let mut node =
        map().with("origins", if texts == ["*"] { text("*") } else { list(texts.iter().map(text)) });
    let mut used = Vec::from_iter(origins);
    if let Some(config) = config {
        for (word, field) in [("methods", "methods"), ("headers", "headers"), ("exposed_headers", "expose")] {
            if let Some(found) = config.get(word) {
                node.insert(field, list(found.texts().iter().map(text)));
                used.push(found);
            }
        }
        if let Some(found) = config.get("credentials") {
            if found.text() == Some("true") {
                node.insert("credentials", boolean(true));
            }
            used.push(found);
        }
        if let Some(found) = config.get("max_age") {
            node.insert("max_age", text(format!("{}s", found.text().unwrap_or("0"))));
            used.push(found);
        }
        if let Some(found) = config.get("preflight_continue") {
            match found.text() {
                Some("true") => marks.unsupported(found.number, "the gateway answers preflight requests; without `cors`, `preflight: exempt` forwards them"),
                _ => marks.converted(found.number, "the gateway answers preflight requests"),
            }
        }
    }
    match accepted::field(None, "cors", &node) {
        Ok(()) => {
            marks.converted(plugin.field.number, "cors of its routes");
            used.iter().for_each(|field| marks.converted(field.number, "cors"));
            fields.push(("cors".to_owned(), node.source(&plugin.field.source)));
        }
        Err(why) => {
            marks.unsupported(plugin.field.number, format!("left out: {why}"));
        }
    }
}
