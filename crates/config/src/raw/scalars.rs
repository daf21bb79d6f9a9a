//! Single values as they are written.

use crate::language::values;
#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::read::at::At;
use crate::read::report::{Problem, Report};
use crate::read::yaml_tree::{Node, Value};
use crate::read::{Read, mapping, parsed, wrong_kind};

/// A value in one of the file's small languages (a rate, a duration, a key); read when all is known.
pub(crate) type RawText = String;

/// A whole number: 20, 10k, 1M.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawCount(pub(crate) u64);

/// A secret: the value itself, or `{file: PATH}`.
#[derive(Clone, Debug)]
pub(crate) enum RawSecret {
    Value(String),
    File(At<String>),
}

mapping! {
    /// A value that is read from a file.
    "a secret"
    struct RawSecretFile {
        /// The file that contains the value.
        #[schemars(required, with = "hints::File")]
        file: RawText,
    }
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

#[cfg(feature = "schema")]
crate::raw::schema_types::schemas! {
    RawCount, "Count" => _generator crate::raw::hints::number(crate::raw::hints::COUNT, &[]);
    RawSecret, "Secret" => generator crate::raw::hints::text_or::<RawSecretFile>(".*", generator);
}
