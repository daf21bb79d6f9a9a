//! What one ACL tests: a sample of the request, a way to compare it, and values.

use super::place::{Pattern, Test, host_node, path_node};
use crate::accepted;
use crate::files::Files;
use crate::names::escaped;
use crate::regex::{whole, whole_text};
use crate::yaml::{map, text};

/// What a test is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A route can make it.
    Route(Test),
    /// A route can make a similar test.
    Near(Near),
    /// The address of the client.
    Source(Vec<String>),
    /// The address of the client is in a file of networks.
    SourceFile(String),
    /// A counter of a stick table is above a number.
    Counter(Counter),
    /// Whether the listener speaks TLS.
    Tls,
    /// The port of the listener.
    Port(Vec<String>),
    Constant(bool),
    /// It is about whether servers are healthy, for which there is no test: whether it holds while all are.
    Health(bool),
    /// It has no equivalent, for this reason.
    Unsupported(String),
}

/// A test of a route in place of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Near {
    pub(super) test: Test,
    /// Whether all that pass it pass the other one.
    pub(super) narrower: bool,
    /// A test that all pass that pass the other one.
    pub(super) wider: Option<Test>,
    pub(super) why: String,
}

/// A counter of a stick table, and the number that it has to exceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    /// Such as `http_req_rate`.
    pub(super) data: String,
    /// The number of `track-sc`; `None`: the entry of the client's address.
    pub(super) slot: Option<String>,
    pub(super) table: Option<String>,
    pub(super) above: u64,
}

/// The alternatives of an ACL, and how they differ from it.
#[derive(Clone, Debug)]
pub(super) struct Criterion {
    pub(super) alternatives: Vec<Kind>,
    pub(super) differs: Option<String>,
}

/// Flags and values behind the sample.
#[derive(Default)]
struct Values {
    values: Vec<String>,
    ignore_case: bool,
    method: Option<String>,
    files: Vec<String>,
}

/// The ACLs that HAProxy has without a declaration.
pub(super) fn predefined(name: &str) -> Option<Kind> {
    let methods =
        |names: &[&str]| Kind::Route(Test::Method(names.iter().map(|name| (*name).to_owned()).collect()));
    Some(match name {
        // The gateway always waits for the head of a request.
        "TRUE" | "HTTP" | "HTTP_URL_SLASH" | "WAIT_END" => Kind::Constant(true),
        "FALSE" => Kind::Constant(false),
        "LOCALHOST" => Kind::Source(vec!["127.0.0.0/8".to_owned(), "::1".to_owned()]),
        "METH_GET" => methods(&["GET", "HEAD"]),
        "METH_CONNECT" | "METH_DELETE" | "METH_HEAD" | "METH_OPTIONS" | "METH_POST" | "METH_PUT"
        | "METH_TRACE" => methods(&[&name[5..]]),
        _ => return None,
    })
}

/// Reads `SAMPLE [flags] values`.
pub(super) fn criterion(words: &[String], files: &dyn Files) -> Criterion {
    let Some((sample, rest)) = words.split_first() else { return unsupported("it tests nothing") };
    let mut values = match values(rest) {
        Ok(values) => values,
        Err(why) => return unsupported(&why),
    };
    let mut converters = split_converters(sample);
    let fetch = converters.remove(0);
    let (name, argument) =
        fetch.split_once('(').map_or((fetch.as_str(), ""), |(name, rest)| (name, rest.trim_end_matches(')')));
    let (name, mut method) = method_of(name);
    if let Some(given) = &values.method {
        method.clone_from(given);
    }
    values.ignore_case |= converters.iter().any(|converter| converter == "lower");
    if let Some(other) = converters.iter().find(|converter| *converter != "lower") {
        return unsupported(&format!("the gateway does not convert values with `{other}`"));
    }
    if name != "src" {
        for file in std::mem::take(&mut values.files) {
            match files.read(&file) {
                Ok(text) => values.values.extend(
                    text.lines()
                        .map(str::trim)
                        .filter(|line| !line.is_empty() && !line.starts_with('#'))
                        .map(str::to_owned),
                ),
                Err(error) => return unsupported(&format!("cannot read {file}: {error}")),
            }
        }
    }
    sampled(name, argument, &method, &values)
}

