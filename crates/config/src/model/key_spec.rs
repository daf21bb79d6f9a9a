//! What a limit counts separately, as the `key` of a limit says it.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::language::key_part::{Part, PartSource};

/// The key of a limit: the combination of all these parts, each the first of its alternatives that the request has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    all: Vec<Vec<Part>>,
}

impl KeySpec {
    /// A key of these parts: all together, each the first of its alternatives.
    pub fn new(all: Vec<Vec<Part>>) -> Self {
        Self { all }
    }

    /// All parts that are mentioned.
    #[inline]
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.all.iter().flatten()
    }

    /// Whether all requests have the same key.
    pub fn is_constant(&self) -> bool {
        self.parts().all(|part| part.source() == PartSource::Nothing)
    }

    /// The parts that a key consists of, each as a list of alternatives: the first that a request has is used.
    #[inline]
    pub fn alternatives(&self) -> &[Vec<Part>] {
        &self.all
    }
}

impl Serialize for KeySpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// As the file writes it: `api_key | ip`, or `[ip, path]`.
impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = |alternatives: &Vec<Part>| {
            alternatives.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ")
        };
        let all: Vec<String> = self.all.iter().map(texts).collect();
        match all.as_slice() {
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}
