//! The families of headers that a layer sends.

/// The families of headers that a layer sends; all of them by default. A family that a response of the service has already is
/// left as it is: the limits behind this layer are the more special ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFamilies {
    pub(crate) x_ratelimit: bool,
    pub(crate) ietf: bool,
    pub(crate) retry_after: bool,
}

impl HeaderFamilies {
    /// No headers.
    pub const NONE: Self = Self { x_ratelimit: false, ietf: false, retry_after: false };
    /// All headers.
    pub const ALL: Self = Self { x_ratelimit: true, ietf: true, retry_after: true };

    /// With X-RateLimit-Limit, -Remaining and -Reset, and X-RateLimit-Retry-After of refusals.
    #[must_use]
    pub const fn x_ratelimit(self) -> Self {
        Self { x_ratelimit: true, ..self }
    }

    /// With RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers).
    #[must_use]
    pub const fn ietf(self) -> Self {
        Self { ietf: true, ..self }
    }

    /// With Retry-After of refusals.
    #[must_use]
    pub const fn retry_after(self) -> Self {
        Self { retry_after: true, ..self }
    }
}

impl Default for HeaderFamilies {
    fn default() -> Self {
        Self::ALL
    }
}
