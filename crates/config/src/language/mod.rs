//! The small languages inside values: rates, durations, patterns, templates, keys.

pub(crate) mod calendar;
pub(crate) mod host_name;
pub(crate) mod http_url;
pub(crate) mod key_part;
pub(crate) mod match_regex;
pub(crate) mod network;
pub(crate) mod normal_path;
pub(crate) mod paths;
pub(crate) mod pattern;
pub(crate) mod percent;
pub(crate) mod query_match;
pub(crate) mod secret;
pub(crate) mod template;
pub(crate) mod values;
