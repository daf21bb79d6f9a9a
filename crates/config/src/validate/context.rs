//! What limits and routes refer to in other sections.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

use super::section::Section;
use super::template::Names;
use crate::HeaderChange;
use crate::model::cors::CorsConfig;
use crate::model::limit::LimitConfig;
use crate::model::listener::ListenerConfig;
use crate::model::lists::{Access, ListConfig};
use crate::model::route::HeaderFamilies;
use crate::model::store::RedisConfig;
use crate::model::upstream::UpstreamConfig;
use crate::read::at::Folder;

/// The other sections that limits refer to.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) lists: &'a Section<ListConfig>,
    pub(super) store: bool,
    /// The store, if it is valid.
    pub(super) redis: Option<&'a RedisConfig>,
    /// The least number of gateways that share the store.
    pub(super) gateways: u32,
    pub(super) consumers: bool,
    /// Whether requests are checked outside: the answer may name a consumer and a plan.
    pub(super) checked: bool,
    /// Whether tokens are verified or asked about.
    pub(super) tokens: bool,
    /// Where the paths of files start from.
    pub(super) folder: Folder<'a>,
    /// Whether a listener verifies clients' certificates.
    pub(super) certified: bool,
}

/// What routes refer to.
pub(super) struct Known<'a> {
    pub(super) listeners: &'a Section<ListenerConfig>,
    pub(super) lists: &'a Section<ListConfig>,
    /// The access rules of the file.
    pub(super) access: &'a Access,
    pub(super) limits: &'a Section<LimitConfig>,
    pub(super) upstreams: &'a Section<UpstreamConfig>,
    pub(super) headers: HeaderFamilies,
    /// Which pages may read answers.
    pub(super) cors: Option<&'a Arc<CorsConfig>>,
    pub(super) max_body: Option<u64>,
    /// From a request's head to the last byte of its answer.
    pub(super) timeout: Option<Duration>,
    /// What templates can name.
    pub(super) names: Names<'a>,
    /// Headers in which the upstream is told of users.
    pub(super) claim_headers: &'a [HeaderName],
    /// Whether requests are checked outside.
    pub(super) checked: bool,
    /// Headers that are changed on all routes.
    pub(super) requests: &'a [HeaderChange],
    pub(super) answers: &'a [HeaderChange],
    /// Whether shared counters live on several servers.
    pub(super) in_cluster: bool,
}
