//! What is understood of a text.

use super::at::At;
use super::model::Config;
use super::route::Match;

/// What a text describes, as far as it can be understood.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The configuration. It is valid only if the report has no errors.
    pub config: Config,
    /// The names and matches of all routes whose `match` is understood, in the order of the file.
    pub matches: Vec<(At<String>, Match)>,
}
