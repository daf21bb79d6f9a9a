//! What is stored of a verified token with a request that is delivered later.

use serde::{Deserialize, Serialize};

/// What is kept of a verified token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredToken {
    /// Who the user is.
    pub user: Option<String>,
    /// The plan of the user.
    pub plan: Option<String>,
    /// Claims that keys ask for.
    pub claims: Vec<(String, String)>,
    /// Headers that the upstream gets.
    pub forward: Vec<(String, String)>,
}
