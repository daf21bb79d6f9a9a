//! Files of other programs with limits for other proxies.

use std::path::PathBuf;

use serde::Serialize;

use crate::model::limit::LimitConfig;
use crate::read::at::At;

/// Files of limits for other proxies, and what all of these limits have in common.
#[derive(Clone, Debug, Serialize)]
pub struct LimitFiles {
    /// The files.
    pub files: Vec<LimitFile>,
    /// What all limits of these files have in common.
    #[serde(flatten)]
    pub(crate) template: Box<LimitConfig>,
}

/// A file of limits, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitFile {
    /// The folder that the files are in.
    pub folder: PathBuf,
    /// The name of the file; a `*` stands for any characters.
    pub name: String,
    /// As the configuration writes it.
    pub written: At<String>,
}

/// Limits for other proxies, which ask by Envoy's rate limit service.
#[derive(Clone, Debug, Serialize)]
pub struct RlsConfig {
    /// Files of envoyproxy/ratelimit.
    #[serde(flatten)]
    pub limits: LimitFiles,
    /// What is done with the hits of a refused request.
    pub over_limit: OverLimit,
}

/// What is done with the hits of a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OverLimit {
    /// Each descriptor counts for itself, and hits above a limit count, too.
    Charge,
    /// All descriptors are one decision: a refusal charges none.
    Keep,
}

/// Limits for other proxies, which ask as they ask limitador.
#[derive(Clone, Debug, Serialize)]
pub struct LimitadorConfig {
    /// Limits files of limitador.
    #[serde(flatten)]
    pub limits: LimitFiles,
    /// Whether answers over gRPC have rate limit headers for the client.
    pub response_headers: bool,
}

impl Serialize for LimitFile {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(serializer)
    }
}

impl LimitFile {
    /// Whether this is one of the files, by its name.
    pub fn is_named(&self, name: &str) -> bool {
        let mut pieces = self.name.split('*');
        let Some(mut rest) = name.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
        let Some(last) = pieces.next_back() else { return rest.is_empty() };
        for piece in pieces {
            match rest.find(piece) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }

    /// Whether it can be several files.
    pub fn is_pattern(&self) -> bool {
        self.name.contains('*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::report::Place;

    #[test]
    fn a_star_stands_for_any_characters() {
        let is_named = |pattern: &str, name: &str| {
            let written = At { at: Place::START, value: String::new() };
            LimitFile { folder: PathBuf::new(), name: pattern.to_owned(), written }.is_named(name)
        };
        for (pattern, name) in
            [("a.yaml", "a.yaml"), ("*.yaml", "a.yaml"), ("*", ""), ("a*b*c", "abbc"), ("a*", "a")]
        {
            assert!(is_named(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("a.yaml", "a.yaml.swp"), ("*.yaml", "a.yaml~"), ("a*a", "a"), ("a*b*c", "acb"), ("", "a")]
        {
            assert!(!is_named(pattern, name), "{pattern} {name}");
        }
    }
}