fn sampled(name: &str, argument: &str, method: &str, values: &Values) -> Criterion {
    let header = argument.split(',').next().unwrap_or_default().to_ascii_lowercase();
    match name {
        "path" | "url" => {
            let with_query = values.values.iter().any(|value| value.contains('?'));
            let differs = (name == "url" && (method != "beg" || with_query)).then(|| {
                "it is compared with the path only, not with the query: write `match: {query: …}`".to_owned()
            });
            let found = if name == "url" && with_query {
                without_query(method, values)
            } else {
                path(method, values)
            };
            let kind = match (found, &differs) {
                (Ok(Kind::Route(test)), Some(why)) => {
                    let wider = (method == "str" || with_query).then(|| test.clone());
                    Ok(Kind::Near(Near { test, narrower: false, wider, why: why.clone() }))
                }
                (found, _) => found,
            };
            Criterion { differs, ..one(kind) }
        }
        "pathq" => unsupported("a path with its query: write `match: {path: …, query: …}`"),
        "hdr" | "req.hdr" | "req.fhdr" | "fhdr" if header == "host" => one(host(method, values)),
        "hdr" | "req.hdr" | "req.fhdr" | "fhdr" | "req.cook" | "cook" if name.contains("cook") => {
            unsupported("routes are not chosen by cookies: use auth.check, or another host or path")
        }
        "hdr" | "req.hdr" | "req.fhdr" | "fhdr" => headers(&header, method, values, !name.contains("fhdr")),
        "hdr_cnt" | "req.hdr_cnt" if matches!(values.values.as_slice(), [one] if one == "0") => {
            unsupported("the absence of a header: put a route with `headers: {NAME: \"*\"}` above")
        }
        "url_param" | "urlp" | "req.url_param" => match query(method, values) {
            Ok(patterns) => Criterion {
                alternatives: patterns
                    .into_iter()
                    .map(|pattern| Kind::Route(Test::Query(argument.to_owned(), pattern)))
                    .collect(),
                differs: None,
            },
            Err(why) => unsupported(&why),
        },
        "method" | "src" if values.method.as_ref().is_some_and(|given| given != "str" && given != "ip") => {
            unsupported(&format!("`{name}` is not compared with `-m {method}`: list the values"))
        }
        "method" => match values.values.as_slice() {
            [] => unsupported("it has no methods"),
            methods => {
                one(Ok(Kind::Route(Test::Method(methods.iter().map(|m| m.to_ascii_uppercase()).collect()))))
            }
        },
        "src" => source(values),
        "ssl_fc" if values.values.iter().all(|value| value == "1" || value == "true") => one(Ok(Kind::Tls)),
        "dst_port" => match values.values.as_slice() {
            [operator, port] if operator == "eq" => one(Ok(Kind::Port(vec![port.clone()]))),
            ports if ports.iter().all(|port| port.parse::<u16>().is_ok()) => {
                one(Ok(Kind::Port(ports.to_vec())))
            }
            _ => unsupported("ranges of ports: name each port"),
        },
        "always_true" => one(Ok(Kind::Constant(true))),
        "always_false" => one(Ok(Kind::Constant(false))),
        "nbsrv" | "srv_is_up" => health(name, &values.values),
        "connslots" | "be_conn" | "fe_conn" | "be_sess_rate" | "fe_sess_rate" | "avg_queue" | "queue" => {
            unsupported(&format!(
                "`{name}` is the state of servers or of HAProxy: the gateway has `health`, `overload` and limits by `global`"
            ))
        }
        "http_auth" | "http_auth_group" => {
            unsupported("passwords of a userlist: use auth.api_key with consumers, or auth.check")
        }
        _ if name.starts_with("sc") || name.starts_with("src_") => counter(name, argument, method, values),
        _ if name.starts_with("ssl_c") => {
            unsupported("client certificates: listen.tls.client_ca, and keys such as tls:subject")
        }
        _ if name.starts_with("lua.") => {
            unsupported("Lua: use auth.check, a service of yours that decides on requests")
        }
        _ if name.starts_with("var") => {
            unsupported("variables of HAProxy: write the test where the variable is used")
        }
        _ => unsupported(&format!("routes are not chosen by `{name}`")),
    }
}

