//! The keys of zones: variables, and `map` and `geo` with literal values.

use ipnet::IpNet;

use super::parse::Directive;
use super::units::{Piece, pieces};

/// What a zone counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    /// The parts of the key, each as gateway.yaml writes it.
    pub(super) parts: Vec<String>,
    /// Whether servers count apart.
    pub(super) per_server: bool,
    /// Whether the name of the server is all of the key: it is empty in a server without a name.
    pub(super) only_server: bool,
    /// Addresses and values of the key that are not counted.
    pub(super) exempt: Vec<String>,
    /// The only methods that are counted.
    pub(super) methods: Vec<String>,
    /// The only values of a header that are counted.
    pub(super) headers: Vec<(String, String)>,
    /// The only values of the key that are counted.
    pub(super) values: Vec<String>,
    /// Whether requests without the key are not counted.
    pub(super) skip_missing: bool,
    /// How this differs from nginx.
    pub(super) differs: Vec<String>,
}

/// A `map` or `geo` block.
pub(super) struct Lookup<'a> {
    pub(super) directive: &'a Directive,
    /// The variable that it sets, without the dollar.
    name: String,
    /// The variable that is looked up, without the dollar.
    from: String,
    default: String,
    entries: Vec<(String, String)>,
    /// Why it cannot be converted.
    trouble: Option<&'static str>,
    /// Whether a file that it includes was not read.
    lacks: bool,
}

/// What a variable's value says about counting: everything, or nothing, for some requests.
struct Choice {
    /// The text that is counted, with variables.
    counted: String,
    /// The looked-up values for which it is counted (`true`) or not counted.
    by_default: bool,
    others: Vec<String>,
}

impl<'a> Lookup<'a> {
    pub(super) fn of(directive: &'a Directive) -> Option<Self> {
        let geo = match directive.name.as_str() {
            "geo" => true,
            "map" => false,
            _ => return None,
        };
        let variable = |arg: &str| arg.trim_start_matches('$').to_owned();
        let (from, name) = match (geo, directive.args.len()) {
            (true, 1) => ("remote_addr".to_owned(), variable(directive.arg(0))),
            _ => (variable(directive.arg(0)), variable(directive.arg(1))),
        };
        let mut lookup = Self {
            directive,
            name,
            from,
            default: String::new(),
            entries: Vec::new(),
            trouble: None,
            lacks: false,
        };
        for entry in directive.children() {
            match (entry.name.as_str(), geo) {
                ("default", _) => entry.arg(0).clone_into(&mut lookup.default),
                ("volatile", false) => {}
                ("include", _) if entry.included.as_ref().is_none_or(Result::is_err) => lookup.lacks = true,
                ("include", _) => {}
                ("hostnames", false) => lookup.trouble = Some("`hostnames` matches parts of names"),
                ("ranges" | "delete" | "proxy" | "proxy_recursive", true) => {
                    lookup.trouble = Some("it uses `ranges`, `delete` or `proxy`");
                }
                (pattern, false) if pattern.starts_with('~') => {
                    lookup.trouble = Some("it has regular expressions")
                }
                (pattern, _) => {
                    let pattern = pattern.strip_prefix('\\').unwrap_or(pattern);
                    lookup.entries.push((pattern.to_owned(), entry.arg(0).to_owned()));
                }
            }
        }
        Some(lookup)
    }

    pub(super) fn variable(&self) -> &str {
        &self.name
    }

    /// What is counted where the variable that is looked up is empty, if its own value is counted otherwise.
    fn fallback(&self) -> Option<&str> {
        let itself = pieces(&self.default) == [Piece::Variable(self.from.clone())];
        let [(from, other)] = self.entries.as_slice() else { return None };
        (itself && from.is_empty() && !other.is_empty()).then_some(other)
    }

