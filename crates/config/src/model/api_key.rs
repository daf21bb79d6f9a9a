//! How API keys are read, and who they belong to.

use http::HeaderName;
use serde::Serialize;

use crate::model::serialize::text_or_null;
use crate::read::at::FileRef;

/// API keys: their place in a request, and their consumers.
#[derive(Clone, Debug, Serialize)]
pub struct ApiKeyConfig {
    /// Where a request has its key.
    #[serde(flatten)]
    pub source: ApiKeySource,
    /// The known keys; if `None`, any key is accepted.
    #[serde(flatten)]
    pub consumers: Option<ConsumersConfig>,
}

/// The known API keys.
#[derive(Clone, Debug, Serialize)]
pub struct ConsumersConfig {
    /// The file of the keys.
    #[serde(rename = "consumers")]
    pub file: FileRef,
    /// Whether a request without one is answered 401.
    pub required: bool,
    /// Whether the upstream is told whose key it was.
    pub forward: bool,
}

/// Where the API key is: in a header, in a query parameter, or in either.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ApiKeySource {
    /// The header.
    #[serde(serialize_with = "text_or_null", skip_serializing_if = "Option::is_none")]
    pub header: Option<HeaderName>,
    /// The query parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}
