//! Texts with variables: `Bearer {user}`, `/v2/{rest}`.

use crate::model::route::Match;
use crate::read::at::At;
use crate::read::nearest::nearest;
use crate::read::report::Report;
use crate::{Piece, Variable};

/// What a template can name in its place.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    /// What the route matches; `None` above all routes.
    pub(super) matches: Option<&'a Match>,
    /// Whether there are consumers.
    pub(super) consumers: bool,
    /// Whether there are users.
    pub(super) tokens: bool,
    /// Whether requests are checked outside.
    pub(super) checked: bool,
    /// Whether clients are asked for certificates.
    pub(super) certified: bool,
}

/// The pieces of a text; a brace is doubled to stay one.
pub(super) fn pieces(text: &At<String>, names: Names<'_>, report: &mut Report) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut good = true;
    let mut at = 0;
    let all = text.value.as_str();
    while let Some(brace) = all[at..].find(['{', '}']).map(|found| at + found) {
        plain += &all[at..brace];
        let rest = &all[brace..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            plain += &rest[..1];
            at = brace + 2;
            continue;
        }
        let Some(end) = rest.strip_prefix('{').and_then(|rest| rest.find('}')) else {
            let (found, other) = if rest.starts_with('{') { ("{", "}") } else { ("}", "{") };
            report.error(
                text.piece(brace, found)
                    .problem(format!("a `{found}` without its `{other}`"))
                    .help("variables are written {host}; {{ and }} are braces that stay"),
            );
            return None;
        };
        let name = text.piece(brace + 1, &rest[1..=end]);
        match variable(&name, names, report) {
            Some(variable) => {
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Variable(variable));
            }
            None => good = false,
        }
        at = brace + end + 2;
    }
    plain += &all[at..];
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    good.then_some(pieces)
}

fn variable(name: &At<String>, names: Names<'_>, report: &mut Report) -> Option<Variable> {
    let text = name.value.as_str();
    let plain =
        Variable::PLAIN.iter().find(|(known, _)| *known == text).map(|(_, variable)| variable.clone());
    let found = match (text.split_once(':'), plain) {
        (Some(("jwt", claim)), _) if !claim.is_empty() => Variable::Claim(claim.to_owned()),
        (Some(("metadata", name)), _) if !name.is_empty() => Variable::Metadata(name.to_owned()),
        (Some(("tls", "subject")), _) => Variable::TlsSubject,
        (Some(("tls", "fingerprint")), _) => Variable::TlsFingerprint,
        (Some(("path", param)), _) if !param.is_empty() => return param_of(name, param, names, report),
        // A parameter is nearer than what all requests have.
        (None, _) if has_param(names, text) => return param_of(name, text, names, report),
        (_, Some(variable)) => variable,
        _ => {
            unknown(name, names, report);
            return None;
        }
    };
    let lacking = match &found {
        Variable::Metadata(_) if !names.consumers => {
            Some(("consumers", "auth: {api_key: {consumers: consumers.yaml}}"))
        }
        Variable::Consumer if !names.consumers && !names.checked => {
            Some(("consumers", "auth: {api_key: {consumers: consumers.yaml}}"))
        }
        Variable::User | Variable::Claim(_) if !names.tokens => {
            Some(("`auth.jwt` or `auth.introspection`", "auth: {jwt: {jwks: {url: https://…}}}"))
        }
        Variable::TlsSubject | Variable::TlsFingerprint if !names.certified => {
            Some(("a listener with `client_ca`", "tls: {client_ca: clients.pem, …}"))
        }
        Variable::Plan if !names.tokens && !names.consumers && !names.checked => {
            Some(("consumers or `auth.jwt`", "auth: {api_key: {consumers: consumers.yaml}}"))
        }
        _ => None,
    };
    if let Some((what, example)) = lacking {
        let problem = name.problem(format!("the variable `{{{text}}}` needs {what}, and the file has none"));
        report.error(problem.help(format!("such as `{example}`")));
        return None;
    }
    Some(found)
}

/// Whether any path of the route has a parameter of this name.
fn has_param(names: Names<'_>, name: &str) -> bool {
    names.matches.is_some_and(|matches| matches.paths.patterns.iter().any(|path| path.has_param(name)))
}

fn param_of(name: &At<String>, param: &str, names: Names<'_>, report: &mut Report) -> Option<Variable> {
    let Some(matches) = names.matches else {
        report.error(
            name.problem(format!(
                "`{{{}}}` is a parameter of a path, and this is for all routes",
                name.value
            ))
            .help("write it in a route that matches such a path"),
        );
        return None;
    };
    if !matches.paths.have_param(param) {
        report.error(
            name.problem(format!("not every path of this route has the parameter {{{param}}}"))
                .help(format!("match a path with {{{param}}}, such as /items/{{{param}}}")),
        );
        return None;
    }
    Some(Variable::Param(param.to_owned()))
}

fn unknown(name: &At<String>, names: Names<'_>, report: &mut Report) {
    let params: Vec<&str> = names
        .matches
        .iter()
        .flat_map(|matches| &matches.paths.patterns)
        .flat_map(|path| path.params())
        .collect();
    let known = Variable::PLAIN.iter().map(|(name, _)| *name);
    let problem = name.problem(format!("unknown variable `{{{}}}`", name.value));
    report.error(match nearest(&name.value, known.clone().chain(params.iter().copied())) {
        Some(near) => problem.help(format!("did you mean `{{{near}}}`?")),
        None => {
            let mut all: Vec<&str> = known.collect();
            all.extend(["path:NAME", "metadata:NAME", "jwt:CLAIM", "tls:subject", "tls:fingerprint"]);
            problem.help(format!("known variables: {}; {{{{ and }}}} are braces that stay", all.join(", ")))
        }
    });
}
