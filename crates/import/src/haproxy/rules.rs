//! The rules of a section, in the order in which HAProxy evaluates them.

use super::acl::{Acls, Condition, Literal};
use super::answer::{answer, redirect};
use super::criterion::Kind;
use super::format::{around, regsub, replacement, template};
use super::parse::{Line, Section};
use super::place::{Pattern, Test};
use crate::accepted;
use crate::files::Files;
use crate::marks::Marks;
use crate::report::Source;
use crate::yaml::{Node, map, text};

/// A change of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// `set`, `add` or `remove`.
    pub(super) verb: &'static str,
    pub(super) name: String,
    pub(super) value: String,
    pub(super) source: Source,
}

/// What a rule does.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Track {
        slot: String,
        sample: String,
        table: Option<String>,
        by_request: bool,
    },
    /// The answer of a refusal by a limit, and by the rule alone.
    Deny(Box<Denial>),
    /// Ends the rules of its phase.
    Allow,
    /// Answers: the field of a route and its value.
    Answer(&'static str, Node),
    Request(Header),
    /// Removes a header whose value has no equivalent, for this reason: servers must not take that of a client for it.
    Strip(Header, String),
    Response(Header),
    Rewrite(Node),
    /// The address of the client is another from here on.
    SetSource,
    Backend(String),
    /// The servers of a section `listen`.
    OwnServers,
    /// It cannot be converted, for this reason.
    Lost(String),
    /// The same of a rule that protects what is behind it.
    Protect(&'static str),
    /// It needs no conversion, for this reason.
    Needless(&'static str),
}

/// What `deny` and its relatives answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) word: String,
    /// The status of the rule, and whether it is written in it.
    pub(super) status: u16,
    pub(super) given: bool,
    pub(super) answer: Node,
    pub(super) differs: Option<String>,
}

/// A rule.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) line: usize,
    pub(super) source: Source,
    pub(super) action: Action,
    pub(super) condition: Condition,
    /// Rules are evaluated in the order of their phases. `accept` and `allow` end one phase.
    pub(super) phase: usize,
}

/// The rules of a section.
pub(super) struct Rules {
    pub(super) name: String,
    /// Whether it has servers: a frontend may have the name of a backend.
    pub(super) serves: bool,
    pub(super) steps: Vec<Step>,
}

/// The order in which the kinds of rules are evaluated.
const PHASES: [&str; 9] = [
    "monitor-uri",
    "http-response",
    "tcp-request connection",
    "tcp-request session",
    "tcp-request content",
    "http-request",
    "redirect",
    "use_backend",
    "default_backend",
];

/// Rules that refuse requests, of old versions.
const REMOVED: [&str; 5] = ["block", "reqdeny", "reqideny", "reqtarpit", "reqitarpit"];

/// The phase of a line; `None`: it is no rule.
fn phase(line: &Line) -> Option<usize> {
    let word = line.word(0).replace("http-after-response", "http-response");
    let whole = match (word.as_str(), line.word(1)) {
        ("tcp-request", "inspect-delay") => "tcp-request content".to_owned(),
        ("tcp-request", kind) => format!("tcp-request {kind}"),
        (word, _) if REMOVED.contains(&word) => "http-request".to_owned(),
        _ => word,
    };
    PHASES.iter().position(|known| *known == whole)
}

