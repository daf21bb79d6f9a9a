//! A configuration with what its files hold.

use std::ops::Deref;
use std::sync::Arc;

use super::limit_files::LimitFileStamps;
use super::limitador::LimitadorLimits;
use super::rls::RlsLimits;
use sluicegate_auth::Consumers;
use sluicegate_auth::jwt::KeySet;
use sluicegate_auth::lists::AddressList;
use sluicegate_base::tls::{ListenerFiles, UpstreamTls};
use sluicegate_config::{Config, ConsumersConfig, ListConfig};
use sluicegate_limiter::Division;

/// A valid configuration with what its files hold.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// What gateway.yaml says.
    pub config: Arc<Config>,
    /// What the other files hold.
    pub resources: Resources,
    /// The part of each limit that the gateway's region has now, in the order of [`Config::limits`]; empty where the parts
    /// are those of the file.
    pub divisions: Vec<Option<Division>>,
}

/// What the files of a configuration hold.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    /// The known API keys; `None` if any key is accepted.
    pub consumers: Option<Arc<Consumers>>,
    /// The lists of addresses, in the order of [`Config::lists`].
    pub lists: Vec<Arc<AddressList>>,
    /// The certificates of listeners, in the order of [`Config::listeners`]; `None` for one without TLS.
    pub listeners: Vec<Option<ListenerFiles>>,
    /// Limits for other proxies, which ask by Envoy's rate limit service; `None` if there are none.
    pub rls: Option<Arc<RlsLimits>>,
    /// Limits for other proxies, which ask as they ask limitador; `None` if there are none.
    pub limitador: Option<Arc<LimitadorLimits>>,
    /// The files of both before they were read.
    pub limit_files: LimitFileStamps,
    /// The keys that tokens are verified with; `None` if they are fetched, or if there are no tokens.
    pub token_keys: Option<Arc<KeySet>>,
    /// TLS to upstreams, in the order of [`Config::upstreams`]; `None` for one without.
    pub upstreams: Vec<Option<UpstreamTls>>,
}

impl LoadedConfig {
    /// The settings of consumers, and the known consumers; `None` if any API key is accepted.
    pub fn known_consumers(&self) -> Option<(&ConsumersConfig, &Consumers)> {
        self.config.api_key.consumers.as_ref().zip(self.resources.consumers.as_deref())
    }

    /// The part of a limit that the gateway's region has now, if there are several regions.
    pub fn division(&self, limit: usize) -> Option<Division> {
        self.divisions.get(limit).copied().unwrap_or(self.config.limits[limit].division)
    }

    /// The lists of addresses with their content.
    pub fn all_lists(&self) -> impl Iterator<Item = (&ListConfig, &AddressList)> {
        self.config.lists.iter().zip(self.resources.lists.iter().map(|list| &**list))
    }
}

impl Deref for LoadedConfig {
    type Target = Config;

    #[inline]
    fn deref(&self) -> &Config {
        &self.config
    }
}
