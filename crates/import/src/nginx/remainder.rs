//! What an expression leaves to be matched after the beginning of a path is known. So expressions are restricted to a prefix.

use regex_syntax::ast::{Ast, RepetitionKind, RepetitionRange, parse::Parser};
use regex_syntax::hir::HirKind;

use crate::names::escaped;

/// How many expressions, and characters in each, may be left. More is too large for the gateway, too.
const MOST: usize = 64;
const LONGEST: usize = 2_000;

/// What is left of an expression, each way of matching it apart.
struct Remainder {
    ignore_case: bool,
    ways: Vec<String>,
}

/// The expression for the paths that begin with `prefix` and that the expression matches wholly; `None` if there are none.
///
/// # Errors
/// Why it cannot be determined.
pub(super) fn within(pattern: &str, prefix: &str) -> Result<Option<String>, String> {
    let rest = Remainder::of(pattern, prefix)?;
    let ways = match rest.ways.as_slice() {
        [] => return Ok(None),
        [way] => way.clone(),
        ways => format!("(?:{})", ways.join("|")),
    };
    let ways = if rest.ignore_case { format!("(?i:{ways})") } else { ways };
    Ok(Some(format!("{}{ways}", escaped(prefix))))
}

/// Whether the expression matches the whole path.
///
/// # Errors
/// Why it cannot be determined.
pub(super) fn matches(pattern: &str, path: &str) -> Result<bool, String> {
    let rest = Remainder::of(pattern, path)?;
    rest.ways.iter().try_fold(false, |found, way| Ok(found || may_be_empty(&parsed(way)?)?))
}

