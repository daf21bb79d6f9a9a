//! User tokens as they are meant. No way of printing it tells a secret.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

use crate::auth::jwt::KeySet;

/// How user tokens are found and verified.
#[derive(Clone, Debug, PartialEq)]
pub struct JwtConfig {
    /// The header that they come in. In `Authorization` they stand behind `Bearer`, elsewhere they need not.
    pub header: HeaderName,
    /// Who has to have issued them; `None` for anybody with the right key.
    pub issuer: Option<String>,
    /// For whom they have to be meant, one of these; empty for anybody.
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
    /// One key, a secret or a public one: it changes with gateway.yaml only.
    Fixed(Arc<KeySet>),
    /// A JWK set in a file, which is watched.
    File {
        /// The file.
        path: PathBuf,
        /// What it held when gateway.yaml was read.
        keys: Arc<KeySet>,
    },
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
    /// The authorities that are believed, as PEM; `None` for those of the system.
    pub ca: Option<Vec<u8>>,
}

impl JwksUrl {
    /// Whether another URL leads to the same place.
    pub fn is_at(&self, other: &Self) -> bool {
        (self.tls, &self.host, self.port, &self.path) == (other.tls, &other.host, other.port, &other.path)
    }
}