/// Reads the rules of a section; its `defaults` have been added to it.
pub(super) fn steps(section: &Section, files: &dyn Files, marks: &mut Marks) -> Vec<Step> {
    let acls = Acls::of(section, files, marks);
    let mut out = Vec::new();
    for (number, kind) in PHASES.iter().enumerate() {
        let lines = section.lines.iter().filter(|line| phase(line) == Some(number));
        for line in lines.clone() {
            let in_force = section.kind() != "backend"
                && lines.clone().next_back().is_some_and(|last| last.id == line.id);
            if *kind == "default_backend" && !in_force {
                continue; // a backend has none, though its `defaults` may; the last one counts
            }
            let Some(action) = action(line, files) else { continue };
            let from = line
                .words
                .iter()
                .position(|word| word == "if" || word == "unless")
                .unwrap_or(line.words.len());
            let condition = match &action {
                Action::Lost(_) | Action::Needless(_) => vec![Vec::new()],
                _ if *kind == "monitor-uri" => vec![vec![Literal {
                    negated: false,
                    kind: Kind::Route(Test::Path(vec![Pattern::Exact(line.word(1).to_owned())])),
                }]],
                _ => acls.condition(line, from, files, marks),
            };
            if matches!(action, Action::Deny(_)) && connections(line, &condition).is_some() {
                continue; // its listener does this
            }
            out.push(Step { line: line.id, source: line.source.clone(), action, condition, phase: number });
        }
    }
    if section.lines.iter().any(|line| line.word(0) == "server" || line.word(0) == "server-template")
        && section.kind() == "listen"
    {
        let line = &section.line;
        out.push(Step {
            line: line.id,
            source: line.source.clone(),
            action: Action::OwnServers,
            condition: vec![Vec::new()],
            phase: PHASES.len(),
        });
    }
    out
}

fn action(line: &Line, files: &dyn Files) -> Option<Action> {
    let lost = |why: &str| Action::Lost(why.to_owned());
    Some(match line.word(0) {
        word if REMOVED.contains(&word) => Action::Protect(
            "HAProxy itself has removed it: write `http-request deny` for it, and import again",
        ),
        "monitor-uri" => match accepted::matches(&map().with("path", text(line.word(1)))) {
            Ok(()) => Action::Answer("respond", map().with("status", text(200))),
            Err(why) => Action::Lost(why),
        },
        "redirect" => redirect(line, 1)
            .map_or_else(|why| instead("redirect", why), |node| Action::Answer("redirect", node)),
        "use_backend" | "default_backend" if line.word(1).contains("%[") => {
            Action::Protect("the name of the backend is computed: write a route for each")
        }
        "use_backend" | "default_backend" => Action::Backend(line.word(1).to_owned()),
        "tcp-request" => match (line.word(1), line.word(2)) {
            ("inspect-delay", _) => {
                Action::Needless("the gateway always waits for the head of a request, up to timeouts.head")
            }
            ("connection" | "session", word) if word.starts_with("track-sc") => track(line, 2, false),
            ("content", word) if word.starts_with("track-sc") => track(line, 2, true),
            (_, "reject" | "silent-drop") => denial(line, 2, files),
            (_, "accept") => Action::Allow,
            (_, "set-src") => Action::SetSource,
            ("connection", "expect-proxy") => {
                lost("the PROXY protocol holds for all connections of a listener: `proxy_protocol: true`")
            }
            (_, word) if is_code(word) => Action::Protect(CODE),
            (_, other) => lost(&format!("`tcp-request … {other}` has no equivalent")),
        },
        "http-request" => request(line, files),
        "http-response" | "http-after-response" => match (line.word(1), line.word(2), line.word(3)) {
            ("set-header", name, value) => header("set", name, value, line, Action::Response),
            ("add-header", name, value) => header("add", name, value, line, Action::Response),
            ("del-header", ..) if by_part(line) => lost(BY_PART),
            ("del-header", name, _) => header("remove", name, "", line, Action::Response),
            ("deny", ..) => {
                Action::Protect("answers are not refused: use max_response, or do it in the service")
            }
            (word, ..) if is_code(word) => Action::Protect(CODE),
            ("set-log-level" | "capture" | "set-var" | "unset-var", ..) => {
                Action::Needless("it is about logs and variables of HAProxy")
            }
            (other, ..) => lost(&format!("answers are not changed by `{other}`")),
        },
        _ => return None,
    })
}

/// How many connections of an address a rule admits, which a listener does: `tcp-request connection reject if { src_conn_cur gt N }`.
pub(super) fn connections(line: &Line, condition: &Condition) -> Option<u64> {
    let rejects = line.word(0) == "tcp-request"
        && matches!(line.word(1), "connection" | "session")
        && matches!(line.word(2), "reject" | "silent-drop");
    let count = |clause: &Vec<Literal>| {
        clause.iter().find_map(|literal| match &literal.kind {
            Kind::Counter(counter) if counter.data == "conn_cur" && !literal.negated => Some(counter.above),
            _ => None,
        })
    };
    let counts: Option<Vec<u64>> = condition.iter().map(count).collect();
    // `ge 1` refuses every connection, which no number of a listener does.
    counts.filter(|_| rejects)?.into_iter().min().filter(|count| *count > 0)
}

