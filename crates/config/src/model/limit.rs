//! A limit.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use ipnet::IpNet;
use serde::Serialize;
use sluicegate_limiter::{Ban, Division, Quota};

use crate::KeySpec;
use crate::model::cost::Cost;
use crate::model::fair::FairConfig;
use crate::model::identity_rate::IdentityRate;
use crate::model::queue::QueueConfig;
use crate::model::reference::Reference;
use crate::model::serialize::{ban, count, header_names, parts, plans, quota, quota_or_null, scope, texts};
use crate::model::sync::Sync;
use crate::raw::RawLimit;
use crate::read::at::At;

/// A limit.
#[derive(Clone, Debug, Serialize)]
pub struct LimitConfig {
    /// Its name.
    #[serde(skip)]
    pub name: String,
    /// The key: what is counted separately.
    pub key: KeySpec,
    /// Its algorithm and numbers.
    #[serde(flatten, serialize_with = "quota")]
    pub quota: Quota,
    /// Where its rate comes from, if the identity of a request names it; `quota` then has the default.
    pub identity_rate: Option<IdentityRate>,
    /// The time zone in which its days, weeks and months begin, where the file names one.
    pub zone: Option<String>,
    /// Its quotas for plans, by the name of the plan.
    #[serde(serialize_with = "plans")]
    pub plans: Vec<(String, Quota)>,
    /// A second quota that is evaluated but never enforced.
    #[serde(serialize_with = "quota_or_null")]
    pub candidate: Option<Quota>,
    /// The requests that it concerns; `None` for all.
    pub when: Option<When>,
    /// The cost of a request.
    pub cost: Cost,
    /// Whether refusals lead to a ban.
    #[serde(serialize_with = "ban")]
    pub ban: Option<Ban>,
    /// The part of it, in millionths, from which on clients are warned.
    #[serde(serialize_with = "parts")]
    pub warn: Option<u32>,
    /// The quota of the slower lane in which requests above the limit wait.
    #[serde(serialize_with = "quota_or_null")]
    pub penalty: Option<Quota>,
    /// Where requests above it are kept until it admits them.
    pub queue: Option<QueueConfig>,
    /// How it is divided among consumers.
    pub fair: Option<FairConfig>,
    /// Whether it refuses.
    pub mode: Mode,
    /// Requests that it does not count.
    pub exempt: Exempt,
    /// What happens to a request without the key.
    pub on_missing: OnMissing,
    /// Whether it is counted in the store, together with other gateways.
    #[serde(rename = "scope", serialize_with = "scope")]
    pub shared: bool,
    /// Whether requests carry their key in full: for the store, for rules, and for what operators are shown.
    #[serde(skip)]
    pub whole_key: bool,
    /// The part that the gateway's region has, if there are several.
    #[serde(skip)]
    pub division: Option<Division>,
    /// The region with the smallest part, if there are several: what is too small for this one cannot be divided.
    #[serde(skip)]
    pub(crate) smallest_region: Option<Arc<(String, Division)>>,
    /// How it is counted in the store.
    pub sync: Sync,
    /// What happens to requests of a shared limit while the store fails.
    pub on_store_failure: OnStoreFailure,
    /// Maximum number of live counters.
    pub max_keys: usize,
    /// The limit as it is written, with which numbers of rules are read.
    #[serde(skip)]
    pub(crate) written: Arc<RawLimit>,
}

impl LimitConfig {
    /// The names of the plans with numbers of their own, as they are written.
    pub fn plan_names(&self) -> impl Iterator<Item = &At<String>> {
        self.written.plans.iter().flat_map(|plans| &plans.value.0).map(|(name, _)| name)
    }
}

/// Whether a limit refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It refuses.
    Enforce,
    /// It counts and reports what it would have refused.
    Shadow,
    /// It does nothing.
    Off,
}

/// The requests that a limit does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exempt {
    /// Clients at these addresses.
    #[serde(serialize_with = "texts")]
    pub networks: Vec<IpNet>,
    /// Clients on these lists.
    pub lists: Vec<Reference>,
    /// Keys of these values; a composite key is its values joined by commas.
    #[serde(rename = "keys", serialize_with = "count")]
    pub values: Vec<String>,
    /// Consumers of these names.
    pub consumers: Vec<String>,
    /// Those on these plans.
    pub plans: Vec<At<String>>,
}

/// The requests that a limit applies to; all conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct When {
    /// One of these methods; empty for any.
    #[serde(serialize_with = "texts")]
    pub methods: Vec<Method>,
    /// These headers with these values, or with any.
    #[serde(serialize_with = "header_names")]
    pub headers: Vec<(HeaderName, Option<HeaderValue>)>,
    /// A key of one of these values; empty for any.
    #[serde(serialize_with = "count")]
    pub keys: Vec<String>,
}

/// What happens to a request without the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnMissing {
    /// All such requests share one bucket.
    Shared,
    /// The limit does not count it.
    Skip,
    /// It is answered 401.
    Deny,
}

/// What happens to requests of a shared limit while the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnStoreFailure {
    /// They are counted in the process.
    #[default]
    Local,
    /// The limit admits them.
    Open,
    /// They are answered 503.
    Closed,
}

impl OnStoreFailure {
    /// The policies with their names in the file and in metrics, in the order of the variants.
    pub const WORDS: [(&'static str, Self); 3] =
        [("local", Self::Local), ("open", Self::Open), ("closed", Self::Closed)];
}
