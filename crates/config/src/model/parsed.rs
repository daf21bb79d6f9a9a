//! What is understood of a text.

use crate::model::Config;
use crate::model::route::Match;
use crate::read::at::At;

/// What a text describes, as far as it can be understood.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The configuration. It is valid only if the report has no errors.
    pub config: Config,
    /// The names and matches of all routes whose `match` is understood, in the order of the file.
    pub matches: Vec<(At<String>, Match)>,
}
