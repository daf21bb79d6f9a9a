//! Rules of routers, such as ``Host(`a`) && PathPrefix(`/b`)``, as the matches of routes.

use crate::yaml::{Node, list, map, text};

/// The most matches of one rule.
const MAX_MATCHES: usize = 64;

/// The deepest nesting of a rule.
const MAX_DEPTH: usize = 50;

/// One matcher with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Matcher {
    name: String,
    args: Vec<String>,
}

/// A match of a route: all of it must fit.
#[derive(Clone, Debug, Default)]
pub(super) struct Matched {
    pub(super) fields: Vec<(String, Node)>,
    /// Whether a prefix matches longer names in Traefik, too.
    pub(super) prefix: bool,
}

/// The matches of a rule, of which one must fit.
///
/// # Errors
/// Why the gateway has no such match.
pub(super) fn matches(rule: &str) -> Result<Vec<Matched>, String> {
    read(rule, false)
}

/// Matches that have all requests of a rule, and more where the gateway has no such condition.
pub(super) fn wider(rule: &str) -> Result<Vec<Matched>, String> {
    read(rule, true)
}

fn read(rule: &str, wider: bool) -> Result<Vec<Matched>, String> {
    let mut parser = Parser { rest: rule.trim(), depth: 0, wider };
    let any = parser.any()?;
    if !parser.rest.is_empty() {
        return Err(format!("`{}` is behind the end of the rule", parser.rest));
    }
    any.into_iter().map(|all| matched(all, wider)).collect()
}

/// Reads a rule as alternatives of matchers that must all fit.
struct Parser<'a> {
    rest: &'a str,
    depth: usize,
    /// Whether conditions that the gateway does not have are left out.
    wider: bool,
}

type Any = Vec<Vec<Matcher>>;

impl Parser<'_> {
    fn any(&mut self) -> Result<Any, String> {
        let mut found = self.all()?;
        while self.eat("||") {
            found.extend(self.all()?);
        }
        if found.len() > MAX_MATCHES {
            return Err(format!("it has more than {MAX_MATCHES} alternatives"));
        }
        Ok(joined(found))
    }

    fn all(&mut self) -> Result<Any, String> {
        let mut found = self.one()?;
        while self.eat("&&") {
            let right = self.one()?;
            if found.len() * right.len() > MAX_MATCHES {
                return Err(format!("it has more than {MAX_MATCHES} alternatives"));
            }
            let both =
                found.iter().flat_map(|left| right.iter().map(|right| [left.as_slice(), right].concat()));
            found = both.collect();
        }
        Ok(found)
    }

    fn one(&mut self) -> Result<Any, String> {
        if self.eat("!") {
            if self.wider {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err("it is nested too deeply".to_owned());
                }
                self.one()?;
                return Ok(vec![Vec::new()]);
            }
            return Err(
                "a match of the gateway has no `!`: write a route for what is excluded before this one"
                    .to_owned(),
            );
        }
        if self.eat("(") {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err("its parentheses are nested too deeply".to_owned());
            }
            let found = self.any()?;
            self.depth -= 1;
            return if self.eat(")") { Ok(found) } else { Err("a parenthesis is not closed".to_owned()) };
        }
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let name = self.rest[..end].to_owned();
        self.rest = self.rest[end..].trim_start();
        if name.is_empty() || !self.eat("(") {
            return Err(format!("`{}` is not a matcher", self.rest));
        }
        let mut args = Vec::new();
        while !self.eat(")") {
            let quote = self.rest.chars().next().filter(|c| matches!(c, '`' | '"' | '\''));
            let Some(quote) = quote else { return Err(format!("the arguments of {name} are not in quotes")) };
            let Some((arg, after)) = self.rest[1..].split_once(quote) else {
                return Err("a quote is not closed".to_owned());
            };
            args.push(arg.to_owned());
            self.rest = after.trim_start();
            self.eat(",");
        }
        Ok(vec![vec![Matcher { name, args }]])
    }

    fn eat(&mut self, wanted: &str) -> bool {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }
}

/// Alternatives of which each is one matcher of the same kind are one matcher with several values.
fn joined(any: Any) -> Any {
    let several = ["Host", "Path", "PathPrefix", "PathRegexp", "HostRegexp", "Method"];
    let same = match any.as_slice() {
        [first, second, ..] if first.len() == 1 && second.len() == 1 => {
            several.contains(&first[0].name.as_str())
                && any.iter().all(|all| all.len() == 1 && all[0].name == first[0].name)
        }
        _ => false,
    };
    if !same {
        return any;
    }
    let name = any[0][0].name.clone();
    let args = any.into_iter().flatten().flat_map(|matcher| matcher.args).collect();
    vec![vec![Matcher { name, args }]]
}