fn health(name: &str, values: &[String]) -> Criterion {
    let words: Vec<&str> = values.iter().map(String::as_str).collect();
    let holds = match words.as_slice() {
        [] => true,
        ["gt" | "ge", _] => true,
        ["lt" | "le", _] | ["eq", "0"] | ["0"] => false,
        _ => return unsupported(&format!("routes are not chosen by `{name}`")),
    };
    let differs = format!(
        "`{name}` is converted as if all servers were healthy: the gateway has `health`, and answers 503 where none is"
    );
    Criterion { alternatives: vec![Kind::Health(holds)], differs: Some(differs) }
}

fn one(found: Result<Kind, String>) -> Criterion {
    let kind = found.unwrap_or_else(Kind::Unsupported);
    Criterion { alternatives: vec![kind], differs: None }
}

fn unsupported(why: &str) -> Criterion {
    Criterion { alternatives: vec![Kind::Unsupported(why.to_owned())], differs: None }
}

/// The sample and its converters: commas outside of parentheses separate them.
pub(super) fn split_converters(sample: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut depth = 0_usize;
    for c in sample.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                out.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = out.last_mut() {
            last.push(c);
        }
    }
    out
}

/// A sample such as `path_beg`, and how it is compared.
fn method_of(name: &str) -> (&str, String) {
    for method in ["beg", "end", "sub", "reg", "dir", "dom", "len"] {
        let base = name.strip_suffix(method).and_then(|base| base.strip_suffix('_'));
        if let Some(base) =
            base.filter(|base| ["path", "url", "hdr", "url_param", "urlp", "cook", "req.hdr"].contains(base))
        {
            return (base, method.to_owned());
        }
    }
    (name, "str".to_owned())
}

fn values(words: &[String]) -> Result<Values, String> {
    let mut out = Values::default();
    let mut at = 0;
    while at < words.len() {
        match words[at].as_str() {
            "-i" => out.ignore_case = true,
            "-n" | "-u" => at += usize::from(words[at] == "-u"),
            "-m" => {
                at += 1;
                out.method = words.get(at).cloned();
            }
            "-f" => {
                at += 1;
                out.files.extend(words.get(at).cloned());
            }
            "-M" => return Err("a map in a file: write the routes".to_owned()),
            "--" => {
                out.values.extend(words[at + 1..].iter().cloned());
                break;
            }
            value => out.values.push(value.to_owned()),
        }
        at += 1;
    }
    Ok(out)
}

fn path(method: &str, values: &Values) -> Result<Kind, String> {
    let folded = |pattern: String| {
        if values.ignore_case { Pattern::Regex(format!("(?i){pattern}")) } else { Pattern::Regex(pattern) }
    };
    let mut patterns = Vec::new();
    // No path of a request has a space in it.
    let written = values.values.iter().filter(|value| method == "reg" || !value.contains(' '));
    for value in written {
        let pattern = match method {
            "str" if values.ignore_case => folded(escaped(value)),
            "str" => Pattern::Exact(value.clone()),
            "beg" if value == "/" => return Ok(Kind::Constant(true)),
            "beg" if values.ignore_case => folded(format!("{}.*", escaped(value))),
            "beg" => Pattern::Prefix(value.clone()),
            "end" if values.ignore_case => folded(format!(".*{}", escaped(value))),
            "end" => Pattern::Suffix(value.clone()),
            "sub" => folded(format!(".*{}.*", escaped(value))),
            "dir" => folded(format!("(?:.*/)?{}(?:/.*)?", escaped(value.trim_matches('/')))),
            "reg" => Pattern::Regex(whole(value, values.ignore_case)?),
            _ => return Err(format!("paths are not compared with `-m {method}`")),
        };
        accepted::matches(&map().with("path", path_node(&pattern)))?;
        patterns.push(pattern);
    }
    match patterns.is_empty() {
        true if values.values.is_empty() => Err("it has no values".to_owned()),
        true => Ok(Kind::Constant(false)),
        false => Ok(Kind::Route(Test::Path(patterns))),
    }
}