/// Whether a rule runs code, or lets another service decide.
fn is_code(word: &str) -> bool {
    ["lua.", "use-service", "send-spoe"].iter().any(|begin| word.starts_with(begin))
}

const CODE: &str = "Lua and services inside HAProxy: use auth.check, a service of yours that decides on requests, or an upstream";

fn request(line: &Line, files: &dyn Files) -> Action {
    let lost = |why: &str| Action::Lost(why.to_owned());
    let word = line.word(1);
    match word {
        "deny" | "tarpit" | "reject" | "silent-drop" => denial(line, 1, files),
        "allow" => Action::Allow,
        // It refuses, and so is converted like `deny`: with limits and lists.
        "return" if status_of(line).is_some_and(|status| status >= 400) => denial(line, 1, files),
        "return" => match answer(line, 2, 200, files) {
            Ok(answer) => Action::Answer("respond", answer.node),
            Err(why) => instead("return", why),
        },
        "redirect" => redirect(line, 2)
            .map_or_else(|why| instead("redirect", why), |node| Action::Answer("redirect", node)),
        "set-header" => match line.word(2).to_ascii_lowercase().as_str() {
            "x-forwarded-proto" | "x-forwarded-for" | "x-forwarded-host" | "x-request-id" => {
                Action::Needless("the gateway sets this header itself")
            }
            _ => header("set", line.word(2), line.word(3), line, Action::Request),
        },
        "add-header" => header("add", line.word(2), line.word(3), line, Action::Request),
        "del-header" if by_part(line) => lost(BY_PART),
        "del-header" => header("remove", line.word(2), "", line, Action::Request),
        "set-src" => Action::SetSource,
        "set-path" | "set-uri" => match regsub(line.word(2)) {
            Some((pattern, to)) => rewrite(map().with("match", text(pattern)).with("to", text(to))),
            None => match template(line.word(2)) {
                Ok(to) => rewrite(text(to)),
                Err(part) => Action::Lost(format!("there is no equivalent of {part} in a rewrite")),
            },
        },
        "replace-path" | "replace-uri" | "replace-pathq" => rewrite(
            map().with("match", text(around(line.word(2)))).with("to", text(replacement(line.word(3)))),
        ),
        "auth" => Action::Protect("passwords of a userlist: use auth.api_key with consumers, or auth.check"),
        "set-log-level" | "capture" | "set-nice" | "set-tos" | "set-mark" | "wait-for-body"
        | "wait-for-handshake" | "normalize-uri" | "disable-l7-retry" | "set-timeout" | "strict-mode" => {
            Action::Needless(
                "it is about logs, sockets and buffers of HAProxy, or the gateway always does it",
            )
        }
        _ if word.starts_with("track-sc") => track(line, 1, true),
        _ if is_code(word) => Action::Protect(CODE),
        _ if word.starts_with("set-var") || word.starts_with("unset-var") => lost(
            "the gateway has no variables: rules that read it are not converted, unless they are written with the sample itself",
        ),
        _ if word.starts_with("sc-") => lost(
            "a counter or tag that rules set: `ban: {after: N, within: TIME, for: TIME}` of a limit refuses clients for a time",
        ),
        _ if word.starts_with("cache-") => lost("the gateway has no cache"),
        "replace-header" | "replace-value" => lost("headers are set, added and removed, not edited"),
        _ => lost(&format!("`http-request {word}` has no equivalent")),
    }
}

const BY_PART: &str = "headers are removed by their whole names: name each header in `remove`";

/// Whether `del-header` names a part of the names of headers.
fn by_part(line: &Line) -> bool {
    line.word(3) == "-m" && line.word(4) != "str"
}

fn rewrite(node: Node) -> Action {
    match accepted::field(None, "rewrite", &node) {
        Ok(()) => Action::Rewrite(node),
        Err(why) => Action::Lost(why),
    }
}

