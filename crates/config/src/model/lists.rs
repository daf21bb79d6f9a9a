//! The model of address lists, and which clients a route admits.

use ipnet::IpNet;
use serde::Serialize;

use crate::model::reference::Reference;
use crate::read::at::FileRef;
use crate::read::report::Place;

/// A list of addresses with a name.
#[derive(Clone, Debug)]
pub struct ListConfig {
    /// Its name.
    pub name: String,
    /// The position of its name.
    pub at: Place,
    /// The source of its networks.
    pub source: ListSource,
}

/// The source of the networks of a list.
#[derive(Clone, Debug)]
pub enum ListSource {
    /// They are written in gateway.yaml.
    Networks(Vec<IpNet>),
    /// They are in a separate file.
    File(FileRef),
}

/// Which clients a route admits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Access {
    /// Clients on one of these lists are refused.
    pub deny: Vec<Reference>,
    /// If not empty, only clients on one of these lists are admitted.
    pub allow: Vec<Reference>,
}

impl ListConfig {
    /// The file of its networks; `None` if they are written in gateway.yaml.
    pub const fn file(&self) -> Option<&FileRef> {
        match &self.source {
            ListSource::Networks(_) => None,
            ListSource::File(file) => Some(file),
        }
    }
}