/// The paths of URLs with a query: all that one of them matches have its path.
fn without_query(method: &str, values: &Values) -> Result<Kind, String> {
    let paths = values.values.iter().map(|value| value.split('?').next().unwrap_or_default().to_owned());
    match method {
        "str" | "beg" => path(
            "str",
            &Values { values: paths.collect(), ignore_case: values.ignore_case, ..Values::default() },
        ),
        _ => Err("a path with its query: write `match: {path: …, query: …}`".to_owned()),
    }
}

/// What expressions for hosts have for a port that may follow.
const ANY_PORT: [&str; 6] =
    [r"(:\d+)?", r"(:[0-9]+)?", r"(?::\d+)?", r"(?::[0-9]+)?", r"(:[0-9]*)?", r"(:.*)?"];

fn host(method: &str, values: &Values) -> Result<Kind, String> {
    let mut patterns = Vec::new();
    for value in &values.values {
        let lower = value.to_ascii_lowercase();
        let bare = lower
            .rsplit_once(':')
            .filter(|(_, port)| port.chars().all(|c| c.is_ascii_digit()))
            .map_or(lower.as_str(), |(host, _)| host);
        let expression = ANY_PORT.iter().fold(value.clone(), |all, port| all.replace(port, ""));
        let has_port = match method {
            "beg" | "sub" => lower.contains(':'),
            "reg" => expression.replace("(?:", "").contains(':'),
            _ => bare.is_empty(),
        };
        if has_port {
            return Err(
                "hosts are compared without their port: `dst_port` is that of the listener".to_owned()
            );
        }
        let pattern = match method {
            "str" => Pattern::Exact(bare.to_owned()),
            "beg" => Pattern::Prefix(lower.clone()),
            "end" => Pattern::Suffix(bare.to_owned()),
            "sub" => Pattern::Regex(format!(".*{}.*", escaped(&lower))),
            "dom" => Pattern::Regex(format!("(?:.*\\.)?{}(?:\\..*)?", escaped(bare))),
            "reg" => Pattern::Regex(whole_text(
                &expression,
                expression.contains(|c: char| c.is_ascii_uppercase()),
            )?),
            _ => return Err(format!("hosts are not compared with `-m {method}`")),
        };
        accepted::matches(&map().with("host", host_node(&pattern)))?;
        patterns.push(pattern);
    }
    if patterns.is_empty() {
        Err("it has no values".to_owned())
    } else {
        Ok(Kind::Route(Test::Host(patterns)))
    }
}

/// With `parts`, HAProxy compares the parts of a header between commas.
fn headers(name: &str, method: &str, values: &Values, parts: bool) -> Criterion {
    let texts: Vec<&str> = match method {
        "found" => vec!["*"],
        "str" if !values.values.is_empty() => values.values.iter().map(String::as_str).collect(),
        _ => {
            return unsupported(&format!(
                "routes compare headers with exact values only, not parts of {name}: use auth.check, a service of yours that decides on requests"
            ));
        }
    };
    for text_value in &texts {
        if let Err(why) = accepted::matches(&map().with("headers", map().with(name, text(text_value)))) {
            return unsupported(&why);
        }
    }
    let how = match (parts && method == "str", values.ignore_case && method == "str") {
        (true, true) => Some("as a whole, not each part between commas, and with regard to case"),
        (true, false) => Some("as a whole, not each part between commas"),
        (false, true) => Some("with regard to case"),
        (false, false) => None,
    };
    let differs = how.map(|how| format!("the value of {name} is compared {how}"));
    let test = |value: &str| Test::Header(name.to_owned(), value.to_owned());
    let kind = |value: &&str| match &differs {
        None => Kind::Route(test(value)),
        Some(why) => {
            let why = why.clone();
            Kind::Near(Near { test: test(value), narrower: true, wider: Some(test("*")), why })
        }
    };
    Criterion { alternatives: texts.iter().map(kind).collect(), differs }
}

