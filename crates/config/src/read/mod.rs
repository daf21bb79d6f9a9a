//! Converts the YAML tree into raw values. Every mapping reports unknown and repeated keys and reads the others.

pub(crate) mod at;
pub(crate) mod env;
pub(crate) mod foreign;
pub(crate) mod nearest;
pub(crate) mod redact;
pub(crate) mod report;
pub(crate) mod suggest;
pub(crate) mod syntax;
pub(crate) mod yaml_tree;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::read::at::At;
use crate::read::nearest::nearest;
use crate::read::report::{Mistake, Report};
use crate::read::yaml_tree::{Node, Value};

/// A type that can be read from a YAML node. If `None` is returned, the reason is in the report.
pub(crate) trait Read: Sized {
    fn read(node: &Node, report: &mut Report) -> Option<Self>;
}

/// A mapping whose keys are chosen by the user, in the file's order; `None` for a value that is wrong, so that its
/// name is known all the same.
#[derive(Clone, Debug)]
pub(crate) struct Named<T>(pub(crate) Vec<(At<String>, Option<T>)>);

/// A single value or a list of them.
#[derive(Clone, Debug)]
pub(crate) struct OneOrMany<T>(pub(crate) Vec<T>);

impl<T: Read> Read for At<T> {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        Some(Self { at: node.at, value: T::read(node, report)? })
    }
}

impl Read for String {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        text(node, "a value", report)
    }
}

impl Read for bool {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(text) if text.eq_ignore_ascii_case("true") => Some(true),
            Value::Scalar(text) if text.eq_ignore_ascii_case("false") => Some(false),
            _ => wrong_kind(node, "true or false", report),
        }
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::List(items) => {
                let read: Vec<T> = items.iter().filter_map(|item| T::read(item, report)).collect();
                (items.is_empty() || !read.is_empty()).then_some(read) // of nothing but mistakes: no list at all
            }
            Value::Scalar(text) => wrong(node, "a list", Some(format!("write [{text}]")), report),
            Value::Map(_) => wrong(
                node,
                "a list",
                Some("a list has `- ` before each item, or brackets around them".to_owned()),
                report,
            ),
            Value::Null | Value::Wrong => wrong_kind(node, "a list", report),
        }
    }
}

impl<T: Read> Read for OneOrMany<T> {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::List(_) => Vec::read(node, report).map(Self),
            _ => Some(Self(vec![T::read(node, report)?])),
        }
    }
}

impl<T: Read> Read for Named<T> {
    fn read(node: &Node, report: &mut Report) -> Option<Self> {
        if let Value::List(_) | Value::Null = &node.value {
            let help = "write each with its name before it, `NAME: …`, or leave the field out";
            return wrong(node, "a mapping of names", Some(help.to_owned()), report);
        }
        let entries = entries(node, "a mapping of names", report)?;
        Some(Self(entries.into_iter().map(|(key, value)| (key, T::read(value, report))).collect()))
    }
}

/// The node's single value.
pub(crate) fn text(node: &Node, expected: &str, report: &mut Report) -> Option<String> {
    match &node.value {
        Value::Scalar(text) => Some(text.clone()),
        Value::Map(entries) => {
            // YAML reads `header: X-Tenant` as a mapping; the user meant header:X-Tenant.
            let help = match entries.as_slice() {
                [(Node { value: Value::Scalar(kind), .. }, Node { value: Value::Scalar(name), .. })]
                    if ["header", "query", "cookie", "path"].contains(&kind.as_str()) =>
                {
                    Some(format!("write {kind}:{name}, without a space"))
                }
                _ => None,
            };
            wrong(node, expected, help, report)
        }
        _ => wrong_kind(node, expected, report),
    }
}

/// The node's single value, read by `parse`, whose mistake is reported at the node.
pub(crate) fn parsed<T, E: Into<Mistake>>(
    node: &Node,
    expected: &str,
    report: &mut Report,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    let text = text(node, expected, report)?;
    parse(&text).map_err(|mistake| report.error(mistake.into().at(node.at))).ok()
}

pub(crate) fn wrong_kind<T>(node: &Node, expected: &str, report: &mut Report) -> Option<T> {
    wrong(node, expected, None, report)
}

/// Reports a value of the wrong kind, unless it is reported already.
pub(crate) fn wrong<T>(node: &Node, expected: &str, help: Option<String>, report: &mut Report) -> Option<T> {
    if !matches!(node.value, Value::Wrong) {
        let message = format!("expected {expected}, found {}", node.kind());
        report.error(Mistake { message, help }.at(node.at));
    }
    None
}

/// The entries of a mapping; a key given twice is an error at the second place.
pub(crate) fn entries<'a>(
    node: &'a Node,
    expected: &str,
    report: &mut Report,
) -> Option<Vec<(At<String>, &'a Node)>> {
    let Value::Map(map) = &node.value else {
        let help = expected.strip_suffix(" (a mapping)").and_then(|what| foreign::scalar(what, node));
        return wrong(node, expected, help, report);
    };
    let mut entries: Vec<(At<String>, &Node)> = Vec::with_capacity(map.len());
    let mut lines: HashMap<String, u64> = HashMap::with_capacity(map.len());
    for (key, value) in map {
        let Some(name) = At::<String>::read(key, report) else { continue };
        match lines.entry(name.value.clone()) {
            Entry::Occupied(line) => report.error(
                name.problem(format!("`{}` is given twice", name.value))
                    .help(format!("the first one is on line {}; keep one of them", line.get())),
            ),
            Entry::Vacant(line) => {
                line.insert(name.at.line);
                entries.push((name, value));
            }
        }
    }
    Some(entries)
}

