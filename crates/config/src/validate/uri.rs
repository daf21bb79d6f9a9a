//! Paths that are rewritten, and redirects.

use http::StatusCode;
use regex::RegexBuilder;

use super::checks::{missing, value};
use super::template::{Names, pieces};
use crate::model::route::Action;
use crate::raw::route::{RawRedirectFields, RawRoute};
use crate::raw::shape::{RawRewrite, RawRewriteFields};
use crate::read::at::At;
use crate::read::report::{Mistake, Report};
use crate::{PathChange, Piece, RegexPiece, UriTemplate, Variable};
use crate::{PathPattern, Paths, normalize};

/// The memory that a compiled pattern may take.
const MAX_PATTERN: usize = 1 << 20;

/// The path change of forwarded requests.
pub(super) fn path(raw: &RawRoute, names: Names<'_>, report: &mut Report) -> PathChange {
    if let (Some(_), Some(rewrite)) = (&raw.strip_prefix, &raw.rewrite) {
        report.error(
            rewrite
                .problem("the route has both `strip_prefix` and `rewrite`")
                .help("keep one: `rewrite: /{rest}` takes off what stands before the `/*` of its path"),
        );
    }
    let change = match (&raw.strip_prefix, &raw.rewrite) {
        (Some(text), _) => strip(text, names, report).map(PathChange::Strip),
        (None, Some(At { value: RawRewrite::Template(text), at })) => {
            let text = At { at: *at, value: text.clone() };
            template(&text, false, names, report).map(PathChange::Template)
        }
        (None, Some(At { value: RawRewrite::Regex(fields), .. })) => regex(fields, report),
        (None, None) => None,
    };
    let given =
        raw.strip_prefix.as_ref().map(|text| text.at).or(raw.rewrite.as_ref().map(|rewrite| rewrite.at));
    if let (Some(_), Some(text)) = (given, raw.forward_path.as_ref().filter(|text| text.value == "original"))
    {
        report.error(
            text.problem("a path that is changed is not forwarded as it was written")
                .help("remove `forward_path`: paths are changed in their normal form"),
        );
    }
    change.unwrap_or_default()
}

fn strip(text: &At<String>, names: Names<'_>, report: &mut Report) -> Option<String> {
    let prefix = value(text, report, |text| {
        let bad = |help: String| Mistake::new(format!("`{text}` is not the front of a path")).help(help);
        if !text.starts_with('/') || text == "/" {
            return Err(bad(format!("write /{}", if text.len() > 1 { text } else { "api" })));
        }
        if let Some(short) = text.strip_suffix("/*").or(text.strip_suffix('/')) {
            return Err(bad(format!("write {short}")));
        }
        match PathPattern::parse(text) {
            Ok(_) if text.contains('{') => {
                Err(bad("it is taken off as it stands here; use `rewrite`".to_owned()))
            }
            Ok(_) => Ok(text.to_owned()),
            Err(error) => Err(error.into()),
        }
    })?;
    let below = PathPattern::parse(&format!("{prefix}/*")).ok();
    let meets =
        |path: &PathPattern| below.as_ref().is_none_or(|below| below.covers(path) || path.covers(below));
    let misses = |paths: &Paths| {
        !paths.patterns.is_empty() && paths.regexes.is_empty() && !paths.patterns.iter().any(meets)
    };
    if names.matches.is_some_and(|matches| misses(&matches.paths)) {
        report.warning(
            text.problem(format!("no path of this route begins with `{prefix}`"))
                .help("what does not begin with it is forwarded as it is"),
        );
    }
    Some(prefix)
}

fn regex(raw: &RawRewriteFields, report: &mut Report) -> Option<PathChange> {
    for (field, example, given) in
        [("match", "^/v1/(.*)$", raw.pattern.is_some()), ("to", "/v2/$1", raw.to.is_some())]
    {
        if !given {
            missing(raw.at, "rewrite", (field, example), &raw.wrong, report);
        }
    }
    let pattern = raw.pattern.as_ref().and_then(|text| {
        value(text, report, |text| {
            RegexBuilder::new(text).size_limit(MAX_PATTERN).build().map_err(|error| {
                let error = error.to_string();
                let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
                Mistake::new(format!("`{text}` is not a regular expression: {why}"))
            })
        })
    });
    let (pattern, text) = (pattern?, raw.to.as_ref()?);
    let group = |name: &str| match name.parse::<usize>() {
        Ok(number) => (number < pattern.captures_len()).then_some(number),
        Err(_) => pattern.capture_names().position(|known| known == Some(name)),
    };
    let to = value(text, report, |text| replacement(text, group))?;
    Some(PathChange::Regex { pattern, to })
}

