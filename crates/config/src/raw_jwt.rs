//! `auth.jwt` as it is written.

use super::at::At;
#[cfg(feature = "schema")]
use super::hints;
use super::raw::RawText;
use super::read::{Named, OneOrMany, mapping};
use super::shorthand::RawSecret;

mapping! {
    /// User tokens (JWT), verified with one of jwks, secret and public_key.
    "auth.jwt"
    struct RawJwt {
        /// The header that holds the token, in Authorization behind `Bearer`. Default: Authorization.
        #[schemars(with = "Option<hints::Header>")]
        header: RawText,
        /// Who has to have issued the token: its claim iss, character by character.
        issuer: RawText,
        /// For whom it has to be meant: its claim aud names one of these.
        audience: OneOrMany<At<RawText>>,
        /// The issuer's public keys as a JWK set.
        jwks: RawJwks,
        /// A secret shared with the issuer, of at least 32 bytes: HS256, HS384, HS512.
        secret: RawSecret,
        /// The issuer's public key: PEM, -----BEGIN PUBLIC KEY-----.
        public_key: RawSecret,
        /// The claim that says who the user is. Default: sub.
        user_claim: RawText,
        /// The claim that says which plan the user is on. Default: none does.
        plan_claim: RawText,
        /// How far the issuer's clock and this one may differ. Default: 30s.
        #[schemars(with = "Option<hints::Duration>")]
        leeway: RawText,
        /// Whether a token has to say when it expires. Default: true.
        require_exp: bool,
        /// Whether a request without a valid token is answered 401. Default: false.
        required: bool,
        /// Headers that the upstream gets, and the claim in each: {X-User: sub}. Those of clients are removed.
        forward: Named<At<RawText>>,
    }
}

mapping! {
    /// A JWK set: in a file, which is watched, or where the issuer serves it.
    "auth.jwt.jwks"
    struct RawJwks {
        /// The file.
        file: RawText,
        /// https://…; http:// only to this machine.
        url: RawText,
        /// How often the URL is fetched. Default: 10min.
        #[schemars(with = "Option<hints::Duration>")]
        refresh: RawText,
        /// The authorities that sign the server's certificate: a PEM file. Default: those of the system.
        ca: RawText,
    }
}
