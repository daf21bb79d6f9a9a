//! References from one part of the configuration to another.

use serde::{Serialize, Serializer};

/// A reference by name. Two of the same configuration are equal if they lead to the same thing.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The index in the list of [`Config`](crate::Config) that holds things of this kind.
    pub index: usize,
    /// The name.
    pub name: String,
}

impl PartialEq for Reference {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl Eq for Reference {}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}
