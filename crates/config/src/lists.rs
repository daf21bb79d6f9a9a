//! Lists of addresses as they are meant, and whom a route lets in.

use ipnet::IpNet;

use super::at::FileRef;
use super::report::Place;

/// A list of addresses with a name.
#[derive(Clone, Debug)]
pub struct ListConfig {
    /// Its name.
    pub name: String,
    /// Where its name stands.
    pub at: Place,
    /// Where its networks are.
    pub source: ListSource,
}

/// Where the networks of a list are.
#[derive(Clone, Debug)]
pub enum ListSource {
    /// In gateway.yaml.
    Networks(Vec<IpNet>),
    /// In a file of their own.
    File(FileRef),
}

/// Whom a route lets in. The lists are indices into [`Config::lists`](super::Config::lists).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Nobody on any of these.
    pub deny: Vec<usize>,
    /// Of the others those on any of these; empty for all.
    pub allow: Vec<usize>,
}

impl ListConfig {
    /// The file of its networks; `None` if they stand in gateway.yaml.
    pub const fn file(&self) -> Option<&FileRef> {
        match &self.source {
            ListSource::Networks(_) => None,
            ListSource::File(file) => Some(file),
        }
    }
}
