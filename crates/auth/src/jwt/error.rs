//! Why a token does not hold.

/// Why a request is refused because of its token, or because it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// There is none.
    Missing,
    /// It is longer than any token is.
    TooLong,
    /// There are several.
    Several,
    /// It is not written as a token is.
    Malformed,
    /// It is not signed with a key of the issuer, or not as that key signs.
    Untrusted,
    /// The issuer's keys are not known yet.
    NoKeys,
    /// It has expired.
    Expired,
    /// It does not say when it expires.
    Endless,
    /// Its time has not come.
    Early,
    /// It is of another issuer.
    Issuer,
    /// It is for another audience.
    Audience,
    /// Its issuer says that it is not active.
    Inactive,
}

impl TokenError {
    /// What clients are told: enough to mend it, nothing of keys or settings.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Missing => "this route needs a token, and the request carries none",
            Self::TooLong => "the token is longer than 8 KiB",
            Self::Several => "the request carries more than one token",
            Self::Malformed => "the token is malformed",
            Self::Untrusted => "the token is not signed with a key that is trusted here",
            Self::NoKeys => "tokens cannot be verified at the moment",
            Self::Expired => "the token has expired",
            Self::Endless => "the token does not say when it expires",
            Self::Early => "the token is not valid yet",
            Self::Issuer => "the token is of another issuer",
            Self::Audience => "the token is for another audience",
            Self::Inactive => "the token is not active",
        }
    }
}
