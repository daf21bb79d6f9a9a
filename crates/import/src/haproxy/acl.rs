//! ACLs, and the conditions of rules.

use super::criterion::{Criterion, Kind, criterion, predefined};
use super::parse::{Line, Section};
use crate::files::Files;
use crate::marks::Marks;

/// The largest number of alternatives of a condition.
const ALTERNATIVES: usize = 64;

/// A test in a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Literal {
    pub(super) negated: bool,
    pub(super) kind: Kind,
}

/// The alternatives of a condition. All literals of one have to hold.
pub(super) type Condition = Vec<Vec<Literal>>;

/// The ACLs of a section. Those of one name are alternatives.
#[derive(Default)]
pub(super) struct Acls {
    found: Vec<Acl>,
}

struct Acl {
    name: String,
    criterion: Criterion,
}

impl Acls {
    /// Reads the ACLs of a section and of the `defaults` above it.
    pub(super) fn of(section: &Section, files: &dyn Files, marks: &mut Marks) -> Self {
        let mut acls = Self::default();
        for line in section.lines.iter().filter(|line| line.word(0) == "acl") {
            let name = line.word(1).to_owned();
            let criterion = criterion(line.from(2), files);
            let used = section.lines.iter().any(|other| uses(other, &name));
            match (&criterion.alternatives.as_slice(), &criterion.differs) {
                _ if !used => marks.ignored(line.id, "nothing uses it"),
                ([Kind::Unsupported(why)], _) => marks.unsupported(line.id, why.clone()),
                (_, Some(differs)) => marks.approximated(line.id, differs.clone()),
                _ => marks.converted(line.id, "in the routes, lists and limits of the rules that use it"),
            }
            acls.found.push(Acl { name, criterion });
        }
        acls
    }

    /// The condition that begins at `if` or `unless`; always, if there is none. An anonymous ACL that differs is said of the line.
    pub(super) fn condition(
        &self,
        line: &Line,
        from: usize,
        files: &dyn Files,
        marks: &mut Marks,
    ) -> Condition {
        let words = line.from(from);
        let Some((first, words)) = words.split_first() else { return vec![Vec::new()] };
        let mut all: Condition = Vec::new();
        let mut clauses: Condition = vec![Vec::new()];
        let mut at = 0;
        while at < words.len() {
            let word = words[at].as_str();
            if matches!(word, "or" | "||") {
                all.append(&mut clauses);
                clauses = vec![Vec::new()];
                at += 1;
                continue;
            }
            let bare = word.trim_start_matches('!');
            let mut negated = (word.len() - bare.len()) % 2 == 1;
            let mut bare = bare;
            if bare.is_empty() {
                at += 1; // `! name`
                negated = true;
                bare = words.get(at).map_or("", String::as_str);
            }
            let alternatives = if bare == "{" {
                let end = words[at..].iter().position(|word| word == "}").map_or(words.len(), |end| at + end);
                let found = criterion(&words[at + 1..end], files);
                at = end;
                if let Some(differs) = found.differs {
                    marks.approximated(line.id, differs);
                }
                found.alternatives
            } else {
                self.named(bare)
            };
            at += 1;
            clauses = and(clauses, &alternatives, negated);
        }
        all.append(&mut clauses);
        if first == "unless" { negate(all) } else { all }
    }

    fn named(&self, name: &str) -> Vec<Kind> {
        let own: Vec<_> = self
            .found
            .iter()
            .filter(|acl| acl.name == name)
            .flat_map(|acl| acl.criterion.alternatives.clone())
            .collect();
        if !own.is_empty() {
            return own;
        }
        vec![predefined(name).unwrap_or_else(|| Kind::Unsupported(format!("there is no ACL `{name}`")))]
    }
}

/// Whether a line names an ACL in its condition.
fn uses(line: &Line, name: &str) -> bool {
    let Some(at) = line.words.iter().position(|word| word == "if" || word == "unless") else { return false };
    line.word(0) != "acl" && line.from(at + 1).iter().any(|word| word.trim_start_matches('!') == name)
}

/// The clauses with one more test of several alternatives.
fn and(clauses: Condition, alternatives: &[Kind], negated: bool) -> Condition {
    let literal = |kind: &Kind| Literal { negated, kind: kind.clone() };
    if negated {
        return clauses
            .into_iter()
            .map(|mut clause| {
                clause.extend(alternatives.iter().map(literal));
                clause
            })
            .collect();
    }
    let mut out: Condition = Vec::new();
    for clause in clauses {
        for kind in alternatives {
            let mut one = clause.clone();
            one.push(literal(kind));
            out.push(one);
        }
    }
    bounded(out)
}

fn negate(condition: Condition) -> Condition {
    let mut out: Condition = vec![Vec::new()];
    for clause in condition {
        let mut next = Vec::new();
        for one in &out {
            for literal in &clause {
                let mut one = one.clone();
                one.push(Literal { negated: !literal.negated, kind: literal.kind.clone() });
                next.push(one);
            }
        }
        out = bounded(next);
    }
    out
}

/// A condition with too many alternatives is one that cannot be converted.
fn bounded(condition: Condition) -> Condition {
    if condition.len() <= ALTERNATIVES {
        return condition;
    }
    let kind =
        Kind::Unsupported("its condition has too many alternatives: write the routes by hand".to_owned());
    vec![vec![Literal { negated: false, kind }]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::haproxy::parse::parse;

    struct NoFiles;

    impl Files for NoFiles {
        fn read(&self, path: &str) -> Result<String, String> {
            Err(path.to_owned())
        }

        fn glob(&self, _: &str) -> Vec<String> {
            Vec::new()
        }
    }

    #[test]
    fn conditions_are_alternatives() {
        let text = "frontend f\n acl a method GET\n acl a method PUT\n acl b method POST\n http-request deny if a !b or { method X }\n \
                    http-request deny unless a b\n";
        let sections = parse("h.cfg", text, &|_| None).unwrap();
        let mut marks = Marks::default();
        let acls = Acls::of(&sections[0], &NoFiles, &mut marks);
        let of = |line: usize| {
            let condition = acls.condition(&sections[0].lines[line], 2, &NoFiles, &mut Marks::default());
            condition
                .iter()
                .map(|clause| clause.iter().map(|literal| literal.negated).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        assert_eq!(of(3), [vec![false, true], vec![false, true], vec![false]]);
        assert_eq!(of(4).len(), 4);
    }
}