    /// The networks for which the value of a `geo` is such; with `false`, those for which it is not, as it is for all others.
    ///
    /// # Errors
    /// Why they cannot be listed.
    pub(super) fn networks_where(&self, is: &dyn Fn(&str) -> bool) -> Result<(bool, Vec<String>), String> {
        let shown = self.directive.shown();
        let trouble =
            self.trouble.or((self.from != "remote_addr")
                .then_some("it looks up something else than the client's address"));
        let trouble = trouble.or(self.lacks.then_some("it includes a file that was not read"));
        if let Some(trouble) = trouble {
            return Err(format!("`{shown}` cannot be converted: {trouble}"));
        }
        let listed = !is(&self.default);
        let (found, others): (Vec<_>, Vec<_>) =
            self.entries.iter().partition(|(_, value)| is(value) == listed);
        let others: Vec<_> = others.iter().map(|(network, _)| network.as_str()).collect();
        let found = networks(found.iter().map(|(network, _)| network.as_str()), &others, &shown)?;
        Ok((listed, found))
    }

    /// What is counted, if the values are one text, and nothing for some requests.
    fn choice(&self) -> Result<Choice, String> {
        if let Some(trouble) = self.trouble {
            return Err(format!("`{}` cannot be converted: {trouble}", self.directive.shown()));
        }
        let values = self.entries.iter().map(|(_, value)| value).chain([&self.default]);
        let mut counted: Vec<&String> = values.filter(|value| !value.is_empty()).collect();
        counted.sort();
        counted.dedup();
        let [counted] = counted.as_slice() else {
            return Err(match counted.len() {
                0 => format!("`{}` never has a value, so nothing is counted", self.directive.shown()),
                _ => format!("`{}` has several values: write a limit for each", self.directive.shown()),
            });
        };
        let by_default = !self.default.is_empty();
        if self.lacks && !by_default {
            return Err(format!("`{}` includes a file that was not read", self.directive.shown()));
        }
        let others = self.entries.iter().filter(|(_, value)| value.is_empty() == by_default);
        Ok(Choice {
            counted: (*counted).clone(),
            by_default,
            others: others.map(|(from, _)| from.clone()).collect(),
        })
    }
}

