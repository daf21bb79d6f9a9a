//! haproxy.cfg.
//!
//! `lexer` and `parse` read the sections; `units`, `format`, `place`, `criterion` and `acl` convert values and conditions; `answer`,
//! `rules`, `limits`, `refuse` and `lists` convert rules, `listen`, `server` and `backend` addresses; `walk` makes routes of rules, a
//! `tree` first; `known` explains the rest.

mod acl;
mod answer;
mod backend;
mod criterion;
mod format;
mod known;
mod lexer;
mod limits;
mod listen;
mod lists;
mod parse;
mod place;
mod refuse;
mod route;
mod rules;
mod server;
#[cfg(test)]
mod tests;
mod tree;
mod units;
mod walk;

pub use self::lexer::Environment;
pub use self::parse::{Line, Section, parse};

use self::limits::Limits;
use self::listen::{Bases, Listener, listeners};
use self::lists::Lists;
use self::route::routes;
use self::rules::{Rules, steps};
use self::tree::Leaf;
use self::units::{duration, milliseconds};
use self::walk::{Facts, Walker};
use crate::accepted;
use crate::files::Files;
use crate::marks::Marks;
use crate::names::{name, unused};
use crate::report::{Imported, Outcome, Report};
use crate::yaml::{Node, map, text};

/// Converts the text of a haproxy.cfg. Files of patterns and certificates that it names are read by `files`.
///
/// # Errors
/// The first mistake, with its line and a caret; or why nothing of it can be converted.
pub fn import_text(
    files: &dyn Files,
    path: &str,
    text: &str,
    environment: Environment<'_>,
) -> Result<Imported, String> {
    let written = parse(path, text, environment)?;
    let mut marks = Marks::default();
    let whole = with_defaults(&written);
    let lost = lost(&whole, &mut marks);
    let bases = bases(&written, &mut marks);
    let mut listening: Vec<Listener> = Vec::new();
    for (number, section) in whole.iter().enumerate() {
        if matches!(section.kind(), "frontend" | "listen") && lost[number].is_none() {
            listeners(section, number, &bases, files, &mut listening, &mut marks);
        }
    }
    if listening.is_empty() {
        let help = "a section `frontend` or `listen` with `mode http` and a `bind` is needed";
        return Err(format!(
            "{path}: there is nothing in it that the gateway can listen on\n  help: {help}\n"
        ));
    }
    let rules: Vec<Rules> = whole
        .iter()
        .map(|section| {
            let serves = matches!(section.kind(), "listen" | "backend");
            let has_rules = serves || section.kind() == "frontend";
            let steps = if has_rules { steps(section, files, &mut marks) } else { Vec::new() };
            Rules { name: section.name().to_owned(), serves, steps }
        })
        .collect();
    let mut limits = Limits::of(&written);
    let mut lists = Lists::default();
    let mut seen = Vec::new();
    let mut found: Vec<Vec<Leaf>> = Vec::new();
    for listener in &listening {
        let facts = Facts { tls: listener.tls, port: &listener.port };
        let mut walker = Walker {
            sections: &rules,
            limits: &mut limits,
            lists: &mut lists,
            marks: &mut marks,
            seen: &mut seen,
            facts,
            leaves: 0,
        };
        found.push(walker.routes(listener.section));
    }
    if seen.iter().any(|(_, limits)| limits.len() > 1) {
        marks.report.note("where a route has several limits, a request that one of them refuses is not counted by the others; HAProxy counts it in all");
    }
    counted_elsewhere(&limits, &seen, &rules, &mut marks);
    let upstreams = upstreams(&whole, &found, &bases, &mut marks);
    let named = found.iter().any(|leaves| *leaves != found[0]);
    let response = route::same_response(&mut found);
    let routes = routes(&listening, &found, named, &upstreams, &mut marks);
    let timeouts = timeouts(&whole, &listening, &mut marks);
    if limits.counts_rates() {
        marks.report.note(
            "HAProxy estimates a rate from the current period and the one before; here a request counts for exactly the period. Refused \
             requests count in both. A client that was far above a limit is admitted up to one period sooner than in HAProxy",
        );
    }
    let upstreams = upstreams.into_iter().fold(map(), |all, (_, name, node)| all.with(name, node)).block();
    let file = map()
        .with("listen", listen::section(listening, named))
        .with("timeouts", timeouts)
        .with("response_headers", response)
        .with("lists", lists.finish())
        .with("limits", limits.finish(&mut marks))
        .with("upstreams", upstreams)
        .with("routes", routes);
    let comment = format!(
        "Converted from {path} by `sluicegate import haproxy`. Comments name the lines that parts come from."
    );
    let yaml = file.file(&[comment]);
    Ok(Imported { yaml, report: finish(&written, &lost, marks) })
}