/// `/x/$1`: texts, and groups by number or name: `$1`, `${1}` and `{1}`. `$$` is a dollar. The braces are for groups with a
/// digit or a letter behind them: `${1}0`.
fn replacement(text: &str, group: impl Fn(&str) -> Option<usize>) -> Result<Vec<RegexPiece>, Mistake> {
    if let Some(wrong) = text.chars().find(|c| !c.is_ascii_graphic() || "?#\\".contains(*c)) {
        let mistake = Mistake::new(format!("{} cannot stand in a path here", shown(wrong)));
        return Err(mistake.help("escape it (%20); a query is kept, or written by `rewrite: /path?query`"));
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['$', '{', '}']) {
        let (before, found) = rest.split_at(at);
        if let Some(further) = found.strip_prefix("$$") {
            pieces.push(RegexPiece::Text(format!("{before}$")));
            rest = further;
            continue;
        }
        let braced = found.strip_prefix("${").or_else(|| found.strip_prefix('{'));
        let (name, further) = match braced {
            Some(inner) => inner.split_once('}').ok_or_else(|| {
                Mistake::new("a `{` without its `}`")
                    .help("groups are $1, ${1} or ${name}; a brace that stays is %7B")
            })?,
            None if found.starts_with('}') => {
                return Err(Mistake::new("a `}` without its `{`")
                    .help("groups are $1, ${1} or ${name}; a brace that stays is %7D"));
            }
            None => {
                let behind = &found[1..];
                let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
                let word =
                    behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len());
                behind.split_at(if digits > 0 { digits } else { word })
            }
        };
        let Some(number) = group(name) else { return Err(no_group(name, braced.is_some(), group)) };
        pieces.push(RegexPiece::Text(before.to_owned()));
        pieces.push(RegexPiece::Group(number));
        rest = further;
    }
    pieces.push(RegexPiece::Text(rest.to_owned()));
    Ok(pieces)
}

/// The mistake for a group that the pattern does not have.
fn no_group(name: &str, braced: bool, group: impl Fn(&str) -> Option<usize>) -> Mistake {
    let written = if braced { format!("{{{name}}}") } else { format!("${name}") };
    let mistake = Mistake::new(format!("`{written}` is not a group of the pattern"));
    // `$10` for group 1 and a 0, `$idx` for the group `id` and an x: the longest group that the name begins with.
    let split =
        (1..name.len()).rev().find(|end| name.is_char_boundary(*end) && group(&name[..*end]).is_some());
    match split.filter(|_| !braced) {
        Some(end) => mistake.help(format!("for the group {} and `{}` write ${{{}}}{}", &name[..end], &name[end..], &name[..end], &name[end..])),
        None => mistake.help(
            "groups are counted from $1, or have names: (?<id>…) and $id; with braces, ${1}, where more letters follow; \
             $$ is a dollar, and variables such as {host} are for a rewrite without `match`",
        ),
    }
}

/// Where clients are sent.
pub(super) fn redirect(raw: &RawRedirectFields, names: Names<'_>, report: &mut Report) -> Option<Action> {
    let status = raw.status.as_ref().map_or(Some(StatusCode::TEMPORARY_REDIRECT), |status| {
        let code =
            u16::try_from(status.value.0).ok().filter(|code| matches!(code, 301 | 302 | 303 | 307 | 308));
        if code.is_none() {
            report.error(
                status
                    .problem(format!(
                        "a redirect has the status 301, 302, 303, 307 or 308, not {}",
                        status.value.0
                    ))
                    .help("307 for now and 308 for good keep the method; 301, 302 and 303 may make it GET"),
            );
        }
        code.and_then(|code| StatusCode::from_u16(code).ok())
    });
    let Some(text) = &raw.to else {
        missing(raw.at, "redirect", ("to", "https://{host}{path}"), &raw.wrong, report);
        return None;
    };
    let to = template(text, true, names, report);
    Some(Action::Redirect { status: status?, to: to? })
}

/// A path with variables, or a URL where a client is `sent`.
fn template(text: &At<String>, sent: bool, names: Names<'_>, report: &mut Report) -> Option<UriTemplate> {
    let pieces = pieces(text, names, report)?;
    value(text, report, |written| split(written, pieces, sent))
}