/// What a zone with this key counts.
///
/// # Errors
/// Why it cannot be converted, and what to do instead.
pub(super) fn key(text: &str, lookups: &[Lookup<'_>]) -> Result<Key, String> {
    key_within(text, lookups, 0)
}

fn key_within(text: &str, lookups: &[Lookup<'_>], depth: usize) -> Result<Key, String> {
    let pieces = pieces(text);
    if let ([Piece::Variable(name)], true) = (pieces.as_slice(), depth < 8)
        && let Some(lookup) = lookups.iter().rev().find(|lookup| lookup.name == *name)
    {
        return looked_up(lookup, lookups, depth);
    }
    let mut key = Key::default();
    let mut missing = Vec::new();
    for piece in &pieces {
        let Piece::Variable(name) = piece else { continue }; // a constant tells no requests apart
        if name == "server_name" {
            key.per_server = true;
            continue;
        }
        let (part, may_be_missing) = part(name)?;
        if name == "request_uri" {
            key.differs.push(
                "the path is counted without its query, so requests that differ in the query alone share a counter, and more of them are refused"
                    .to_owned(),
            );
        }
        if !key.parts.contains(&part) {
            missing.push(may_be_missing);
            key.parts.push(part);
        }
    }
    key.only_server =
        key.per_server && pieces.iter().all(|piece| *piece == Piece::Variable("server_name".to_owned()));
    match key.parts.len() {
        0 => key.parts.push("global".to_owned()),
        1 => key.skip_missing = missing[0],
        // nginx counts what is there, and skips a request only if all of it is empty.
        _ => {
            for (part, _) in key.parts.iter_mut().zip(missing).filter(|(_, missing)| *missing) {
                *part += " | global";
            }
        }
    }
    Ok(key)
}

/// The key of a variable of a `map` or `geo`.
fn looked_up(lookup: &Lookup<'_>, lookups: &[Lookup<'_>], depth: usize) -> Result<Key, String> {
    if let (Some(first), None, false) = (lookup.fallback(), lookup.trouble, lookup.lacks) {
        let (part, _) = part(&lookup.from)?;
        let other = key_within(first, lookups, depth + 1)?;
        if let [second] = other.parts.as_slice() {
            let parts = vec![format!("{part} | {second}")];
            if other
                == (Key { parts: other.parts.clone(), skip_missing: other.skip_missing, ..Key::default() })
            {
                return Ok(Key { parts, ..other });
            }
        }
    }
    let choice = lookup.choice()?;
    let mut key = key_within(&choice.counted, lookups, depth + 1)?;
    let shown = lookup.directive.shown();
    if choice.others.is_empty() {
        return Ok(key);
    }
    let source =
        lookups.iter().rev().find(|other| other.name == lookup.from && other.directive.name == "geo");
    if let Some(geo) = source {
        key.exempt.extend(exempt_of_geo(geo, lookup)?);
        return Ok(key);
    }
    let part = part(&lookup.from).map(|(part, _)| part);
    match (lookup.from.as_str(), choice.by_default) {
        ("remote_addr" | "binary_remote_addr" | "realip_remote_addr", true) => {
            let kept: Vec<_> = lookup
                .entries
                .iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(from, _)| from.as_str())
                .collect();
            key.exempt.extend(networks(choice.others.iter().map(String::as_str), &kept, &shown)?);
        }
        // nginx compares without regard to case.
        ("request_method", false) => {
            key.methods = choice.others.iter().map(|method| method.to_ascii_uppercase()).collect();
        }
        ("request_method", true) => {
            let all = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
            key.methods = all
                .iter()
                .filter(|method| !choice.others.iter().any(|other| other.eq_ignore_ascii_case(method)))
                .map(ToString::to_string)
                .collect();
            key.differs.push(format!("of all methods, {} are counted", key.methods.join(", ")));
        }
        (_, true) if key.parts.len() == 1 && part.as_ref() == Ok(&key.parts[0]) => {
            let given = choice.others.into_iter().filter(|value| !value.is_empty());
            let (means_more, values): (Vec<_>, Vec<_>) = given.partition(|value| means_more(value));
            if !values.is_empty() {
                key.differs
                    .push("exempt values are compared exactly, in nginx without regard to case".to_owned());
            }
            if !means_more.is_empty() {
                key.differs.push(format!(
                    "{} counted, too: in `exempt` it would mean addresses or names",
                    means_more.join(", ") + if means_more.len() == 1 { " is" } else { " are" }
                ));
            }
            key.exempt.extend(values);
        }
        (_, false) if key.parts.len() == 1 && part.as_ref() == Ok(&key.parts[0]) => {
            key.differs.extend(case_of(&choice.others));
            key.values = choice.others;
        }
        (header, false) if header.starts_with("http_") && choice.others.len() == 1 => {
            key.differs.extend(case_of(&choice.others));
            key.headers.push((header_name(header), choice.others[0].clone()));
        }
        _ => {
            return Err(format!(
                "`{shown}` chooses by ${}, which a limit cannot: write a route for these requests, without this limit or with it",
                lookup.from
            ));
        }
    }
    Ok(key)
}

/// How values are compared that are the only ones that are counted.
fn case_of(values: &[String]) -> Option<String> {
    let letters = values.iter().any(|value| value.bytes().any(|byte| byte.is_ascii_alphabetic()));
    letters.then(|| {
        format!("only {} in this case is counted; nginx compares without regard to case", values.join(", "))
    })
}

/// Whether a text in `exempt` would not be the value of a key.
fn means_more(value: &str) -> bool {
    let words = ["list:", "plan:", "consumer:"];
    sluicegate_config::parse_network(value).is_ok() || words.iter().any(|word| value.starts_with(word))
}

