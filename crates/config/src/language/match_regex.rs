//! Regular expressions of `match`: they match whole texts, in time linear in the text.

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Capture, Hir, HirKind, Look, Repetition};
use serde::{Serialize, Serializer};

use crate::read::report::Mistake;

/// The memory in bytes that a compiled expression may take. It also bounds the time of a match.
const MAX_COMPILED: usize = 64 << 10;

/// What servers that negotiate formats ignore at the end of a path: extensions of the last segment, and a slash.
const IGNORED_END: &str = r"(?:[^A-Za-z0-9/]*\.[^/]*)?/?";

/// A regular expression that matches a whole text.
#[derive(Clone, Debug)]
pub struct MatchRegex {
    text: String,
    whole: Regex,
}

/// A regular expression for paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRegex {
    exact: MatchRegex,
    loose: LooseRegex,
}

/// An expression without regard to case and anchors, which may be followed by what lenient servers ignore.
#[derive(Clone, Debug)]
struct LooseRegex(Regex);

impl MatchRegex {
    /// Compiles an expression. Classes such as `\w` are those of ASCII; `.` is one byte.
    ///
    /// # Errors
    /// If it is not a regular expression, or takes more than 64 KiB compiled.
    pub fn new(text: &str, ignore_case: bool) -> Result<Self, Mistake> {
        Ok(Self { text: text.to_owned(), whole: compile(text, whole(parse(text, ignore_case)?))? })
    }

    /// The expression as the file writes it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the whole text matches.
    #[inline]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.whole.is_match(text)
    }
}

impl PathRegex {
    /// Compiles an expression for paths in normal form.
    ///
    /// # Errors
    /// If it is not a regular expression, takes more than 64 KiB compiled, or can match no path in normal form.
    pub(crate) fn new(text: &str) -> Result<Self, Mistake> {
        if !text.is_ascii() {
            return Err(Mistake::new(format!("`{text}` matches no path: paths have only ASCII characters"))
                .help("write other characters percent-encoded, such as %C3%A9"));
        }
        let begin = text.strip_prefix('^').unwrap_or(text);
        if begin.starts_with(|c: char| c.is_ascii_alphanumeric()) && !begin.contains('|') {
            return Err(Mistake::new(format!("`{text}` matches no path: paths begin with /")).help(format!(
                "the whole path has to match: write /{begin}, or .*{begin} for any beginning"
            )));
        }
        let exact = MatchRegex::new(text, false)?;
        let inner = Capture { index: 1, name: None, sub: Box::new(without_anchors(&parse(text, true)?)) };
        let loose = Hir::concat(vec![Hir::capture(inner), parse(IGNORED_END, false)?]);
        Ok(Self { exact, loose: LooseRegex(compile(text, whole(loose))?) })
    }

    /// The expression as the file writes it.
    pub fn as_str(&self) -> &str {
        self.exact.as_str()
    }

    /// Whether a path in normal form matches.
    #[inline]
    pub fn matches(&self, path: &str) -> bool {
        self.exact.matches(path.as_bytes())
    }

    /// The front of a path that matches if case is ignored and only extensions or a slash follow; `None` if there is none.
    pub fn loose_match<'p>(&self, path: &'p str) -> Option<&'p str> {
        if !self.loose.0.is_match(path.as_bytes()) {
            return None;
        }
        let groups = self.loose.0.captures(path.as_bytes())?;
        path.get(groups.get(1)?.range())
    }
}

impl PartialEq for MatchRegex {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for MatchRegex {}

impl PartialEq for LooseRegex {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for LooseRegex {}

/// `{regex: TEXT}`, as a file writes it.
impl Serialize for MatchRegex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([("regex", &self.text)])
    }
}

impl Serialize for PathRegex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.exact.serialize(serializer)
    }
}

fn parse(text: &str, ignore_case: bool) -> Result<Hir, Mistake> {
    let mut parser = ParserBuilder::new();
    parser.unicode(false).utf8(false).case_insensitive(ignore_case);
    parser.build().parse(text).map_err(|error| {
        let error = error.to_string();
        let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        Mistake::new(format!("`{text}` is not a regular expression: {why}"))
    })
}

