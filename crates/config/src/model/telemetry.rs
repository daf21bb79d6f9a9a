//! Traces and metrics that the gateway sends by itself.

use std::time::Duration;

use http::HeaderName;
use serde::Serialize;

use crate::language::http_url::HttpUrl;
use crate::language::secret::Secret;
use crate::model::serialize::{authorities, by_name, seconds};
use crate::read::at::FileContent;

/// A collector of OpenTelemetry that is told as OTLP/JSON over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OtlpConfig {
    /// Where it is.
    pub url: HttpUrl,
    /// The authorities that are trusted; `None` for those of the system.
    #[serde(serialize_with = "authorities")]
    pub ca: Option<FileContent>,
    /// Headers of each request to it.
    #[serde(serialize_with = "by_name")]
    pub headers: Vec<(HeaderName, Secret)>,
    /// Whether a span is sent for each request of a sampled trace.
    pub traces: bool,
    /// Whether metrics are sent.
    pub metrics: bool,
    /// How often metrics are sent.
    #[serde(serialize_with = "seconds")]
    pub interval: Duration,
    /// How long an answer may take.
    #[serde(serialize_with = "seconds")]
    pub timeout: Duration,
    /// The name of the gateway there.
    pub service_name: String,
    /// The number of spans that may wait.
    pub queue: usize,
}
