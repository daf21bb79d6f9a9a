//! `auth.jwt` as it is written.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawSecret;
use crate::raw::scalars::RawText;
use crate::read::at::At;
use crate::read::{Named, OneOrMany, mapping};

mapping! {
    /// User tokens (JWT), verified with one of jwks, secret and public_key.
    "auth.jwt"
    struct RawJwt {
        /// The header with the token; in Authorization it follows `Bearer`. Default: Authorization.
        #[schemars(with = "Option<hints::Header>")]
        header: RawText,
        /// The required issuer: the exact value of the claim `iss`.
        issuer: RawText,
        /// Accepted audiences: the claim `aud` must contain one of them.
        audience: OneOrMany<At<RawText>>,
        /// The issuer's public keys as a JWK set.
        jwks: RawJwks,
        /// A secret shared with the issuer, of at least 32 bytes: HS256, HS384, HS512.
        secret: RawSecret,
        /// The issuer's public key: PEM, -----BEGIN PUBLIC KEY-----.
        public_key: RawSecret,
        /// The claim that identifies the user. Default: sub.
        user_claim: RawText,
        /// The claim that contains the plan of the user. Default: none.
        plan_claim: RawText,
        /// The tolerated difference between the clocks of the issuer and the gateway. Default: 30s.
        #[schemars(with = "Option<hints::Duration>")]
        leeway: RawText,
        /// Whether a token must have the claim `exp`. Default: true.
        require_exp: bool,
        /// Whether a request without a valid token is answered 401. Default: false.
        required: bool,
        /// Claims that are forwarded to the upstream as headers: {X-User: sub}. Headers of these names from clients
        /// are removed.
        forward: Named<At<RawText>>,
    }
}

mapping! {
    /// A JWK set: in a file, which is watched, or where the issuer serves it.
    "auth.jwt.jwks"
    struct RawJwks {
        /// The file.
        file: RawText,
        /// The URL: https://…, or http:// on this machine only.
        url: RawText,
        /// The interval between two fetches of the URL. Default: 10min.
        #[schemars(with = "Option<hints::Duration>")]
        refresh: RawText,
        /// The authorities that sign the server's certificate: a PEM file. Default: those of the system.
        ca: RawText,
    }
}
