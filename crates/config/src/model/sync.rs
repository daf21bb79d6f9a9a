//! How a shared limit is counted.

use serde::Serialize;
use sluicegate_leases::ErrorBudget;

/// How a shared limit is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sync {
    /// Whether tokens are leased.
    pub mode: SyncMode,
    /// The part of the rate's count that may be paid for and not spent.
    #[serde(serialize_with = "percent")]
    pub budget: ErrorBudget,
    /// Whether leases may admit nothing above the limit.
    pub strict: bool,
    /// The least number of gateways that share the store.
    #[serde(skip)]
    pub gateways: u32,
}

/// Whether tokens are leased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncMode {
    /// Where the limit is large enough.
    Auto,
    /// The store decides about each request.
    #[default]
    Exact,
    /// Tokens are leased.
    Leased,
}

impl SyncMode {
    /// The modes with their names in the file.
    pub const WORDS: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("exact", Self::Exact), ("leased", Self::Leased)];
}

fn percent<S: serde::Serializer>(budget: &ErrorBudget, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}%", f64::from(budget.millionths()) / 1e4))
}