/// The networks for which the value of `geo`, looked up in `map`, is not counted.
fn exempt_of_geo(geo: &Lookup<'_>, map: &Lookup<'_>) -> Result<Vec<String>, String> {
    let counted = |value: &str| {
        let found = map.entries.iter().find(|(from, _)| from == value);
        !found.map_or(&map.default, |(_, value)| value).is_empty()
    };
    match geo.networks_where(&|value| !counted(value))? {
        (true, networks) => Ok(networks),
        (false, _) => Err(format!(
            "`{}` selects the only clients that are counted: write a route with the limit for them",
            geo.directive.shown()
        )),
    }
}

/// These networks, none of which has one of `kept` in it.
fn networks<'a>(
    all: impl Iterator<Item = &'a str>,
    kept: &[&str],
    shown: &str,
) -> Result<Vec<String>, String> {
    let parse = |text: &str| sluicegate_config::parse_network(text).ok();
    let kept: Vec<IpNet> = kept.iter().filter_map(|text| parse(text)).collect();
    let mut out = Vec::new();
    for text in all {
        let Some(network) = parse(text) else {
            return Err(format!("`{text}` in `{shown}` is not a network"));
        };
        if kept.iter().any(|kept| network.contains(kept)) {
            return Err(format!(
                "`{text}` in `{shown}` has a smaller network in it with another value: list the networks without it"
            ));
        }
        out.push(text.to_owned());
    }
    Ok(out)
}

/// The part of a key that a variable is, and whether a request may lack it.
fn part(name: &str) -> Result<(String, bool), String> {
    let known = match name {
        "binary_remote_addr" | "remote_addr" | "realip_remote_addr" | "proxy_protocol_addr" => ("ip", false),
        "host" | "http_host" => ("host", false),
        "uri" | "document_uri" | "request_uri" => ("path", false),
        "request_method" => ("method", false),
        "ssl_client_s_dn" => ("tls:subject", true),
        "ssl_client_fingerprint" => ("tls:fingerprint", true),
        _ => ("", true),
    };
    if !known.0.is_empty() {
        return Ok((known.0.to_owned(), known.1));
    }
    if name.starts_with("http_") {
        return Ok((format!("header:{}", header_name(name)), true));
    }
    if let Some(cookie) = name.strip_prefix("cookie_") {
        return Ok((format!("cookie:{cookie}"), true));
    }
    if let Some(argument) = name.strip_prefix("arg_") {
        return Ok((format!("query:{argument}"), true));
    }
    let instead = match name {
        "remote_user" => "use `auth.api_key` with the key `consumer`",
        name if name.starts_with("jwt_claim_") => "use `auth.jwt` with the key `jwt:CLAIM`",
        _ => "choose a key from docs/configuration.md#keys",
    };
    Err(format!("the variable ${name} is not a key of the gateway: {instead}"))
}