fn header(verb: &'static str, name: &str, value: &str, line: &Line, action: fn(Header) -> Action) -> Action {
    let header = Header { verb, name: name.to_owned(), value: String::new(), source: line.source.clone() };
    let is_request = matches!(action(header.clone()), Action::Request(_));
    let field = if is_request { "request_headers" } else { "response_headers" };
    let accepts = |header: &Header| accepted::field(None, field, &changes(std::slice::from_ref(header)));
    let written = template(value)
        .map(|value| Header { value, ..header.clone() })
        .map_err(|part| format!("there is no equivalent of {part} in a header"));
    match written.and_then(|written| accepts(&written).map(|()| written)) {
        Ok(written) => action(written),
        Err(why) => {
            let removed = Header { verb: "remove", ..header };
            let strips = is_request && verb == "set" && accepts(&removed).is_ok();
            if strips { Action::Strip(removed, why) } else { Action::Lost(why) }
        }
    }
}

/// Changes of headers as a field of a route.
pub(super) fn changes(headers: &[Header]) -> Node {
    let mut node = map();
    for verb in ["remove", "set", "add"] {
        let of = headers.iter().filter(|header| header.verb == verb);
        let value = match verb {
            "remove" => crate::yaml::list(of.map(|header| text(&header.name))),
            _ => of.fold(map(), |all, header| all.with(&header.name, text(&header.value))),
        };
        if !value.is_empty() {
            node.insert(verb, value);
        }
    }
    node
}

/// `track-sc0 SAMPLE [table NAME]`
fn track(line: &Line, at: usize, by_request: bool) -> Action {
    let slot = line.word(at).trim_start_matches("track-sc").to_owned();
    let table =
        line.words.iter().position(|word| word == "table").map(|found| line.word(found + 1).to_owned());
    Action::Track { slot, sample: line.word(at + 1).to_owned(), table, by_request }
}

/// A refusal in place of an answer that has no equivalent: the servers do not get these requests.
fn instead(word: &str, why: String) -> Action {
    Action::Deny(Box::new(Denial::of(word, 503, format!("its answer is another: {why}"))))
}

impl Denial {
    /// A refusal that HAProxy does not make.
    pub(super) fn of(word: &str, status: u16, differs: String) -> Self {
        let answer = map().with("status", text(status));
        Self { word: word.to_owned(), status, given: true, answer, differs: Some(differs) }
    }

    /// The same, of a rule that refuses more than in HAProxy, because these parts of its condition are left out.
    pub(super) fn wider(&self, lost: &[String]) -> Self {
        let said =
            (!lost.is_empty()).then(|| format!("it refuses more than in HAProxy: {}", lost.join("; ")));
        Self { differs: said.or_else(|| self.differs.clone()), ..self.clone() }
    }
}

fn denial(line: &Line, at: usize, files: &dyn Files) -> Action {
    let word = line.word(at).to_owned();
    let (default, differs) = match word.as_str() {
        "tarpit" => (500, Some("it is answered at once; HAProxy waits for `timeout tarpit` first. `ban` of a limit keeps such clients away for a time".to_owned())),
        "reject" | "silent-drop" => (403, Some("it is answered; HAProxy closes the connection without an answer".to_owned())),
        _ => (403, None),
    };
    match answer(line, at + 1, default, files) {
        Ok(answer) => Action::Deny(Box::new(Denial {
            word,
            status: answer.status,
            given: answer.given,
            answer: answer.node,
            differs,
        })),
        // What it refuses is refused, with another answer.
        Err(why) => {
            let (status, given) = status_of(line).map_or((default, false), |status| (status, true));
            Action::Deny(Box::new(Denial {
                word,
                status,
                given,
                answer: map().with("status", text(status)),
                differs: Some(format!("its answer is another: {why}")),
            }))
        }
    }
}

/// The status that is written in a rule.
fn status_of(line: &Line) -> Option<u16> {
    let words = line.words.iter().take_while(|word| *word != "if" && *word != "unless");
    let at = words.clone().position(|word| word == "status" || word == "deny_status")?;
    words.clone().nth(at + 1)?.parse().ok().filter(|status| (200..=599).contains(status))
}
