//! The methods that a gRPC request can name in its path.

/// A method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// Envoy: may this request pass? Its hits are counted.
    ShouldRateLimit,
    /// Kuadrant: may this request pass? Nothing is counted.
    CheckRateLimit,
    /// Kuadrant: counts the hits, and refuses nothing.
    Report,
    /// Envoy: external authorization.
    Check,
    /// Whether a service is served.
    HealthCheck,
}

/// The name of Envoy's rate limit service.
pub const RATE_LIMIT: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// The name of Kuadrant's rate limit service, which limitador has.
pub const KUADRANT: &str = "kuadrant.service.ratelimit.v1.RateLimitService";
/// The name of Envoy's authorization service.
pub const AUTHORIZATION: &str = "envoy.service.auth.v3.Authorization";
/// The name of the health service.
pub const HEALTH: &str = "grpc.health.v1.Health";

impl Method {
    /// The method of a path; `None` for all others, which are answered as unimplemented. One of these is `Watch` of the health
    /// service: it is a stream, and callers fall back to `Check`.
    pub fn of(path: &str) -> Option<Self> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        match (service, method) {
            (RATE_LIMIT, "ShouldRateLimit") => Some(Self::ShouldRateLimit),
            (KUADRANT, "CheckRateLimit") => Some(Self::CheckRateLimit),
            (KUADRANT, "Report") => Some(Self::Report),
            (AUTHORIZATION, "Check") => Some(Self::Check),
            (HEALTH, "Check") => Some(Self::HealthCheck),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_have_their_paths() {
        let of = Method::of;
        assert_eq!(
            of("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"),
            Some(Method::ShouldRateLimit)
        );
        assert_eq!(of("/kuadrant.service.ratelimit.v1.RateLimitService/Report"), Some(Method::Report));
        assert_eq!(of("/envoy.service.auth.v3.Authorization/Check"), Some(Method::Check));
        assert_eq!(of("/grpc.health.v1.Health/Check"), Some(Method::HealthCheck));
        assert_eq!(of("/grpc.health.v1.Health/Watch"), None);
        assert_eq!((of("/"), of(""), of("envoy.service.auth.v3.Authorization/Check")), (None, None, None));
    }
}
