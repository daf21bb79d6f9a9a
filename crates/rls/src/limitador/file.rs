//! A limits file of limitador. All its mistakes are reported together, each with its place.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use sluicegate_config::{Mistake, Problem, Report, YamlNode, YamlValue, nearest, parse_yaml};

use super::expression::{Condition, Variable};
use crate::wire::decode::MAX_KEY;

const FIELDS: [&str; 7] = ["namespace", "max_value", "seconds", "conditions", "variables", "name", "id"];
/// The longest window: 366 days.
const MAX_SECONDS: u64 = 366 * 86_400;
/// The most hits of a window.
const MAX_VALUE: u64 = 1_000_000_000;

/// A limit.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Its id, if it has one.
    pub id: Option<String>,
    /// The namespace whose requests it concerns.
    pub namespace: String,
    /// The hits of a window. 0 refuses all.
    pub max_value: u32,
    /// The length of a window.
    pub seconds: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its conditions, with their texts in the file, in the order of these.
    pub conditions: Vec<(String, Vec<Condition>)>,
    /// Its variables, with their texts in the file, in the order of these.
    pub variables: Vec<(String, Variable)>,
}

impl Limit {
    /// What makes it the same limit over reloads: all but its maximum, its name and its id.
    pub fn identity(&self) -> String {
        let conditions = self.conditions.iter().map(|(text, _)| text);
        let parts = conditions.chain(self.variables.iter().map(|(text, _)| text));
        parts.fold(format!("{}.{}s", self.namespace, self.seconds), |text, part| text + "." + part)
    }
}

/// The limits of a file, and everything that is wrong with it. `None` if something is.
pub fn parse(text: &str, report: &mut Report) -> Option<Vec<Limit>> {
    let before = report.errors.len();
    let tree = parse_yaml(text).map_err(|problem| report.error(problem)).ok()?;
    let items: &[YamlNode] = match &tree.value {
        YamlValue::List(items) => items,
        // A file that is being written, or that nothing was written to, must not remove all limits.
        YamlValue::Null => {
            let help = "write `[]` for a file without limits";
            report.error(Problem::new(tree.at, "the file is empty").help(help));
            &[]
        }
        _ => {
            let text = format!("expected a list of limits, found {}", tree.kind());
            report.error(Problem::new(tree.at, text).help("each limit has namespace, max_value and seconds"));
            &[]
        }
    };
    let (mut limits, mut lines) = (Vec::with_capacity(items.len()), HashMap::new());
    for item in items {
        let Some(limit) = limit(item, report) else { continue };
        if let Some(line) = lines.insert(limit.identity(), item.at.line) {
            let text = format!("the limit is there twice, first in line {line}");
            let help = "limits with the same namespace, seconds, conditions and variables are one; remove one of them";
            report.error(Problem::new(item.at, text).help(help));
        }
        limits.push(limit);
    }
    report.sort();
    (report.errors.len() == before).then_some(limits)
}

fn limit(node: &YamlNode, report: &mut Report) -> Option<Limit> {
    let YamlValue::Map(entries) = &node.value else {
        report.error(Problem::new(node.at, format!("expected a limit (a mapping), found {}", node.kind())));
        return None;
    };
    let mut fields: HashMap<&str, &YamlNode> = HashMap::new();
    for (key, value) in entries {
        let YamlValue::Scalar(name) = &key.value else {
            report.error(Problem::new(key.at, "a key of a mapping must be a text"));
            continue;
        };
        if !FIELDS.contains(&name.as_str()) {
            let near = nearest(name, FIELDS).map(|near| format!("did you mean `{near}`?"));
            let help = near.unwrap_or_else(|| format!("a limit has: {}", FIELDS.join(", ")));
            report.error(Problem::new(key.at, format!("unknown key `{name}` in a limit")).help(help));
        } else if fields.insert(name, value).is_some() {
            report.error(Problem::new(key.at, format!("`{name}` is given twice")));
        }
    }
    let get = |name| (name, fields.get(name).copied().filter(|node| !matches!(node.value, YamlValue::Null)));
    let namespace = required(get("namespace"), node, report);
    if let Some(long) = namespace.as_ref().filter(|namespace| namespace.len() > MAX_KEY) {
        let text = format!("`namespace` has {} bytes; requests have at most {MAX_KEY}", long.len());
        report.error(Problem::new(node.at, text));
    }
    let max_value = number(get("max_value"), node, 0..=MAX_VALUE, report);
    let seconds = number(get("seconds"), node, 1..=MAX_SECONDS, report);
    let (id, name) = (text(get("id"), report), text(get("name"), report));
    let conditions = expressions(get("conditions"), Condition::parse_all, report);
    let variables = expressions(get("variables"), Variable::parse, report);
    Some(Limit {
        id,
        namespace: namespace?,
        max_value: u32::try_from(max_value?).ok()?,
        seconds: seconds?,
        name,
        conditions,
        variables,
    })
}

/// A field of a limit: its name and value.
type Field<'t> = (&'static str, Option<&'t YamlNode>);

/// The text of a field, if it is there.
fn text((name, node): Field<'_>, report: &mut Report) -> Option<String> {
    let node = node?;
    match &node.value {
        YamlValue::Scalar(text) if !text.is_empty() => return Some(text.clone()),
        YamlValue::Wrong => {}
        YamlValue::Scalar(_) => report.error(Problem::new(node.at, format!("`{name}` must not be empty"))),
        _ => {
            let text = format!("`{name}` must be a single value, found {}", node.kind());
            report.error(Problem::new(node.at, text));
        }
    }
    None
}

fn required(field: Field<'_>, limit: &YamlNode, report: &mut Report) -> Option<String> {
    if field.1.is_none() {
        report.error(Problem::new(limit.at, format!("the limit has no `{}`", field.0)));
    }
    text(field, report)
}

fn number(
    field: Field<'_>,
    limit: &YamlNode,
    range: RangeInclusive<u64>,
    report: &mut Report,
) -> Option<u64> {
    let text = required(field, limit, report)?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()); // no sign
    let number = text.parse().ok().filter(|number| is_plain && range.contains(number));
    if number.is_none() {
        let (name, at) = (field.0, field.1.map_or(limit.at, |node| node.at));
        let message =
            format!("`{name}` is a whole number from {} to {}, not `{text}`", range.start(), range.end());
        report.error(Problem::new(at, message));
    }
    number
}

/// A list of expressions with their texts, in the order of these: the order of the file means nothing.
fn expressions<T>(
    (name, node): Field<'_>,
    parse: impl Fn(&str) -> Result<T, Mistake>,
    report: &mut Report,
) -> Vec<(String, T)> {
    let items: &[YamlNode] = match node.map(|node| (&node.value, node)) {
        None | Some((YamlValue::Wrong, _)) => &[],
        Some((YamlValue::List(items), _)) => items,
        Some((_, node)) => {
            let text = format!("`{name}` must be a list, found {}", node.kind());
            let problem = Problem::new(node.at, text);
            report.error(match &node.value {
                YamlValue::Scalar(text) => problem.help(format!("such as `{name}: [\"{text}\"]`")),
                _ => problem,
            });
            &[]
        }
    };
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        let YamlValue::Scalar(text) = &item.value else {
            report.error(Problem::new(item.at, format!("expected an expression, found {}", item.kind())));
            continue;
        };
        match parse(text) {
            Ok(expression) => all.push((text.clone(), expression)),
            Err(mistake) => report.error(mistake.at(item.at)),
        }
    }
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}