fn matched(all: Vec<Matcher>, wider: bool) -> Result<Matched, String> {
    let mut found = Matched::default();
    let (mut headers, mut query) = (map(), map());
    for Matcher { name, args } in all {
        let one_of =
            |values: Vec<Node>| if let [one] = values.as_slice() { one.clone() } else { list(values) };
        let (field, value) = match (name.as_str(), args.as_slice()) {
            (_, []) => return Err(format!("{name} has no argument")),
            ("Host", hosts) => {
                ("host", one_of(hosts.iter().map(|host| text(host.to_ascii_lowercase())).collect()))
            }
            ("HostRegexp", all) => ("host", one_of(all.iter().map(|one| regex(one)).collect())),
            ("Path", paths) => ("path", one_of(paths.iter().map(|path| text(literal(path))).collect())),
            ("PathRegexp", all) => ("path", one_of(all.iter().map(|one| regex(one)).collect())),
            ("PathPrefix", paths) => {
                found.prefix |= paths.iter().any(|path| path != "/");
                if paths.iter().any(|path| path.trim_end_matches('/').is_empty()) {
                    continue;
                }
                let below = |path: &String| text(format!("{}/*", literal(path.trim_end_matches('/'))));
                ("path", one_of(paths.iter().map(below).collect()))
            }
            ("Method", methods) => ("methods", one_of(methods.iter().map(text).collect())),
            ("Header" | "Headers", [name, value]) => {
                headers.insert(name, text(value));
                continue;
            }
            ("Query", [name]) => {
                query.insert(name, text("*"));
                continue;
            }
            ("Query", [name, value]) => {
                query.insert(name, text(value));
                continue;
            }
            ("QueryRegexp", [name, value]) => {
                query.insert(name, regex(value));
                continue;
            }
            ("ClientIP" | "HeaderRegexp" | "HeadersRegexp", _) if wider => continue,
            ("ClientIP", _) => return Err("addresses are no match: use `allow` of a route".to_owned()),
            ("HeaderRegexp" | "HeadersRegexp", _) => {
                return Err("match.headers has exact values, no expressions".to_owned());
            }
            _ if wider => continue,
            _ => return Err(format!("the importer does not know the matcher {name}")),
        };
        if found.fields.iter().any(|(known, _)| known == field) {
            if wider {
                continue;
            }
            return Err(format!("it has two conditions for the {field} that must both fit"));
        }
        found.fields.push((field.to_owned(), value));
    }
    for (field, node) in [("headers", headers), ("query", query)] {
        if !node.is_empty() {
            found.fields.push((field.to_owned(), node));
        }
    }
    Ok(found)
}

fn literal(path: &str) -> String {
    path.replace('{', "%7B").replace('}', "%7D")
}

/// An expression that matches anywhere in a text as one that matches all of it.
fn regex(expression: &str) -> Node {
    let (begin, inner) = match expression.strip_prefix('^') {
        Some(inner) => ("", inner),
        None => (".*", expression),
    };
    let (inner, end) = match inner.strip_suffix('$').filter(|inner| !inner.ends_with('\\')) {
        Some(inner) => (inner, ""),
        None => (inner, ".*"),
    };
    let inner = if inner.contains('|') { format!("(?:{inner})") } else { inner.to_owned() };
    map().with("regex", text(format!("{begin}{inner}{end}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(rule: &str) -> Result<Vec<String>, String> {
        let one = |matched: &Matched| {
            matched.fields.iter().fold(map(), |node, (key, value)| node.with(key, value.clone())).file_value()
        };
        Ok(matches(rule)?.iter().map(one).collect())
    }

    #[test]
    fn rules_are_matches() {
        for (rule, expected) in [
            ("Host(`a.example`) && PathPrefix(`/b/`)", vec!["{host: a.example, path: /b/*}"]),
            ("Host(`a`) && (Path(`/x`) || Path(`/y`))", vec!["{host: a, path: [/x, /y]}"]),
            ("Host(`a`, `b`)", vec!["{host: [a, b]}"]),
            ("Host(`a`) && Path(`/x`) || Host(`b`)", vec!["{host: a, path: /x}", "{host: b}"]),
            ("Header(`X-A`, `1`) && Query(`q`, `2`)", vec!["{headers: {X-A: 1}, query: {q: 2}}"]),
            ("PathPrefix(`/`)", vec!["{}"]),
        ] {
            assert_eq!(shown(rule).unwrap(), expected, "{rule}");
        }
    }

    #[test]
    fn a_wider_match_has_all_requests_of_a_rule() {
        let wider = |rule: &str| wider(rule).unwrap().iter().map(|one| one.fields.len()).collect::<Vec<_>>();
        assert_eq!(wider("Host(`a`) && !Path(`/b`)"), [1]);
        assert_eq!(wider("ClientIP(`10.0.0.0/8`) || Host(`a`)"), [0, 1]);
    }

    #[test]
    fn what_the_gateway_cannot_match_is_an_error() {
        for (rule, why) in [
            ("!Path(`/a`)", "no `!`"),
            ("ClientIP(`10.0.0.0/8`)", "`allow`"),
            ("Host(`a`", "quotes"),
            ("Host(a)", "quotes"),
            ("Path(`/a`) && Path(`/b`)", "both"),
            ("Host(`a`) Path(`/b`)", "behind the end"),
            ("", "not a matcher"),
        ] {
            assert!(shown(rule).unwrap_err().contains(why), "{rule}: {:?}", shown(rule));
        }
        assert!(shown(&"(".repeat(100)).unwrap_err().contains("nested"));
    }
}