impl Remainder {
    fn of(pattern: &str, prefix: &str) -> Result<Self, String> {
        let (ignore_case, pattern) = match pattern.strip_prefix("(?i)") {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        let mut ways = vec![pattern.to_owned()];
        for c in prefix.chars() {
            let mut next: Vec<String> = Vec::new();
            for way in &ways {
                for rest in after(&parsed(way)?, c, ignore_case)? {
                    if !next.contains(&rest) {
                        next.push(rest);
                    }
                }
            }
            if next.len() > MOST || next.iter().any(|way| way.len() > LONGEST) {
                return Err("the expression is too large to be restricted to a prefix".to_owned());
            }
            ways = next;
        }
        Ok(Self { ignore_case, ways })
    }
}

fn parsed(pattern: &str) -> Result<Ast, String> {
    Parser::new().parse(pattern).map_err(|error| error.kind().to_string())
}

/// The partial derivatives: the expressions for what may follow after `c`.
fn after(ast: &Ast, c: char, ignore_case: bool) -> Result<Vec<String>, String> {
    Ok(match ast {
        Ast::Empty(_) => Vec::new(),
        Ast::Literal(_) | Ast::Dot(_) | Ast::ClassUnicode(_) | Ast::ClassPerl(_) | Ast::ClassBracketed(_) => {
            if is_one(ast, c, ignore_case)? {
                vec![String::new()]
            } else {
                Vec::new()
            }
        }
        Ast::Group(group) if group.flags().is_none_or(|flags| flags.items.is_empty()) => {
            after(&group.ast, c, ignore_case)?
        }
        Ast::Alternation(all) => {
            let mut out = Vec::new();
            for one in &all.asts {
                out.extend(after(one, c, ignore_case)?);
            }
            out
        }
        Ast::Concat(all) => {
            let mut out = Vec::new();
            for (at, one) in all.asts.iter().enumerate() {
                let rest: String = all.asts[at + 1..].iter().map(ToString::to_string).collect();
                out.extend(after(one, c, ignore_case)?.into_iter().map(|way| way + &rest));
                if !may_be_empty(one)? {
                    break;
                }
            }
            out
        }
        Ast::Repetition(repetition) => {
            let (least, most) = bounds(&repetition.op.kind);
            let again = match (least.saturating_sub(1), most.map(|most| most.saturating_sub(1))) {
                _ if most == Some(0) => return Ok(Vec::new()),
                (_, Some(0)) => String::new(),
                (0, None) => format!("{}*", repetition.ast),
                (least, None) => format!("{}{{{least},}}", repetition.ast),
                (least, Some(most)) => format!("{}{{{least},{most}}}", repetition.ast),
            };
            after(&repetition.ast, c, ignore_case)?.into_iter().map(|way| way + &again).collect()
        }
        Ast::Group(_) | Ast::Flags(_) | Ast::Assertion(_) => return Err(beyond(ast)),
    })
}

fn may_be_empty(ast: &Ast) -> Result<bool, String> {
    Ok(match ast {
        Ast::Empty(_) => true,
        Ast::Literal(_) | Ast::Dot(_) | Ast::ClassUnicode(_) | Ast::ClassPerl(_) | Ast::ClassBracketed(_) => {
            false
        }
        Ast::Group(group) => may_be_empty(&group.ast)?,
        Ast::Alternation(all) => {
            all.asts.iter().try_fold(false, |found, one| Ok::<_, String>(found | may_be_empty(one)?))?
        }
        Ast::Concat(all) => {
            all.asts.iter().try_fold(true, |found, one| Ok::<_, String>(found & may_be_empty(one)?))?
        }
        Ast::Repetition(repetition) => bounds(&repetition.op.kind).0 == 0 || may_be_empty(&repetition.ast)?,
        Ast::Flags(_) | Ast::Assertion(_) => return Err(beyond(ast)),
    })
}

fn bounds(kind: &RepetitionKind) -> (u32, Option<u32>) {
    match kind {
        RepetitionKind::ZeroOrOne => (0, Some(1)),
        RepetitionKind::ZeroOrMore => (0, None),
        RepetitionKind::OneOrMore => (1, None),
        RepetitionKind::Range(RepetitionRange::Exactly(count)) => (*count, Some(*count)),
        RepetitionKind::Range(RepetitionRange::AtLeast(least)) => (*least, None),
        RepetitionKind::Range(RepetitionRange::Bounded(least, most)) => (*least, Some(*most)),
    }
}

/// Whether an expression for one character matches this one.
fn is_one(ast: &Ast, c: char, ignore_case: bool) -> Result<bool, String> {
    let mut parser = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build();
    let class = if ignore_case { format!("(?i){ast}") } else { ast.to_string() };
    let byte = u8::try_from(c).map_err(|_| "the prefix has other characters than ASCII".to_owned())?;
    let hir = parser.parse(&class).map_err(|_| beyond(ast))?;
    Ok(match hir.kind() {
        HirKind::Literal(literal) => *literal.0 == [byte],
        HirKind::Class(regex_syntax::hir::Class::Bytes(class)) => {
            class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&byte))
        }
        HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => {
            class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&c))
        }
        _ => return Err(beyond(ast)),
    })
}

fn beyond(ast: &Ast) -> String {
    format!("`{ast}` inside of an expression cannot be restricted to a prefix")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_restricted_to_prefixes() {
        let found = |pattern: &str, prefix: &str| within(pattern, prefix).unwrap();
        for (pattern, prefix, expected) in [
            (r".*\.php", "/uploads/", Some(r"/uploads/.*\.php")),
            (r"(?i).*\.(png|jpe?g)", "/a/", Some(r"/a/(?i:.*\.(png|jpe?g))")),
            // It may begin in the prefix.
            (r".*/\.ht.*", "/app/", Some(r"/app/(?:.*/\.ht.*|\.ht.*)")),
            ("/app/v[0-9]+/.*", "/app/", Some("/app/v[0-9]+/.*")),
            ("/v[0-9]{2,3}/x", "/v1", Some("/v1[0-9]{1,2}/x")),
            ("/(up|down)/.*", "/up/", Some("/up/.*")),
            ("(?:/a.*|.*/b)", "/c/", Some("/c/(?:.*/b|b)")),
            ("/api/.*", "/app/", None),
            ("[^/]+", "/", None),
        ] {
            assert_eq!(found(pattern, prefix).as_deref(), expected, "{pattern} {prefix}");
        }
        assert!(within("/a(?-u:x)(^/b)", "/ax/").is_err());
        assert_eq!((matches(r".*\.php", "/a.php"), matches("/a+", "/ab")), (Ok(true), Ok(false)));
    }
}