/// An expression that matches from the beginning to the end of a text.
fn whole(inner: Hir) -> Hir {
    Hir::concat(vec![Hir::look(Look::Start), inner, Hir::look(Look::End)])
}

/// Compiles the expression that `text` became.
fn compile(text: &str, hir: Hir) -> Result<Regex, Mistake> {
    RegexBuilder::new(&hir.to_string()).size_limit(MAX_COMPILED).build().map_err(|_| {
        Mistake::new(format!("`{text}` takes more than {} KiB compiled", MAX_COMPILED >> 10))
            .help("repeat less: + instead of {1,1000}, or several shorter expressions")
    })
}

/// An expression that matches at least the same texts, and has neither anchors nor groups.
fn without_anchors(hir: &Hir) -> Hir {
    let all = |hirs: &[Hir]| hirs.iter().map(without_anchors).collect();
    match hir.kind() {
        HirKind::Look(_) => Hir::empty(),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) => hir.clone(),
        HirKind::Capture(capture) => without_anchors(&capture.sub),
        HirKind::Repetition(repetition) => {
            let sub = Box::new(without_anchors(&repetition.sub));
            Hir::repetition(Repetition { sub, ..repetition.clone() })
        }
        HirKind::Concat(hirs) => Hir::concat(all(hirs)),
        HirKind::Alternation(hirs) => Hir::alternation(all(hirs)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_path_has_to_match() {
        for (text, path, expected) in [
            ("^/v[0-9]+/items$", "/v12/items", true),
            ("/v[0-9]+/items", "/v12/items", true),
            ("/v[0-9]+/items", "/v12/items/7", false),
            ("/v[0-9]+/items", "/x/v12/items", false),
            ("/a|/b", "/bc", false),
            ("/a|/b", "/b", true),
            ("(?m)^/a$", "/a\n/b", false),
            ("(?i)/a", "/A", true),
            ("/a", "/A", false),
            (r"/\w+", "/a_1", true),
            ("(?x) /a # a comment", "/a", true),
        ] {
            assert_eq!(PathRegex::new(text).unwrap().matches(path), expected, "{text} {path}");
        }
    }

    #[test]
    fn a_loose_match_ignores_case_anchors_and_what_follows_a_dot() {
        for (text, path, expected) in [
            ("^/login$", "/Login", Some("/Login")),
            ("^/login$", "/login.json", Some("/login")),
            ("^/login$", "/login.a.b/", Some("/login")),
            ("^/login$", "/login/", Some("/login")),
            ("^/login/$", "/login", None),
            ("^/login$|^/sign-in$", "/SIGN-IN.html", Some("/SIGN-IN")),
            ("^/login$", "/login2", None),
            ("^/login$", "/login.json/x", None),
            ("/v[0-9]+/[A-Z]{2}", "/V1/de", Some("/V1/de")),
            ("(^/a$)+", "/a/a", Some("/a/a")),
        ] {
            assert_eq!(PathRegex::new(text).unwrap().loose_match(path), expected, "{text} {path}");
        }
    }

    #[test]
    fn what_is_no_expression_for_a_path_is_told() {
        for (text, why) in [
            ("/(", "unclosed group"),
            ("/a{1,100000}", "more than 64 KiB"),
            ("/(a{1,100}){1,100}", "more than 64 KiB"),
            (r"/\p{Greek}", "Unicode"),
            (r"/(a)\1", "backreferences"),
            ("/(?=a)", "look-around"),
            ("/é", "ASCII"),
            ("^v1/items", "begin with /"),
        ] {
            let message = PathRegex::new(text).unwrap_err().message;
            assert!(message.contains(why), "{text}: {message}");
        }
        assert!(PathRegex::new("v1|/v2").is_ok() && PathRegex::new(".*items").is_ok());
    }
}
