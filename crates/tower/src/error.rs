//! Why a layer cannot be built.

use std::fmt;

use sluicegate_limiter::QuotaError;

/// Why a layer cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A layer without limits.
    NoLimits,
    /// A name that headers cannot carry.
    Name(String),
    /// Two limits of this name.
    SameName(String),
    /// No limit of the layer has this name.
    UnknownLimit(String),
    /// The numbers of a limit are out of range.
    Quota {
        /// The limit.
        limit: String,
        /// What is wrong with them.
        error: QuotaError,
    },
    /// A leaky bucket delays requests, and a layer has no timer.
    Delays(String),
    /// A setting that the algorithm of the limit does not have.
    Setting {
        /// The limit.
        limit: String,
        /// The setting.
        setting: &'static str,
        /// The algorithm of the limit.
        algorithm: &'static str,
    },
    /// A constant cost that no request could pay.
    Cost {
        /// The limit.
        limit: String,
        /// The cost.
        cost: u64,
        /// The largest cost that the limit can admit.
        capacity: u64,
    },
    /// A limit for no keys.
    NoKeys(String),
    /// The key of a limit is not valid.
    Key {
        /// The limit.
        limit: String,
        /// What is wrong with the key.
        problem: String,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLimits => write!(f, "a layer needs at least one limit"),
            Self::Name(name) => {
                write!(
                    f,
                    "{name:?} is not a name of a limit: write visible ASCII characters without \" and \\"
                )
            }
            Self::SameName(name) => write!(f, "two limits are named {name:?}"),
            Self::UnknownLimit(name) => write!(f, "no limit is named {name:?}"),
            Self::Quota { limit, error } => write!(f, "limit {limit:?}: {error}"),
            Self::Delays(limit) => write!(
                f,
                "limit {limit:?}: a leaky_bucket delays requests, which this layer does not do; a token_bucket refuses them"
            ),
            Self::Setting { limit, setting, algorithm } => {
                write!(f, "limit {limit:?}: {algorithm} has no {setting}")
            }
            Self::Cost { limit, cost, capacity } => {
                write!(
                    f,
                    "limit {limit:?}: no request can pay a cost of {cost}, because the limit holds {capacity}"
                )
            }
            Self::NoKeys(limit) => write!(f, "limit {limit:?}: max_keys must be at least 1"),
            Self::Key { limit, problem } => write!(f, "limit {limit:?}: {problem}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Quota { error, .. } => Some(error),
            _ => None,
        }
    }
}
