//! User tokens: where they come from, and what verifies them.

use std::time::Duration;

use http::HeaderName;
use serde::{Serialize, Serializer};

use crate::language::http_url::HttpUrl;
use crate::language::secret::Secret;
use crate::model::serialize::{authorities, by_name, seconds, text};
use crate::read::at::{At, FileContent, FileRef};

/// How user tokens are found and verified.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JwtConfig {
    /// The header that they come in. In `Authorization` they stand behind `Bearer`, elsewhere they need not.
    #[serde(serialize_with = "text")]
    pub header: HeaderName,
    /// Who has to have issued them; `None` for anybody with the right key.
    pub issuer: Option<String>,
    /// The accepted audiences; if empty, every audience is accepted.
    pub audience: Vec<String>,
    /// What they are signed with.
    #[serde(flatten)]
    pub keys: JwtKeys,
    /// The claim that says who the user is.
    pub user_claim: String,
    /// The claim that says which plan the user is on.
    pub plan_claim: Option<String>,
    /// How far clocks may differ.
    #[serde(serialize_with = "seconds")]
    pub leeway: Duration,
    /// Whether a token has to say when it expires.
    pub require_exp: bool,
    /// Whether a request without a token is refused.
    pub required: bool,
    /// Headers that the upstream gets, and the claim in each.
    #[serde(serialize_with = "by_name")]
    pub forward: Vec<(HeaderName, String)>,
}

/// Where the keys are that tokens are signed with.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JwtKeys {
    /// A secret for HMAC; it changes with gateway.yaml only.
    #[serde(rename = "key")]
    Secret(At<Secret>),
    /// A public key as PEM; it changes with gateway.yaml only.
    #[serde(rename = "key")]
    PublicKey(At<Secret>),
    /// A JWK set in a file, which is watched.
    #[serde(rename = "jwks", serialize_with = "in_file")]
    File(FileRef),
    /// A JWK set that the issuer serves.
    #[serde(rename = "jwks")]
    Url(JwksUrl),
}

/// A JWK set that the issuer serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JwksUrl {
    /// Where it is.
    pub url: HttpUrl,
    /// How often it is fetched.
    #[serde(serialize_with = "seconds")]
    pub refresh: Duration,
    /// The authorities that are trusted; `None` for those of the system.
    #[serde(serialize_with = "authorities")]
    pub ca: Option<FileContent>,
}

fn in_file<S: Serializer>(file: &FileRef, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map([("file", file)])
}
