//! Services outside of the gateway that say who asks: token introspection and the external check.

use std::time::Duration;

use http::HeaderName;
use serde::{Serialize, Serializer};

use crate::language::http_url::HttpUrl;
use crate::language::secret::Secret;
use crate::model::serialize::{authorities, by_name, seconds, text};
use crate::read::at::FileContent;

/// A service that is asked about requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceConfig {
    /// Where it is.
    pub url: HttpUrl,
    /// The authorities that are trusted; `None` for those of the system.
    #[serde(serialize_with = "authorities")]
    pub ca: Option<FileContent>,
    /// How long an answer may take, from the connection to its last byte.
    #[serde(serialize_with = "seconds")]
    pub timeout: Duration,
    /// How much longer a remembered answer is used while the service is away.
    #[serde(serialize_with = "seconds")]
    pub stale: Duration,
    /// What happens to a request while the service is away and nothing usable is remembered.
    pub on_failure: OnFailure,
    /// The most calls at the same time, of the whole process.
    pub max_in_flight: usize,
    /// The most answers that are remembered; of good and of bad ones, each.
    pub max_cached: usize,
}

/// What happens to a request while the service is away and nothing usable is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// It is answered 503.
    Refuse,
    /// It goes on without what the service would have said.
    Anonymous,
    /// As [`Refuse`](Self::Refuse); the name says that remembered answers are used for longer unless `stale` is given.
    Stale,
}

/// Token introspection (RFC 7662).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IntrospectionConfig {
    /// The service.
    #[serde(flatten)]
    pub service: ServiceConfig,
    /// The name of the gateway there.
    pub client_id: String,
    /// The password of the gateway there.
    pub client_secret: Secret,
    /// The header that tokens come in. In `Authorization` they stand behind `Bearer`, elsewhere they need not.
    #[serde(serialize_with = "text")]
    pub header: HeaderName,
    /// The claim that says who the user is.
    pub user_claim: String,
    /// The claim that says which plan the user is on.
    pub plan_claim: Option<String>,
    /// Whether a request without a token is refused.
    pub required: bool,
    /// Headers that the upstream gets, and the claim in each.
    #[serde(serialize_with = "by_name")]
    pub forward: Vec<(HeaderName, String)>,
    /// How long an active token is remembered.
    #[serde(serialize_with = "seconds")]
    pub ttl: Duration,
    /// How long an inactive token is remembered.
    #[serde(serialize_with = "seconds")]
    pub negative_ttl: Duration,
}

/// The external check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckConfig {
    /// The service.
    #[serde(flatten)]
    pub service: ServiceConfig,
    /// The headers of a request that are sent on.
    #[serde(serialize_with = "names")]
    pub headers: Vec<HeaderName>,
    /// How answers are remembered; `None` if each request is checked.
    pub cache: Option<CheckCacheConfig>,
    /// Whether the upstream is told the consumer and the plan.
    pub forward: bool,
}

/// How answers of the external check are remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckCacheConfig {
    /// The headers whose values an answer is for.
    #[serde(serialize_with = "names")]
    pub key: Vec<HeaderName>,
    /// How long an answer is remembered that says nothing itself.
    #[serde(serialize_with = "seconds")]
    pub ttl: Duration,
}

fn names<S: Serializer>(names: &[HeaderName], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(names.iter().map(HeaderName::as_str))
}
