//! Lists of addresses as they are meant, and whom a route lets in.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::model::Exempt;
use crate::lists::AddressList;

/// A list of addresses with a name.
#[derive(Clone, Debug)]
pub struct ListConfig {
    /// Its name.
    pub name: String,
    /// The file that it stands in; `None` if it stands in gateway.yaml.
    pub file: Option<PathBuf>,
    /// Who is on it.
    pub known: Arc<AddressList>,
}

/// Whom a route lets in. The lists are indices into [`Config::lists`](super::Config::lists).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Nobody on any of these.
    pub deny: Vec<usize>,
    /// Of the others those on any of these; empty for all.
    pub allow: Vec<usize>,
}

impl Access {
    /// Whether a client is let in.
    pub fn admits(&self, lists: &[ListConfig], client: IpAddr) -> bool {
        let is_on = |list: &usize| lists[*list].known.contains(client);
        !self.deny.iter().any(is_on) && (self.allow.is_empty() || self.allow.iter().any(is_on))
    }
}

impl Exempt {
    /// Whether a client's address is left alone.
    pub fn covers(&self, lists: &[ListConfig], client: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&client))
            || self.lists.iter().any(|list| lists[*list].known.contains(client))
    }
}
