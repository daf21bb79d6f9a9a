//! Which pages of other origins may read answers: cross-origin resource sharing (Fetch standard, §3.3).

use serde::{Serialize, Serializer};

/// The rate limit headers. Without them a page that gets a 429 cannot know when to retry.
pub(crate) const EXPOSED: [&str; 7] = [
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-RateLimit-Retry-After",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
];

/// The CORS policy of a route. All values are in the form of header values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CorsConfig {
    /// The origins whose pages may read answers.
    pub origins: Origins,
    /// Whether these pages may send cookies and client certificates.
    pub credentials: bool,
    /// The answer headers that pages may read.
    pub expose: String,
    /// The methods that pages may use; `None` for the one that is asked for.
    pub methods: Option<String>,
    /// The request headers that pages may set; `None` for those that are asked for.
    pub headers: Option<String>,
    /// Seconds for which a browser may remember the answer to a preflight request.
    pub max_age: Option<u64>,
}

/// Origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// All of them.
    Any,
    /// Some of them.
    Listed {
        /// Origins as browsers write them, in order.
        exact: Vec<String>,
        /// All hosts below some.
        below: Vec<Below>,
    },
}

/// The origins of all hosts below one, such as `https://*.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// What stands before the star: `https://`.
    pub scheme: String,
    /// What stands behind it: `.example.com`, or `.example.com:8443`.
    pub rest: String,
}

impl Origins {
    /// Whether an origin, as a browser writes it, is one of these.
    #[inline]
    pub fn admit(&self, origin: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Listed { exact, below } => {
                exact.binary_search_by(|known| known.as_bytes().cmp(origin)).is_ok()
                    || below.iter().any(|below| below.admits(origin))
            }
        }
    }
}

impl Serialize for Origins {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (exact, below) = match self {
            Self::Any => return ["*"].serialize(serializer),
            Self::Listed { exact, below } => (exact, below),
        };
        let below = below.iter().map(|below| format!("{}*{}", below.scheme, below.rest));
        serializer.collect_seq(exact.iter().cloned().chain(below))
    }
}

impl Below {
    fn admits(&self, origin: &[u8]) -> bool {
        let labels = origin
            .strip_prefix(self.scheme.as_bytes())
            .and_then(|origin| origin.strip_suffix(self.rest.as_bytes()));
        let label = |label: &[u8]| {
            let good = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
            !label.is_empty() && label.iter().all(good)
        };
        labels.is_some_and(|labels| labels.split(|b| *b == b'.').all(label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_one_of_a_list_or_below_a_host_of_it() {
        let origins = Origins::Listed {
            exact: vec!["http://localhost:3000".to_owned(), "https://app.example.com".to_owned()],
            below: vec![Below { scheme: "https://".to_owned(), rest: ".example.org:8443".to_owned() }],
        };
        for origin in [
            "https://app.example.com",
            "http://localhost:3000",
            "https://a.example.org:8443",
            "https://a-1.b_2.example.org:8443",
        ] {
            assert!(origins.admit(origin.as_bytes()), "{origin}");
        }
        for origin in [
            "",
            "null",
            "*",
            "http://app.example.com",
            "https://app.example.com:443",
            "https://app.example.com.evil.test",
            "https://evil.test/app.example.com",
            "http://localhost",
            "https://example.org:8443",
            "https://.example.org:8443",
            "https://a..example.org:8443",
            "https://a.example.org",
            "https://evil.test/.example.org:8443",
            "https://evil.test:1.example.org:8443",
            "https://u@a.example.org:8443",
            "https://A.example.org:8443",
        ] {
            assert!(!origins.admit(origin.as_bytes()), "{origin}");
        }
        assert!(Origins::Any.admit(b"null"));
    }
}
