//! Lists of addresses as they are written.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawText;
use crate::read::at::At;
use crate::read::report::{Problem, Report};
use crate::read::yaml_tree::{Node, Value};
use crate::read::{Read, mapping, wrong, wrong_kind};

/// A list of addresses: networks, or `{file: PATH}`.
#[derive(Clone, Debug)]
pub(crate) enum RawList {
    Networks(Vec<At<String>>),
    File(At<String>),
}

/// Proxies that are trusted: an address, a network, `list:NAME`, or `{file: PATH}`.
#[derive(Clone, Debug)]
pub(crate) enum RawProxy {
    Text(At<String>),
    File(At<String>),
}

mapping! {
    /// A list of addresses in a file.
    "a list"
    struct RawListFile {
        /// The file, with one address or network per line.
        #[schemars(required, with = "hints::File")]
        file: RawText,
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

#[cfg(feature = "schema")]
crate::raw::schema_types::schemas! {
    RawProxy, "Proxy" => generator crate::raw::hints::text_or::<RawListFile>(&format!("{}|list:.+", crate::raw::hints::network()), generator);
    RawList, "List" => generator {
        let network = crate::raw::hints::text(&crate::raw::hints::network(), &["192.0.2.0/24", "2001:db8::/32"]);
        let file = generator.subschema_for::<RawListFile>();
        schemars::json_schema!({ "anyOf": [{ "type": "array", "items": network }, file] })
    };
}
