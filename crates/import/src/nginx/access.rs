//! Who the client is, and which clients are admitted: `set_real_ip_from` and its relatives, `allow` and `deny`.

use super::conditions::comparison;
use super::context::{Context, Scope};
use super::key::Lookup;
use super::location::Location;
use super::parse::Directive;
use super::units::{name, unused};
use crate::accepted;
use crate::yaml::{Node, list, map, text};

/// The section `client_ip`, of the directives of `http` and of all servers.
pub(super) fn client_ip(http: &Scope<'_>, servers: &[Scope<'_>], cx: &mut Context) -> Node {
    let mut proxies = Vec::new();
    let all = |name: &str| -> Vec<_> {
        http.own(name).into_iter().chain(servers.iter().flat_map(|server| server.own(name))).collect()
    };
    let mut seen = Vec::new();
    for directive in all("set_real_ip_from") {
        let network = directive.arg(0);
        if network == "unix:" {
            cx.converted(directive, "clients of a Unix socket count as 127.0.0.1");
            if !seen.contains(&"127.0.0.1") {
                seen.push("127.0.0.1");
                proxies.push(text("127.0.0.1").source(&directive.source));
            }
        } else if sluicegate_config::parse_network(network).is_err() {
            cx.unsupported(directive, "left out: write the addresses of this name as networks");
        } else {
            let by_server = !http.own("set_real_ip_from").iter().any(|own| std::ptr::eq(*own, directive));
            match by_server {
                true => cx.approximated(directive, "client_ip.trusted_proxies, of all servers"),
                false => cx.converted(directive, "client_ip.trusted_proxies"),
            }
            if !seen.contains(&network) {
                seen.push(network);
                proxies.push(text(network).source(&directive.source));
            }
        }
    }
    let recursive = all("real_ip_recursive").pop();
    let header = all("real_ip_header").pop();
    if proxies.is_empty() {
        return map();
    }
    let name = header.map_or("X-Real-IP", Directive::arg0).to_ascii_lowercase();
    let mut node = map();
    match name.as_str() {
        "proxy_protocol" => {
            if let Some(header) = header {
                cx.converted(
                    header,
                    "proxy_protocol of the listeners: the address in the PROXY header is the client",
                );
            }
            return map();
        }
        "x-forwarded-for" => {
            let last = recursive.is_none_or(|recursive| recursive.arg(0) != "on");
            node = node.with("trusted_proxies", list(proxies));
            if last {
                node = node.with(
                    "depth",
                    text(1).comment("real_ip_recursive is off: the last address of the header"),
                );
            }
        }
        _ => {
            let name = header.map_or("X-Real-IP", Directive::arg0);
            node = node.with("trusted_proxies", list(proxies)).with("header", text(name));
        }
    }
    let checked = accepted::top_field("client_ip", &node);
    for directive in header.into_iter().chain(recursive) {
        match &checked {
            Ok(()) => cx.converted(directive, "client_ip"),
            Err(why) => cx.unsupported(directive, format!("client_ip is left out: {why}")),
        }
    }
    if checked.is_ok() { node.block() } else { map() }
}

/// The lists of a configuration, which routes name.
#[derive(Default)]
pub(super) struct Lists<'a> {
    found: Vec<(String, Vec<String>, Node)>,
    geos: Vec<Lookup<'a>>,
}

/// The clients that an `if` about a variable of `geo` refuses.
pub(super) struct Refused<'l, 'a> {
    geo: &'l Lookup<'a>,
    /// Whether they are the networks, or all others.
    listed: bool,
    networks: Vec<String>,
    returns: &'a Directive,
}

impl<'a> Lists<'a> {
    pub(super) fn of(http: &Scope<'a>) -> Self {
        Self { found: Vec::new(), geos: http.own("geo").into_iter().filter_map(Lookup::of).collect() }
    }

    /// What an `if` such as `if ($blocked) { return 403; }` refuses.
    pub(super) fn by_geo(&self, found: &'a Directive) -> Option<Refused<'_, 'a>> {
        let (variable, operator, value, returns) = comparison(found)?;
        returns.arg(0).parse::<u16>().ok().filter(|status| (400..=599).contains(status))?;
        let geo = self.geos.iter().rev().find(|geo| variable.strip_prefix('$') == Some(geo.variable()))?;
        let holds = |is: &str| match operator.as_str() {
            "=" => is == value,
            "!=" => is != value,
            _ => !matches!(is, "" | "0"),
        };
        if !matches!(operator.as_str(), "" | "=" | "!=") {
            return None;
        }
        let (listed, networks) = geo.networks_where(&holds).ok()?;
        Some(Refused { geo, listed, networks, returns })
    }

