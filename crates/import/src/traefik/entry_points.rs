//! Entry points as listeners.

use super::context::texts;
use crate::accepted;
use crate::fields::Field;
use crate::marks::Marks;
use crate::names::name as valid;
use crate::report::{Outcome, Source};
use crate::yaml::{Node, boolean, list, map, text};

/// An address for clients.
pub(super) struct EntryPoint {
    pub(super) name: String,
    address: String,
    pub(super) tls: bool,
    source: Option<Source>,
    proxy_protocol: bool,
    /// The entry point or port to which all requests are redirected, and whether for good.
    pub(super) redirect: Option<bool>,
    pub(super) middlewares: Vec<String>,
}

pub(super) struct EntryPoints {
    pub(super) all: Vec<EntryPoint>,
    trusted: Option<Node>,
}

impl EntryPoints {
    /// Those of the static configuration; without it those that routers name.
    pub(super) fn of(documents: &[Field], routers: &[(&str, &Field)], marks: &mut Marks) -> Self {
        let mut found = Self { all: Vec::new(), trusted: None };
        for document in documents {
            for (name, field) in document.get("entryPoints").map(Field::entries).unwrap_or_default() {
                found.add(name, field, marks);
            }
        }
        if found.all.is_empty() {
            found.guess(routers, marks);
        }
        let secure: Vec<&str> = routers
            .iter()
            .filter(|(_, router)| is_secure(router))
            .flat_map(|(_, router)| router.get("entryPoints").map(Field::texts).unwrap_or_default())
            .collect();
        for entry in &mut found.all {
            entry.tls |= entry.name == "websecure" || secure.contains(&entry.name.as_str());
        }
        found
    }

    fn add(&mut self, name: &str, field: &Field, marks: &mut Marks) {
        let http = field.get("http").map(Field::entries).unwrap_or_default();
        let tls = http.iter().find(|(key, _)| key == "tls").map(|(_, tls)| tls);
        if let Some(tls) = tls.filter(|tls| tls.is_leaf()) {
            marks.converted(tls.number, "the listener has TLS");
        }
        let mut entry = EntryPoint {
            name: name.to_owned(),
            address: "0.0.0.0:80".to_owned(),
            tls: tls.is_some(),
            source: Some(field.source.clone()),
            proxy_protocol: false,
            redirect: None,
            middlewares: field
                .at(&["http", "middlewares"])
                .map(Field::texts)
                .unwrap_or_default()
                .into_iter()
                .map(str::to_owned)
                .collect(),
        };
        if let Some(address) = field.get("address") {
            let written = address.text().unwrap_or_default();
            let plain = written.trim_end_matches("/tcp");
            let is_udp = plain.ends_with("/udp");
            if is_udp {
                return marks.all(field, Outcome::Unsupported, "the gateway serves HTTP over TCP");
            }
            entry.address = if plain.starts_with(':') { format!("0.0.0.0{plain}") } else { plain.to_owned() };
            marks.converted(address.number, format!("listen: {}", entry.address));
        }
        if let Some(ips) = field.at(&["forwardedHeaders", "trustedIPs"]) {
            match &self.trusted {
                None => {
                    marks.converted(ips.number, "client_ip.trusted_proxies");
                    self.trusted = Some(texts(ips));
                }
                Some(_) => marks
                    .approximated(ips.number, "the gateway has one client_ip: that of the first entry point"),
            }
        }
        if let Some(ips) = field.at(&["proxyProtocol", "trustedIPs"]) {
            entry.proxy_protocol = true;
            marks.approximated(ips.number, "proxy_protocol: every connection must begin with its header");
        }
        if let Some(to) = field.at(&["http", "redirections", "entryPoint"]) {
            marks.all(to, Outcome::Converted, "a redirect of all requests to https");
            entry.redirect = Some(to.text_of("permanent") != Some("false"));
        }
        if let Some(middlewares) = field.at(&["http", "middlewares"]) {
            marks.converted(middlewares.number, "in all routes of the listener");
        }
        if let Err(message) = self.push(entry) {
            marks.unsupported(field.number, format!("left out: {message}"));
        }
    }

    /// Adds an entry point, unless the gateway cannot listen there beside the others.
    fn push(&mut self, entry: EntryPoint) -> Result<(), String> {
        let listener = |entry: &EntryPoint| {
            map().with("name", text(valid(&entry.name))).with("address", text(&entry.address))
        };
        accepted::top_field("listen", &list(self.all.iter().chain([&entry]).map(listener)))?;
        self.all.push(entry);
        Ok(())
    }

    fn guess(&mut self, routers: &[(&str, &Field)], marks: &mut Marks) {
        let mut names: Vec<&str> = routers
            .iter()
            .flat_map(|(_, router)| router.get("entryPoints").map(Field::texts).unwrap_or_default())
            .collect();
        let secure = routers.iter().any(|(_, router)| is_secure(router));
        let plain =
            routers.iter().any(|(_, router)| !is_secure(router) && router.get("entryPoints").is_none());
        names.extend(plain.then_some("web"));
        names.extend((secure && !names.contains(&"websecure")).then_some("websecure"));
        names.sort_unstable();
        names.dedup();
        for (index, name) in names.into_iter().enumerate() {
            let port = match name {
                "web" | "http" => 80,
                "websecure" | "https" => 443,
                _ => 8081 + index,
            };
            let taken = self.all.iter().any(|entry| entry.address.ends_with(&format!(":{port}")));
            let port = if taken { 8081 + index } else { port };
            let added = self.push(EntryPoint {
                name: name.to_owned(),
                address: format!("0.0.0.0:{port}"),
                tls: matches!(name, "websecure" | "https"),
                source: None,
                proxy_protocol: false,
                redirect: None,
                middlewares: Vec::new(),
            });
            if let Err(message) = added {
                marks.report.note(format!("there is no listener {name}: {message}"));
            }
        }
        marks.report.note(
            "the addresses of entry points are in the static configuration, which is not in the input: web is port 80, websecure 443, and \
             others have a port that is free here. Import it together with the dynamic one, or set `listen`",
        );
    }

    /// The `listen` section.
    pub(super) fn listen(&self, certificates: &[Node]) -> Vec<Node> {
        let none = || {
            let node = map().with("cert", text("tls/default.pem")).with("key", text("tls/default.key"));
            vec![node.comment("no certificate is in the input")]
        };
        let one = |entry: &EntryPoint| {
            let node = map().with("name", text(valid(&entry.name))).with("address", text(&entry.address));
            let node = if entry.proxy_protocol { node.with("proxy_protocol", boolean(true)) } else { node };
            let certificates = if certificates.is_empty() { none() } else { certificates.to_vec() };
            let node = match entry.tls {
                true => node.with("tls", map().with("certificates", list(certificates)).block()),
                false => node,
            };
            match &entry.source {
                Some(source) => node.source(source),
                None => node,
            }
        };
        self.all.iter().map(one).collect()
    }

    pub(super) fn trusted(&self) -> Option<Node> {
        self.trusted.clone()
    }
}

/// Whether a router is for requests over TLS only.
pub(super) fn is_secure(router: &Field) -> bool {
    router.entries().iter().any(|(key, value)| key == "tls" && value.text() != Some("false"))
}
