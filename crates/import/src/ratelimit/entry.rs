//! What an entry of a descriptor is in the gateway.

use std::collections::BTreeMap;

/// What keys of descriptors are in the gateway, where the owner of the files says so: keys of a limit, such as `header:X-Tenant`.
pub type Meanings = BTreeMap<String, String>;

/// What a key of a descriptor means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A key of a limit, such as `ip` or `header:X-Tenant`.
    Key(String),
    /// The path, which routes match.
    Path,
    /// The host, which routes match.
    Host,
    /// A text that Envoy's configuration of a route sends.
    Constant,
}

impl Meaning {
    /// The meaning of a key, and whether it is a guess from its name; `None` if it has no conventional meaning.
    pub(super) fn of(key: &str, meanings: &Meanings) -> Option<(Self, bool)> {
        if let Some(meant) = meanings.get(key) {
            let meaning = match meant.as_str() {
                "path" => Self::Path,
                "host" => Self::Host,
                _ => Self::Key(meant.clone()),
            };
            return Some((meaning, false));
        }
        let known = match key {
            "remote_address" | "masked_remote_address" => Self::Key("ip".to_owned()),
            "path" | ":path" => Self::Path,
            "host" | "authority" | ":authority" => Self::Host,
            "method" | ":method" => Self::Key("method".to_owned()),
            "generic_key" | "header_match" | "query_match" | "destination_cluster" | "source_cluster" => {
                Self::Constant
            }
            _ => return is_header(key).then(|| (Self::Key(format!("header:{key}")), true)),
        };
        Some((known, matches!(key, "path" | "host" | "method")))
    }

    /// The key of a limit that counts its values apart.
    pub(super) fn key(&self) -> &str {
        match self {
            Self::Key(key) => key,
            Self::Path => "path",
            Self::Host => "host",
            Self::Constant => "global",
        }
    }
}

/// Whether a key looks like the name of a header: letters, digits and hyphens, with at least one hyphen.
fn is_header(key: &str) -> bool {
    let name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (key.contains('-') || key.eq_ignore_ascii_case("authorization"))
        && key.chars().all(name)
        && !key.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_a_conventional_name_have_a_meaning() {
        let of = |key: &str| {
            Meaning::of(key, &Meanings::new()).map(|(meaning, guessed)| (meaning.key().to_owned(), guessed))
        };
        assert_eq!(of("remote_address"), Some(("ip".into(), false)));
        assert_eq!(of("x-tenant"), Some(("header:x-tenant".into(), true)));
        assert_eq!(of("path"), Some(("path".into(), true)));
        assert_eq!((of("database"), of("user_id"), of("-")), (None, None, None));
        let meant = Meanings::from([("user_id".to_owned(), "jwt:sub".to_owned())]);
        assert_eq!(Meaning::of("user_id", &meant), Some((Meaning::Key("jwt:sub".into()), false)));
    }
}
