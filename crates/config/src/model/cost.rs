//! What requests spend.

use http::{HeaderName, Method};
use serde::{Serialize, Serializer};
use serde_json::{Map, json};

/// How the file writes the number that the external check answers.
pub(crate) const CHECKED: &str = "check:cost";

/// What a request spends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Always the same.
    Constant(u64),
    /// A whole number in a request header; 1 where it is missing or no number.
    Header(HeaderName),
    /// The number that the external check answers; 1 where it names none.
    Check,
    /// The hits with which another proxy asks.
    Hits,
    /// By what the request is, and by what comes of it.
    Detailed(Box<DetailedCost>),
}

/// What a request spends, by what it is and by what comes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetailedCost {
    /// For the request itself.
    pub request: u64,
    /// A request header whose number stands for `request`.
    pub request_header: Option<HeaderName>,
    /// Whether the number that the external check answers stands for `request`.
    pub request_check: bool,
    /// For requests with these methods, instead.
    pub methods: Vec<(Method, u64)>,
    /// Only answers with these statuses cost anything, first to last; empty for all.
    pub status: Vec<(u16, u16)>,
    /// A header of the answer, whose number is charged too.
    pub response_header: Option<HeaderName>,
    /// For requests of the routes with these names, instead of any of these.
    pub routes: Vec<(String, u64)>,
    /// Whether the bytes of the request's body are charged too.
    pub request_bytes: bool,
    /// Whether the bytes of the answer's body are charged too.
    pub response_bytes: bool,
    /// The reserve: charged before the response is known; `None` for the cost of the request itself.
    pub reserve: Option<u64>,
}

impl Cost {
    /// The request header that says what it spends.
    #[inline]
    pub fn request_header(&self) -> Option<&HeaderName> {
        match self {
            Self::Constant(_) | Self::Check | Self::Hits => None,
            Self::Header(name) => Some(name),
            Self::Detailed(cost) => cost.request_header.as_ref(),
        }
    }

    /// Whether the external check says what it spends.
    pub fn is_checked(&self) -> bool {
        match self {
            Self::Constant(_) | Self::Header(_) | Self::Hits => false,
            Self::Check => true,
            Self::Detailed(cost) => cost.request_check,
        }
    }

    /// What a request spends on the route of this name, if that differs from others.
    #[inline]
    pub fn on_route(&self, name: &str) -> Option<u64> {
        let Self::Detailed(cost) = self else { return None };
        cost.routes.iter().find(|(route, _)| route == name).map(|(_, cost)| *cost)
    }
}

impl DetailedCost {
    /// Whether it is only known when the answer is there.
    #[inline]
    pub fn settles(&self) -> bool {
        !self.status.is_empty() || self.response_header.is_some() || self.request_bytes || self.response_bytes
    }
}

impl Serialize for Cost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let from_header = |name: &HeaderName| format!("header:{name}");
        let cost = match self {
            Self::Constant(cost) => return serializer.serialize_u64(*cost),
            Self::Header(name) => return serializer.serialize_str(&from_header(name)),
            Self::Check => return serializer.serialize_str(CHECKED),
            Self::Hits => return serializer.serialize_str("hits"),
            Self::Detailed(cost) => cost,
        };
        let methods = cost.methods.iter().map(|(method, cost)| (method.to_string(), json!(cost)));
        let routes = cost.routes.iter().map(|(route, cost)| (route.clone(), json!(cost)));
        let value = json!({
            "request": match &cost.request_header {
                Some(name) => json!(from_header(name)),
                None if cost.request_check => json!(CHECKED),
                None => json!(cost.request),
            },
            "methods": methods.collect::<Map<_, _>>(),
            "status": cost.status,
            "response_header": cost.response_header.as_ref().map(HeaderName::as_str),
            "routes": routes.collect::<Map<_, _>>(),
            "bytes": match (cost.request_bytes, cost.response_bytes) {
                (true, true) => Some("both"),
                (true, false) => Some("request"),
                (false, true) => Some("response"),
                (false, false) => None,
            },
            "reserve": cost.reserve,
        });
        value.serialize(serializer)
    }
}
