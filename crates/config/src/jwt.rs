//! User tokens: where they come from, and what verifies them.

use std::time::Duration;

use http::HeaderName;

use super::at::{At, FileContent, FileRef};
use super::secret::Secret;

/// How user tokens are found and verified.
#[derive(Clone, Debug, PartialEq)]
pub struct JwtConfig {
    /// The header that they come in. In `Authorization` they stand behind `Bearer`, elsewhere they need not.
    pub header: HeaderName,
    /// Who has to have issued them; `None` for anybody with the right key.
    pub issuer: Option<String>,
    /// The accepted audiences; if empty, every audience is accepted.
    pub audience: Vec<String>,
    /// What they are signed with.
    pub keys: JwtKeys,
    /// The claim that says who the user is.
    pub user_claim: String,
    /// The claim that says which plan the user is on.
    pub plan_claim: Option<String>,
    /// How far clocks may differ.
    pub leeway: Duration,
    /// Whether a token has to say when it expires.
    pub require_exp: bool,
    /// Whether a request without a token is refused.
    pub required: bool,
    /// Headers that the upstream gets, and the claim in each.
    pub forward: Vec<(HeaderName, String)>,
}

/// Where the keys are that tokens are signed with.
#[derive(Clone, Debug, PartialEq)]
pub enum JwtKeys {
    /// A secret for HMAC; it changes with gateway.yaml only.
    Secret(At<Secret>),
    /// A public key as PEM; it changes with gateway.yaml only.
    PublicKey(At<Secret>),
    /// A JWK set in a file, which is watched.
    File(FileRef),
    /// A JWK set that the issuer serves.
    Url(JwksUrl),
}

/// A JWK set that the issuer serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwksUrl {
    /// The URL as people are told it, without its query.
    pub text: String,
    /// Whether it is https.
    pub tls: bool,
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query.
    pub path: String,
    /// How often it is fetched.
    pub refresh: Duration,
    /// The authorities that are trusted; `None` for those of the system.
    pub ca: Option<FileContent>,
}

impl JwksUrl {
    /// Whether another URL leads to the same place.
    pub fn is_at(&self, other: &Self) -> bool {
        (self.tls, &self.host, self.port, &self.path) == (other.tls, &other.host, other.port, &other.path)
    }
}