fn query(method: &str, values: &Values) -> Result<Vec<Pattern>, String> {
    if method == "found" {
        return Ok(vec![Pattern::Any]);
    }
    let folded = values.ignore_case;
    let pattern = |value: &String| match method {
        "str" if folded => Ok(Pattern::Regex(format!("(?i){}", escaped(value)))),
        "str" => Ok(Pattern::Exact(value.clone())),
        "beg" if folded => Ok(Pattern::Regex(format!("(?i){}.*", escaped(value)))),
        "beg" => Ok(Pattern::Prefix(value.clone())),
        "end" if folded => Ok(Pattern::Regex(format!("(?i).*{}", escaped(value)))),
        "end" => Ok(Pattern::Suffix(value.clone())),
        "sub" if folded => Ok(Pattern::Regex(format!("(?i).*{}.*", escaped(value)))),
        "sub" => Ok(Pattern::Regex(format!(".*{}.*", escaped(value)))),
        "reg" => whole_text(value, folded).map(Pattern::Regex),
        _ => Err(format!("query parameters are not compared with `-m {method}`")),
    };
    values.values.iter().map(pattern).collect()
}

fn source(values: &Values) -> Criterion {
    let wrong = values.values.iter().find(|value| sluicegate_config::parse_network(value).is_err());
    if let Some(wrong) = wrong {
        return unsupported(&format!("`{wrong}` is not a network"));
    }
    let mut kinds: Vec<_> = values.files.iter().map(|file| Kind::SourceFile(file.clone())).collect();
    if !values.values.is_empty() {
        kinds.push(Kind::Source(values.values.clone()));
    }
    if kinds.is_empty() {
        unsupported("it has no networks")
    } else {
        Criterion { alternatives: kinds, differs: None }
    }
}

/// `sc_http_req_rate(0) gt 20`, `sc0_http_req_rate(table) gt 20`, `src_http_req_rate(table) gt 20`.
fn counter(name: &str, argument: &str, method: &str, values: &Values) -> Criterion {
    let arguments: Vec<&str> = argument.split(',').map(str::trim).collect();
    let (data, slot, table) = if let Some(data) = name.strip_prefix("sc_") {
        (data, Some(arguments.first().copied().unwrap_or("0")), arguments.get(1).copied())
    } else if let Some(data) = name.strip_prefix("src_") {
        (data, None, arguments.first().copied())
    } else {
        match name.get(2..).and_then(|rest| rest.split_once('_')) {
            Some((slot, data)) => (data, Some(slot), arguments.first().copied()),
            None => return unsupported(&format!("there is no sample `{name}`")),
        }
    };
    let above = match values.values.as_slice() {
        [operator, number] => match (operator.as_str(), number.parse::<u64>()) {
            ("gt", Ok(number)) => Some(number),
            ("ge", Ok(number)) => number.checked_sub(1),
            _ => None,
        },
        [number] if method == "str" => number.parse::<u64>().ok().and_then(|number| number.checked_sub(1)),
        _ => None,
    };
    let Some(above) = above else {
        return unsupported("a limit refuses what is above a number: `gt N` or `ge N`");
    };
    let owned = |text: &str| text.to_owned();
    Criterion {
        alternatives: vec![Kind::Counter(Counter {
            data: data.to_owned(),
            slot: slot.map(owned),
            table: table.filter(|table| !table.is_empty()).map(owned),
            above,
        })],
        differs: None,
    }
}
