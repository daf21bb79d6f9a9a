//! Paths with an encoded slash (`%2F`): which route takes them, and what the slash means there.

use std::borrow::Cow;

use super::{RouteQuery, RouteTable};
use sluicegate_config::{EncodedSlash, PathError, normalize, normalize_encoded_slashes};

/// The path of a request as the route that takes it understands it.
#[derive(Debug, PartialEq, Eq)]
pub struct NormalPath<'a> {
    /// The path in normal form, by which it is routed and forwarded.
    pub path: Cow<'a, str>,
    /// The path with slashes in place of encoded ones, if these stay encoded. The upstream may decode them, so the limits that a path in
    /// this form has apply, too.
    pub decoded: Option<String>,
}

impl RouteTable {
    /// The normal form of a path as the client wrote it. `query` is the rest of the request.
    ///
    /// # Errors
    /// If servers could read the path in more than one way. With encoded slashes: if the first route that matches with or without
    /// decoding them does not accept that.
    #[inline]
    pub fn normal_path<'a>(
        &self,
        path: &'a str,
        query: &RouteQuery<'_>,
    ) -> Result<NormalPath<'a>, PathError> {
        match normalize(path) {
            Ok(path) => Ok(NormalPath { path, decoded: None }),
            Err(PathError::EncodedSlash) => self.with_encoded_slashes(path, query),
            Err(error) => Err(error),
        }
    }

    #[cold]
    fn with_encoded_slashes(
        &self,
        path: &str,
        query: &RouteQuery<'_>,
    ) -> Result<NormalPath<'static>, PathError> {
        let (kept, decoded) = normalize_encoded_slashes(path)?;
        let find = |path, meaning| {
            let (index, _) = self.find(&RouteQuery { path, ..*query })?;
            let own = self.encoded_slash(index);
            (own == EncodedSlash::Refused || own == meaning).then_some((index, own))
        };
        let as_kept = find(&kept, EncodedSlash::Kept);
        let as_decoded = find(&decoded, EncodedSlash::Decoded);
        match as_kept.into_iter().chain(as_decoded).min_by_key(|(index, _)| *index) {
            Some((_, EncodedSlash::Kept)) => {
                Ok(NormalPath { path: Cow::Owned(kept), decoded: Some(decoded) })
            }
            Some((_, EncodedSlash::Decoded)) => Ok(NormalPath { path: Cow::Owned(decoded), decoded: None }),
            Some((_, EncodedSlash::Refused)) | None => Err(PathError::EncodedSlash),
        }
    }
}