/// Pushed to `wrong` for a key that nobody knows: the mapping may mean something else than what could be read of it.
const UNKNOWN: &str = "?";

/// Reports an unknown key. Returns the field that was probably meant.
pub(crate) fn unknown_key(
    (key, value): (&At<String>, &Node),
    all: &[(At<String>, &Node)],
    what: &str,
    fields: &[&'static str],
    report: &mut Report,
) -> &'static str {
    if let Some((count, period, rate)) = foreign::rate(what, all)
        && [count.at, period.at].contains(&key.at)
    {
        if key.at == count.at {
            let message = format!("unknown keys `{}` and `{}` in {what}", count.value, period.value);
            report.error(key.problem(message).help(format!("write `rate: {rate}`")));
        }
        return "rate";
    }
    let problem = key.problem(format!("unknown key `{}` in {what}", key.value));
    let of_another = foreign::key(what, &key.value, value);
    // Two mappings can have one name: `tls` of a listener and of an upstream.
    let of_another = of_another.filter(|meant| meant.field.is_empty() || fields.contains(&meant.field));
    if let Some(meant) = of_another {
        report.error(problem.help(meant.help));
        return if meant.field.is_empty() { UNKNOWN } else { meant.field };
    }
    let meant = nearest(&key.value, fields.iter().copied());
    report.error(match meant {
        Some(name) => problem.help(format!("did you mean `{name}`?")),
        None => problem.help(foreign::otherwise(what, &key.value, fields)),
    });
    meant.unwrap_or(UNKNOWN)
}

/// Declares a mapping of the file: a struct, its reader and its JSON Schema.
macro_rules! mapping {
    ($(#[$meta:meta])* $what:literal struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident $(= $key:literal)? : $ty:ty),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
        pub(crate) struct $name {
            #[cfg_attr(feature = "schema", schemars(skip))]
            #[allow(dead_code, reason = "not every mapping is named in an error of its own")]
            pub(crate) at: crate::read::report::Place,
            /// Fields that are given and wrong: they are reported, and none of them is missing.
            #[cfg_attr(feature = "schema", schemars(skip))]
            #[allow(dead_code, reason = "not every mapping has fields that can be missing")]
            pub(crate) wrong: Vec<&'static str>,
            $(
                $(#[cfg_attr(feature = "schema", $field_meta)])*
                $(#[cfg_attr(feature = "schema", schemars(rename = $key))])?
                pub(crate) $field: Option<crate::read::at::At<$ty>>,
            )*
        }

        impl $name {
            pub(crate) fn empty(at: crate::read::report::Place) -> Self {
                Self { at, wrong: Vec::new(), $($field: None),* }
            }
        }

        impl crate::read::Read for $name {
            fn read(node: &crate::read::yaml_tree::Node, report: &mut crate::read::report::Report) -> Option<Self> {
                use crate::read::{Read, entries, unknown_key};

                const FIELDS: &[&str] = &[$(mapping!(@key $field $($key)?)),*];
                let mut mapping = Self::empty(node.at);
                let all = entries(node, concat!($what, " (a mapping)"), report)?;
                for (key, value) in &all {
                    match key.value.as_str() {
                        $(mapping!(@key $field $($key)?) => {
                            mapping.$field = Read::read(value, report);
                            if mapping.$field.is_none() {
                                mapping.wrong.push(mapping!(@key $field $($key)?));
                            }
                        })*
                        _ => mapping.wrong.push(unknown_key((key, value), &all, $what, FIELDS, report)),
                    }
                }
                Some(mapping)
            }
        }
    };
    (@key $field:ident $key:literal) => { $key };
    (@key $field:ident) => { stringify!($field) };
}

/// Declares values that are written as one field of a mapping alone, or as the mapping. Without `$expected`, the
/// mapping itself reports what it is not.
macro_rules! shorthand {
    ($($(#[$meta:meta])* $name:ident($fields:ident.$field:ident) $($expected:literal)?;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub(crate) struct $name(pub(crate) $fields);

        impl crate::read::Read for $name {
            fn read(node: &crate::read::yaml_tree::Node, report: &mut crate::read::report::Report) -> Option<Self> {
                match &node.value {
                    crate::read::yaml_tree::Value::Scalar(_) => {
                        let $field = Some(crate::read::Read::read(node, report)?);
                        Some(Self($fields { $field, ..$fields::empty(node.at) }))
                    }
                    $(kind if !matches!(kind, crate::read::yaml_tree::Value::Map(_)) => {
                        crate::read::wrong_kind(node, $expected, report)
                    })?
                    _ => $fields::read(node, report).map(Self),
                }
            }
        }
    )*};
}

/// Whether a field of a mapping is given and wrong: it is reported, and not missing.
macro_rules! is_wrong {
    ($mapping:expr, $field:ident) => {{
        let _ = &$mapping.$field; // a name that is no field does not compile
        $mapping.wrong.contains(&stringify!($field))
    }};
}

pub(crate) use {is_wrong, mapping, shorthand};