    /// The fields `deny` and `allow` of a route with those of its `if` blocks.
    pub(super) fn with_geos(
        &mut self,
        fields: Vec<(String, Node)>,
        server: &Scope<'a>,
        location: &Location<'a>,
        cx: &mut Context,
    ) -> Vec<(String, Node)> {
        let mut fields = fields;
        for found in server.own("if").into_iter().chain(location.ifs()) {
            let Some(Refused { geo, listed, networks, returns }) = self.by_geo(found) else { continue };
            let (directive, word) = (geo.directive, name(geo.variable()));
            let field = if listed { "deny" } else { "allow" };
            cx.converted(found, format!("`{field}` of its routes"));
            cx.converted(directive, "a list, for the `if` that uses it");
            match returns.arg(0) {
                "403" => cx.converted(returns, "such clients are answered 403"),
                _ => cx.approximated(returns, "such clients are answered 403"),
            }
            let known = fields.iter_mut().find(|(known, _)| known == field);
            match known {
                _ if networks.is_empty() && listed => {}
                Some((_, node)) if listed => {
                    let list = self.add(&word, networks.clone(), networks_of(&networks, directive));
                    if !node.clone().into_items().contains(&text(&list)) {
                        *node = node.clone().and(text(list));
                    }
                }
                None if !networks.is_empty() => {
                    let name = self.add(&word, networks.clone(), networks_of(&networks, directive));
                    fields.push((field.to_owned(), list([text(name)])));
                }
                Some(_) | None => {
                    cx.unsupported(found, "a route admits the clients of one list, and it has another: its routes deny everybody until you write one list for both");
                    return self.closed();
                }
            }
        }
        fields
    }

    /// The fields `deny` and `allow` of a route.
    pub(super) fn apply(&mut self, scope: &Scope<'_>, cx: &mut Context) -> Vec<(String, Node)> {
        let rules = scope.all_of(["allow", "deny"]);
        let Some(last) = rules.last() else { return Vec::new() };
        let closes = last.name == "deny" && last.arg(0) == "all";
        let given = if last.arg(0) == "all" { &rules[..rules.len() - 1] } else { &rules[..] };
        let first_allow = given.iter().position(|rule| rule.name == "allow").unwrap_or(given.len());
        let mixed = given[first_allow..].iter().any(|rule| rule.name == "deny");
        let unusual = given.iter().any(|rule| sluicegate_config::parse_network(rule.arg(0)).is_err());
        if mixed || unusual || (!closes && first_allow < given.len() && first_allow > 0) {
            for rule in &rules {
                cx.unsupported(rule, "the first rule that matches decides in nginx; here `deny` wins over `allow`. Its routes deny everybody until you write \
                     the lists by hand");
            }
            return self.closed();
        }
        for rule in &rules {
            cx.converted(
                rule,
                "lists of its routes; such clients are answered 403 before limits are charged",
            );
        }
        let (denied, allowed) = given.split_at(first_allow);
        let mut fields = Vec::new();
        if !denied.is_empty() {
            fields.push(("deny".to_owned(), list([text(self.list("denied", denied))])));
        }
        if closes && allowed.is_empty() {
            fields.retain(|(name, _): &(String, Node)| name != "deny");
            fields.extend(self.closed());
        } else if closes {
            fields.push(("allow".to_owned(), list([text(self.list("allowed", allowed))])));
        }
        fields
    }

    /// The fields of a route that denies everybody.
    pub(super) fn closed(&mut self) -> Vec<(String, Node)> {
        vec![("deny".to_owned(), list([text(self.everybody())]))]
    }

    fn everybody(&mut self) -> String {
        self.add(
            "everybody",
            vec!["0.0.0.0/0".into(), "::/0".into()],
            list([text("0.0.0.0/0"), text("::/0")]),
        )
    }

    fn list(&mut self, word: &str, rules: &[&Directive]) -> String {
        let networks = rules.iter().map(|rule| rule.arg(0).to_owned()).collect();
        self.add(word, networks, list(rules.iter().map(|rule| text(rule.arg(0)).source(&rule.source))))
    }

    fn add(&mut self, word: &str, networks: Vec<String>, node: Node) -> String {
        if let Some((name, ..)) = self.found.iter().find(|(_, known, _)| *known == networks) {
            return name.clone();
        }
        let taken = |name: &str| self.found.iter().any(|(known, ..)| known == name);
        let name = unused(word, &taken);
        self.found.push((name.clone(), networks, node));
        name
    }

    /// The section `lists`.
    pub(super) fn finish(self) -> Node {
        self.found.into_iter().fold(map(), |section, (name, _, node)| section.with(name, node)).block()
    }
}

fn networks_of(networks: &[String], directive: &Directive) -> Node {
    list(networks.iter().map(text)).source(&directive.source)
}