/// The sections with the lines of their `defaults` above their own.
fn with_defaults(written: &[Section]) -> Vec<Section> {
    let all = |section: &Section| {
        let mut lines = Vec::new();
        let mut next = section.defaults;
        let mut levels = vec![&section.lines];
        while let Some(number) = next {
            levels.push(&written[number].lines);
            next = written[number].defaults.filter(|other| *other < number);
        }
        levels.iter().rev().for_each(|level| lines.extend(level.iter().cloned()));
        Section { lines, ..section.clone() }
    };
    written
        .iter()
        .map(|section| if section.kind() == "defaults" { section.clone() } else { all(section) })
        .collect()
}

/// What becomes of sections that are not converted.
fn lost(whole: &[Section], marks: &mut Marks) -> Vec<Option<(Outcome, String)>> {
    let one = |section: &Section| {
        if let Some((outcome, text)) = known::section(section.kind()) {
            return Some((outcome, text.to_owned()));
        }
        if !matches!(section.kind(), "frontend" | "listen" | "backend") {
            return None;
        }
        let last = |word: &str| section.lines.iter().rfind(|line| line.word(0) == word);
        if section.lines.iter().any(|line| line.word(0) == "disabled") {
            return Some((Outcome::Ignored, "it is disabled".to_owned()));
        }
        let stats = section.lines.iter().any(|line| line.word(0) == "stats");
        let serves = ["server", "default_backend", "use_backend", "server-template"]
            .iter()
            .any(|word| last(word).is_some());
        if stats && !serves {
            return Some((Outcome::Ignored, "the admin API shows the state: `admin: {address: 127.0.0.1:9090}`, with a page at / and /metrics".to_owned()));
        }
        let mode = last("mode").map_or("tcp", |line| line.word(1));
        (mode != "http")
            .then(|| (Outcome::Unsupported, format!("mode {mode}: the gateway forwards HTTP only")))
    };
    let lost: Vec<_> = whole.iter().map(one).collect();
    for (section, lost) in whole.iter().zip(&lost) {
        if let Some((outcome, text)) = lost {
            marks.mark(section.line.id, *outcome, text.clone());
        }
    }
    lost
}

fn bases(written: &[Section], marks: &mut Marks) -> Bases {
    let value = |word: &str| {
        let global = written.iter().filter(|section| section.kind() == "global");
        global
            .flat_map(|section| &section.lines)
            .rfind(|line| line.word(0) == word)
            .map(|line| line.word(1).to_owned())
    };
    let lines =
        written.iter().filter(|section| section.kind() == "global").flat_map(|section| &section.lines);
    let mut tls_1_3 = false;
    for line in lines.filter(|line| line.word(0) == "ssl-default-bind-options") {
        let least = line.words.windows(2).any(|pair| pair[0] == "ssl-min-ver" && pair[1] == "TLSv1.3");
        if least || line.words.iter().any(|word| word == "no-tlsv12" || word == "force-tlsv13") {
            tls_1_3 = true;
            marks.converted(line.id, "tls.min_version of the listeners");
        }
    }
    let (crt, ca) = (value("crt-base").unwrap_or_default(), value("ca-base").unwrap_or_default());
    Bases { crt, ca, tls_1_3 }
}