/// The header of a variable `$http_x_api_key`.
pub(super) fn header_name(variable: &str) -> String {
    let words = variable.trim_start_matches("http_").split('_').map(|word| {
        let mut chars = word.chars();
        chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>()).unwrap_or_default()
    });
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nginx::parse::parse;

    fn found(config: &str, text: &str) -> Result<Key, String> {
        let directives = parse("n", config).unwrap();
        let lookups: Vec<_> = directives.iter().filter_map(Lookup::of).collect();
        key(text, &lookups)
    }

    #[test]
    fn variables_are_parts_of_keys() {
        let parts = |text: &str| found("", text).unwrap().parts;
        assert_eq!(parts("$binary_remote_addr"), ["ip"]);
        assert_eq!(parts("$binary_remote_addr$uri"), ["ip", "path"]);
        assert_eq!(parts("${http_x_api_key}:$arg_id"), ["header:X-Api-Key | global", "query:id | global"]);
        assert_eq!(parts("all"), ["global"]);
        assert!(found("", "$cookie_sid").unwrap().skip_missing);
        assert!(found("", "$server_name").unwrap().per_server);
        assert!(found("", "$remote_user").unwrap_err().contains("auth.api_key"));
    }

    #[test]
    fn maps_and_geos_choose_who_is_counted() {
        let geo = "geo $limit { default 1; 10.0.0.0/8 0; 192.0.2.1 0; } map $limit $key { 0 \"\"; 1 $binary_remote_addr; }";
        let key = found(geo, "$key").unwrap();
        assert_eq!(
            (key.parts, key.exempt),
            (vec!["ip".to_owned()], vec!["10.0.0.0/8".to_owned(), "192.0.2.1".to_owned()])
        );
        let methods =
            found("map $request_method $key { default \"\"; POST $binary_remote_addr; }", "$key").unwrap();
        assert_eq!((methods.parts, methods.methods), (vec!["ip".to_owned()], vec!["POST".to_owned()]));
        let values =
            found("map $http_x_api_key $key { default $http_x_api_key; internal \"\"; }", "$key").unwrap();
        assert_eq!(values.exempt, ["internal"]);
        let header =
            found("map $http_x_source $key { default \"\"; import $binary_remote_addr; }", "$key").unwrap();
        assert_eq!(header.headers, [("X-Source".to_owned(), "import".to_owned())]);
        let either = "map $http_x_api_key $key { \"\" $binary_remote_addr; default $http_x_api_key; }";
        assert_eq!(found(either, "$key").unwrap().parts, ["header:X-Api-Key | ip"]);
        for (config, why) in [
            (
                "geo $http_a $g { default 1; 10.0.0.0/8 0; } map $g $key { 0 \"\"; 1 $host; }",
                "something else",
            ),
            ("map $http_user_agent $key { default \"\"; ~bot $binary_remote_addr; }", "regular expressions"),
            ("map $a $key { default $host; x $binary_remote_addr; }", "several values"),
            ("map $a $key { x \"\"; }", "never has a value"),
            ("map $uri $key { default $binary_remote_addr; /a \"\"; }", "a limit cannot"),
            (
                "geo $g { default 1; 10.0.0.0/8 0; 10.1.0.0/16 1; } map $g $key { 0 \"\"; 1 $binary_remote_addr; }",
                "smaller network",
            ),
            (
                "geo $g { default 0; 10.0.0.0/8 1; } map $g $key { 0 \"\"; 1 $binary_remote_addr; }",
                "the only clients",
            ),
            ("map $key $key { default $key; }", "not a key"),
        ] {
            let error = found(config, "$key").unwrap_err();
            assert!(error.contains(why), "{config}: {error}");
        }
    }

    #[test]
    fn values_are_compared_as_in_nginx() {
        let key = |from: &str, default: &str, entry: &str| {
            found(&format!("map ${from} $key {{ default {default}; {entry} }}"), "$key").unwrap()
        };
        assert_eq!(key("request_method", "\"\"", "post $binary_remote_addr;").methods, ["POST"]);
        assert!(
            !key("request_method", "$binary_remote_addr", "get \"\";").methods.contains(&"GET".to_owned())
        );
        let exempt = |value: &str| key("http_x_api_key", "$http_x_api_key", &format!("{value} \"\";"));
        for value in ["10.0.0.0/8", "192.0.2.1", "list:office", "plan:free", "consumer:a"] {
            assert!(exempt(value).exempt.is_empty(), "{value}");
            assert!(exempt(value).differs[0].contains("is counted, too"), "{value}");
        }
        assert_eq!(exempt("internal").exempt, ["internal"]);
        let only = key("http_x_plan", "\"\"", "Free $http_x_plan;");
        assert!(only.differs[0].contains("without regard to case"), "{only:?}");
        let lacks = found("map $http_a $key { default \"\"; include missing; x $http_a; }", "$key");
        assert!(lacks.unwrap_err().contains("includes a file that was not read"));
    }
}
