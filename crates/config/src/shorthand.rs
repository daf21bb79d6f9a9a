//! Values that may be written in more than one form.

use super::at::At;
use super::raw::{RawBanFields, RawCostFields, RawListFile, RawPlanFields, RawSecretFile};
use super::raw_balance::RawRetriesFields;
use super::raw_listen::{RawDrainFields, RawListenerFields};
use super::raw_route::{RawRedirectFields, RawRespond};
use super::raw_upstream::RawServerFields;
use super::read::{Read, parsed, shorthand, text, wrong, wrong_kind};
use super::report::{Problem, Report};
use super::values;
use super::yaml_tree::{Node, Value};

shorthand! {
    /// A listener: `0.0.0.0:8080`, or a mapping.
    RawListener(RawListenerFields.address);
    /// A server: a URL, or a mapping.
    RawServer(RawServerFields.url);
    /// A redirect: a URL, or a mapping.
    RawRedirect(RawRedirectFields.to);
    /// The time that a drain may take, or a mapping.
    RawDrain(RawDrainFields.deadline) "a duration or {delay: DURATION, deadline: DURATION}";
    /// The duration of a ban, or a mapping.
    RawBan(RawBanFields.span) "a duration or {after: N, within: DURATION, for: DURATION}";
    /// A number of attempts, or a mapping.
    RawRetries(RawRetriesFields.attempts) "a number or {attempts: N, budget: SHARE}";
}

/// A secret: the value itself, or `{file: PATH}`.
#[derive(Clone, Debug)]
pub(super) enum RawSecret {
    Value(String),
    File(At<String>),
}

/// A list of addresses: networks, or `{file: PATH}`.
#[derive(Clone, Debug)]
pub(super) enum RawList {
    Networks(Vec<At<String>>),
    File(At<String>),
}

/// Proxies that are trusted: an address, a network, `list:NAME`, or `{file: PATH}`.
#[derive(Clone, Debug)]
pub(super) enum RawProxy {
    Text(At<String>),
    File(At<String>),
}

/// A whole number: 20, 10k, 1M.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawCount(pub(super) u64);

/// A cost: a number, `header:NAME`, or a mapping.
#[derive(Clone, Debug)]
pub(super) enum RawCost {
    Text(String),
    Fields(Box<RawCostFields>),
}

/// The numbers of a limit for some requests: a rate, a number of places, or a mapping.
#[derive(Clone, Debug)]
pub(super) struct RawPlan(pub(super) RawPlanFields);

/// An answer of the gateway itself: a mapping, or `usage`.
#[derive(Clone, Debug)]
pub(super) enum RawAnswer {
    Fixed(Box<RawRespond>),
    Usage,
}

impl Read for RawCount {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        parsed(node, "a number", report, values::count).map(Self)
    }
}

impl Read for RawSecret {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(text) => Some(Self::Value(text.clone())),
            Value::Null => Some(Self::Value(String::new())),
            Value::Map(_) => {
                let before = report.errors.len();
                let raw = RawSecretFile::read(node, report)?;
                if raw.file.is_none() && report.errors.len() == before {
                    report.error(Problem::new(node.at, "a secret is a value or {file: PATH}"));
                }
                raw.file.map(Self::File)
            }
            _ => wrong_kind(node, "a value or {file: PATH}", report),
        }
    }
}

impl Read for RawList {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Map(_) => {
                list_file(node, "a list is networks, [10.0.0.0/8], or {file: PATH}", report).map(Self::File)
            }
            Value::Scalar(text) => {
                let help =
                    match text.parse::<ipnet::IpNet>().is_ok() || text.parse::<std::net::IpAddr>().is_ok() {
                        true => format!("write [{text}]"),
                        false => format!("write {{file: {text}}} for what stands in a file"),
                    };
                wrong(node, "networks or {file: PATH}", Some(help), report)
            }
            Value::List(items) => {
                let read: Vec<_> = items.iter().map(|item| At::read(item, report)).collect();
                read.into_iter().collect::<Option<_>>().map(Self::Networks)
            }
            _ => wrong_kind(node, "networks or {file: PATH}", report),
        }
    }
}

impl Read for RawProxy {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let Value::Map(entries) = &node.value else { return At::read(node, report).map(Self::Text) };
        // YAML reads `list: cdn` as a mapping; the user meant list:cdn.
        if let [(Node { value: Value::Scalar(kind), .. }, Node { value: Value::Scalar(name), .. })] =
            entries.as_slice()
            && kind == "list"
        {
            let help = format!("write list:{name}, without a space");
            return wrong(node, "a network, list:NAME or {file: PATH}", Some(help), report);
        }
        list_file(node, "expected a network, list:NAME or {file: PATH}", report).map(Self::File)
    }
}

/// The file of `{file: PATH}`; `otherwise` is told if there is none.
fn list_file(node: &Node, otherwise: &str, report: &mut Report) -> Option<At<String>> {
    let before = report.errors.len();
    let raw = RawListFile::read(node, report)?;
    if raw.file.is_none() && report.errors.len() == before {
        report.error(Problem::new(node.at, otherwise));
    }
    raw.file
}

impl Read for RawCost {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        if let Value::Map(entries) = &node.value {
            // YAML reads `header: X-Cost` as a mapping; the user meant header:X-Cost.
            let meant = matches!(entries.as_slice(), [(Node { value: Value::Scalar(kind), .. }, _)] if kind == "header");
            if !meant {
                return RawCostFields::read(node, report).map(|fields| Self::Fields(Box::new(fields)));
            }
        }
        text(node, "a number, header:NAME or a mapping", report).map(Self::Text)
    }
}

impl Read for RawPlan {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        let Value::Scalar(text) = &node.value else {
            return RawPlanFields::read(node, report).map(Self);
        };
        let mut fields = RawPlanFields::empty(node.at);
        match values::count(text) {
            Ok(places) => fields.max = Some(At { at: node.at, value: RawCount(places) }),
            Err(_) => fields.rate = Some(At { at: node.at, value: text.clone() }),
        }
        Some(Self(fields))
    }
}

impl Read for RawAnswer {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(text) if text == "usage" => Some(Self::Usage),
            Value::Scalar(text) if text.parse::<u16>().is_ok() => {
                wrong(node, "respond (a mapping)", Some(format!("write {{status: {text}}}")), report)
            }
            _ => RawRespond::read(node, report).map(|fields| Self::Fixed(Box::new(fields))),
        }
    }
}