fn split(written: &str, pieces: Vec<Piece>, sent: bool) -> Result<UriTemplate, Mistake> {
    let begins = |wanted: &str| matches!(pieces.first(), Some(Piece::Text(text)) if text.starts_with(wanted));
    let by_scheme = pieces.first() == Some(&Piece::Variable(Variable::Scheme))
        && matches!(pieces.get(1), Some(Piece::Text(text)) if text.starts_with("://"));
    let absolute = begins("http://") || begins("https://") || by_scheme;
    let is_path = begins("/") || pieces.first() == Some(&Piece::Variable(Variable::Path));
    if absolute && !sent {
        return Err(
            Mistake::new("a path is rewritten, not the host").help("the upstream says where requests go")
        );
    }
    if !absolute && !is_path {
        let mistake = Mistake::new(format!("`{written}` is neither a path nor a URL"));
        return Err(match sent {
            true => mistake.help("begin with /, {path}, https:// or {scheme}://"),
            false => Mistake::new(format!("`{written}` is not a path")).help("begin with / or {path}"),
        });
    }
    let mut uri = UriTemplate { text: written.to_owned(), origin: Vec::new(), path: Vec::new(), query: None };
    let mut rest = pieces;
    if absolute {
        rest = origin(rest, &mut uri.origin)?;
    }
    for piece in rest {
        match (&mut uri.query, piece) {
            (Some(query), piece) => query.push(piece),
            (None, Piece::Variable(variable)) => uri.path.push(Piece::Variable(variable)),
            (None, Piece::Text(text)) => match text.split_once('?') {
                None => uri.path.push(Piece::Text(text)),
                Some((path, query)) => {
                    let texts = |text: &str| (!text.is_empty()).then(|| Piece::Text(text.to_owned()));
                    uri.path.extend(texts(path));
                    uri.query = Some(texts(query).into_iter().collect());
                }
            },
        }
    }
    let texts =
        uri.path.iter().chain(uri.query.as_deref().unwrap_or_default()).filter_map(|piece| match piece {
            Piece::Text(text) => Some(text),
            Piece::Variable(_) => None,
        });
    if let Some(wrong) =
        texts.flat_map(|text| text.chars()).find(|c| !c.is_ascii_graphic() || "#\\\"<>".contains(*c))
    {
        return Err(Mistake::new(format!("{} cannot stand in a URL", shown(wrong))).help("percent-encode it"));
    }
    check_normal_form(&uri.path, written)?;
    Ok(uri)
}

/// Whether the path is one for every request: a variable stands for a segment, or a piece of one.
fn check_normal_form(path: &[Piece], written: &str) -> Result<(), Mistake> {
    let mut sample = String::new();
    for piece in path {
        match piece {
            Piece::Text(text) => sample += text,
            Piece::Variable(Variable::Path) => sample += "/x",
            Piece::Variable(_) => sample.push('x'),
        }
    }
    let dots = sample.split('/').any(|segment| matches!(segment, "." | ".."));
    if dots || (!sample.is_empty() && normalize(&sample).is_err()) {
        return Err(Mistake::new(format!("the path of `{written}` is not in normal form"))
            .help("without dot segments, encoded slashes and escapes that are none"));
    }
    Ok(())
}

/// Takes scheme and host off the front.
fn origin(pieces: Vec<Piece>, origin: &mut Vec<Piece>) -> Result<Vec<Piece>, Mistake> {
    let mut sample = String::new();
    let mut pieces = pieces.into_iter();
    let mut rest = Vec::new();
    for piece in pieces.by_ref() {
        let scheme = sample.find("://").map_or(0, |at| at + 3);
        match piece {
            Piece::Text(text) => {
                let behind = if scheme == 0 { text.find("://").map_or(text.len(), |at| at + 3) } else { 0 };
                match text[behind..].find(['/', '?']) {
                    Some(end) => {
                        sample += &text[..behind + end];
                        origin.push(Piece::Text(text[..behind + end].to_owned()));
                        rest.push(Piece::Text(text[behind + end..].to_owned()));
                        break;
                    }
                    None => {
                        sample += &text;
                        origin.push(Piece::Text(text));
                    }
                }
            }
            Piece::Variable(Variable::Scheme) if sample.is_empty() => {
                sample += "https";
                origin.push(Piece::Variable(Variable::Scheme));
            }
            Piece::Variable(Variable::Host) => {
                sample += "host";
                origin.push(Piece::Variable(Variable::Host));
            }
            Piece::Variable(Variable::Path) => {
                rest.push(Piece::Variable(Variable::Path));
                break;
            }
            Piece::Variable(_) => {
                return Err(Mistake::new("of variables, only {host} can be in the host of a redirect")
                    .help("else clients would choose where others are sent"));
            }
        }
    }
    rest.extend(pieces);
    let authority = sample.split_once("://").map_or("", |(_, authority)| authority);
    match authority.parse::<http::uri::Authority>() {
        Ok(parsed) if !parsed.host().is_empty() && !authority.contains('@') => Ok(rest),
        _ if authority.is_empty() => {
            Err(Mistake::new("the URL names no host").help("such as https://www.example.com{path}"))
        }
        _ => Err(Mistake::new(format!("`{authority}` is not a host"))
            .help("such as https://www.example.com{path}")),
    }
}

fn shown(wrong: char) -> String {
    if wrong.is_ascii_graphic() {
        format!("`{wrong}`")
    } else {
        "a space, a control or a letter beyond ASCII".to_owned()
    }
}
