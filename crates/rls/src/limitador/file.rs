//! A limits file of limitador. All its mistakes are reported together, each with its place.

use sluicegate_config::{Place, Problem, Report, YamlNode, YamlValue, nearest, parse_yaml};

use super::expression::{Condition, Variable};

const FIELDS: &[&str] = &["id", "namespace", "max_value", "seconds", "name", "conditions", "variables"];
/// The longest window: 365 days.
const MAX_SECONDS: u64 = 31_536_000;
/// The most hits of a window.
const MAX_VALUE: u64 = 1_000_000_000;

/// A limit.
#[derive(Clone, Debug)]
pub struct Limit {
    /// The namespace whose requests it concerns.
    pub namespace: String,
    /// The hits of a window. 0 refuses all.
    pub max_value: u64,
    /// The length of a window.
    pub seconds: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its conditions as the file writes them.
    pub written_conditions: Vec<String>,
    /// Its variables as the file writes them.
    pub written_variables: Vec<String>,
    pub(super) conditions: Vec<Condition>,
    pub(super) variables: Vec<Variable>,
    /// Where it stands.
    pub at: Place,
}

/// The limits of a file, and everything that is wrong with it. `None` if something is.
pub fn parse(text: &str, report: &mut Report) -> Option<Vec<Limit>> {
    let before = report.errors.len();
    let tree = parse_yaml(text).map_err(|problem| report.error(problem)).ok()?;
    let items: &[YamlNode] = match &tree.value {
        YamlValue::List(items) => items,
        YamlValue::Null => &[],
        _ => {
            let text = format!("expected a list of limits, found {}", tree.kind());
            report.error(Problem::new(tree.at, text).help("each limit has namespace, max_value and seconds"));
            &[]
        }
    };
    let limits: Vec<Limit> = items.iter().filter_map(|item| limit(item, report)).collect();
    report.sort();
    (report.errors.len() == before).then_some(limits)
}

fn limit(node: &YamlNode, report: &mut Report) -> Option<Limit> {
    let YamlValue::Map(entries) = &node.value else {
        report.error(Problem::new(node.at, format!("expected a limit (a mapping), found {}", node.kind())));
        return None;
    };
    let mut fields: Vec<(&str, &YamlNode)> = Vec::new();
    for (key, value) in entries {
        let YamlValue::Scalar(name) = &key.value else {
            report.error(Problem::new(key.at, "a key of a mapping must be a text"));
            continue;
        };
        if fields.iter().any(|(known, _)| known == name) {
            report.error(Problem::new(key.at, format!("`{name}` is given twice")));
        } else if FIELDS.contains(&name.as_str()) {
            fields.push((name, value));
        } else {
            let near = nearest(name, FIELDS.iter().copied());
            let help = near.map_or_else(
                || format!("a limit has: {}", FIELDS.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            report.error(Problem::new(key.at, format!("unknown key `{name}` in a limit")).help(help));
        }
    }
    let get = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, node)| *node);
    let namespace = text(get("namespace"), node, "namespace", report)?;
    let max_value = number(get("max_value"), node, "max_value", 0..=MAX_VALUE, report);
    let seconds = number(get("seconds"), node, "seconds", 1..=MAX_SECONDS, report);
    let name = get("name").and_then(|name| text(Some(name), node, "name", report));
    let (written_conditions, conditions) =
        expressions(get("conditions"), "conditions", Condition::parse_all, report);
    let (written_variables, variables) = expressions(
        get("variables"),
        "variables",
        |text| Variable::parse(text).map(|variable| vec![variable]),
        report,
    );
    Some(Limit {
        namespace,
        max_value: max_value?,
        seconds: seconds?,
        name,
        written_conditions,
        written_variables,
        conditions,
        variables,
        at: node.at,
    })
}

fn text(node: Option<&YamlNode>, limit: &YamlNode, name: &str, report: &mut Report) -> Option<String> {
    match node.map(|node| (&node.value, node)) {
        Some((YamlValue::Scalar(text), _)) if !text.is_empty() => Some(text.clone()),
        Some((YamlValue::Wrong, _)) => None,
        Some((_, node)) => {
            report.error(Problem::new(node.at, format!("`{name}` must be a text, found {}", node.kind())));
            None
        }
        None => {
            report.error(Problem::new(limit.at, format!("the limit has no `{name}`")));
            None
        }
    }
}

fn number(
    node: Option<&YamlNode>,
    limit: &YamlNode,
    name: &str,
    range: std::ops::RangeInclusive<u64>,
    report: &mut Report,
) -> Option<u64> {
    let text = text(node, limit, name, report)?;
    let number = text.parse().ok().filter(|number| range.contains(number));
    if number.is_none() {
        let at = node.map_or(limit.at, |node| node.at);
        let message =
            format!("`{name}` is a whole number from {} to {}, not `{text}`", range.start(), range.end());
        report.error(Problem::new(at, message));
    }
    number
}

/// A list of expressions: as they are written, and read.
fn expressions<T>(
    node: Option<&YamlNode>,
    name: &str,
    parse: impl Fn(&str) -> Result<Vec<T>, String>,
    report: &mut Report,
) -> (Vec<String>, Vec<T>) {
    let (mut written, mut read) = (Vec::new(), Vec::new());
    let items: &[YamlNode] = match node.map(|node| (&node.value, node)) {
        None | Some((YamlValue::Null | YamlValue::Wrong, _)) => &[],
        Some((YamlValue::List(items), _)) => items,
        Some((_, node)) => {
            report.error(Problem::new(node.at, format!("`{name}` is a list, found {}", node.kind())));
            &[]
        }
    };
    for item in items {
        let YamlValue::Scalar(text) = &item.value else {
            report.error(Problem::new(item.at, format!("expected an expression, found {}", item.kind())));
            continue;
        };
        match parse(text) {
            Ok(parsed) => {
                written.push(text.clone());
                read.extend(parsed);
            }
            Err(why) => report.error(Problem::new(item.at, why)),
        }
    }
    (written, read)
}