/// The upstreams of the backends that routes lead to: the section, the name and the value.
fn upstreams(
    whole: &[Section],
    found: &[Vec<Leaf>],
    bases: &Bases,
    marks: &mut Marks,
) -> Vec<(String, String, Node)> {
    let mut out: Vec<(String, String, Node)> = Vec::new();
    for section in whole.iter().filter(|section| matches!(section.kind(), "backend" | "listen")) {
        let leads = found
            .iter()
            .flatten()
            .any(|leaf| leaf.effect.backend.as_ref().is_some_and(|(name, _)| name == section.name()));
        if !leads {
            if section.kind() == "backend" && !marks.has(section.line.id) {
                let table =
                    section.lines.iter().any(|line| line.word(0) == "stick-table" && marks.has(line.id));
                match table {
                    true => marks.converted(section.line.id, "it holds the stick-table of limits"),
                    false => marks.ignored(section.line.id, "no route leads to it"),
                }
            }
            continue;
        }
        if section.lines.iter().any(|line| line.word(0) == "disabled") {
            marks.unsupported(section.line.id, "its routes answer 503, because it is disabled");
            continue;
        }
        match backend::upstream(section, &bases.ca, marks) {
            Some(node) => {
                let taken = |name: &str| out.iter().any(|(_, known, _)| known == name);
                let name = unused(&name(section.name()), &taken);
                marks.converted(section.line.id, format!("upstream {name}"));
                out.push((section.name().to_owned(), name, node));
            }
            None => marks.unsupported(
                section.line.id,
                "it has no server that the gateway can use: its routes answer 503",
            ),
        }
    }
    out
}

/// Says of a rule that its counter also counts requests of routes without its limit.
fn counted_elsewhere(
    limits: &Limits,
    seen: &[(Vec<limits::Tracked>, Vec<String>)],
    rules: &[Rules],
    marks: &mut Marks,
) {
    let mut elsewhere: Vec<&str> = Vec::new();
    for (tracked, names) in seen {
        for tracked in tracked {
            let apart =
                limits.count_in(tracked).into_iter().filter(|name| !names.iter().any(|known| known == name));
            elsewhere.extend(apart);
        }
    }
    for name in elsewhere {
        let text = format!("limit {name}");
        for step in rules.iter().flat_map(|rules| &rules.steps) {
            if marks.says(step.line, &text) {
                marks.approximated(step.line, format!("limit {name} counts the requests of its own routes; HAProxy counts all requests that are tracked, also those that this rule never denies"));
            }
        }
    }
}

/// The timeouts for clients: those of the first frontend.
fn timeouts(whole: &[Section], listening: &[Listener], marks: &mut Marks) -> Node {
    let mut node = map();
    let fields: [(&str, &[&str]); 3] =
        [("client", &["body", "write"]), ("http-request", &["head"]), ("http-keep-alive", &["idle"])];
    for (word, names) in fields {
        let mut first: Option<&Line> = None;
        for listener in listening {
            let is = |line: &&Line| line.word(0) == "timeout" && line.word(1) == word;
            let Some(line) = whole[listener.section].lines.iter().rfind(is) else { continue };
            match first {
                Some(known) if known.word(2) != line.word(2) => {
                    marks.approximated(
                        line.id,
                        format!("the gateway has one timeouts.{}: that of the first frontend", names[0]),
                    );
                    continue;
                }
                _ => first = Some(line),
            }
        }
        let Some(line) = first else { continue };
        let Some(time) = milliseconds(line.word(2)).filter(|time| *time > 0) else {
            marks.unsupported(line.id, "it is not a time; the gateway always has timeouts");
            continue;
        };
        for field in names {
            match accepted::top_field("timeouts", &map().with(*field, text(duration(time)))) {
                Ok(()) => {
                    node.insert(*field, text(duration(time)).source(&line.source));
                    marks.converted(line.id, format!("timeouts.{}", names.join(" and timeouts.")));
                }
                Err(why) => marks.unsupported(line.id, why),
            }
        }
    }
    node
}

/// Writes all lines to the report, in their order.
fn finish(written: &[Section], lost: &[Option<(Outcome, String)>], mut marks: Marks) -> Report {
    for (section, lost) in written.iter().zip(lost) {
        let line = &section.line;
        marks.report(line.id, &line.source, &line.shown, &|| match section.kind() {
            "defaults" | "global" => (Outcome::Converted, "its lines, where they are in force".to_owned()),
            "frontend" | "listen" => (Outcome::Converted, "listeners and routes".to_owned()),
            _ => (Outcome::Ignored, "no route leads to it".to_owned()),
        });
        let ignored = section.kind() == "backend" && marks.says(line.id, "no route leads to it");
        for line in &section.lines {
            for name in &line.unset {
                marks.unsupported(
                    line.id,
                    format!("${name} is not set: set it, and import again. An unset variable is empty"),
                );
            }
            marks.report(line.id, &line.source, &line.shown, &|| match lost {
                Some((outcome, text)) => (*outcome, text.clone()),
                None if ignored => (Outcome::Ignored, "no route leads to its section".to_owned()),
                None => known::rest(line),
            });
        }
    }
    marks.report
}
