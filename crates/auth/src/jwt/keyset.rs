//! The keys that tokens are signed with. A key says which algorithms it is for; a token only picks among them.

use std::fmt;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

use super::token::{Token, algorithm_of};
use crate::remembered::hash;

/// Bits of the moduli that are accepted: fewer are broken too soon, more are slow to verify.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// The algorithms of an RSA key that names none.
const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// Keys from one source.
#[derive(Clone)]
pub struct KeySet {
    /// Tells sets apart: a hash of what they were read from.
    id: [u8; 32],
    keys: Vec<Key>,
}

#[derive(Clone)]
struct Key {
    /// What tokens name it by.
    name: Name,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// How tokens name a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    /// In any way: it is the only one.
    Any,
    /// Not at all.
    None,
    /// By this.
    Kid(String),
}

/// Why there is no key for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// The set does not know the key that the token names.
    Unknown,
    /// The key, or each that it could be, is not for the token's algorithm; or more than one is.
    Unfit,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

impl PartialEq for KeySet {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl KeySet {
    /// No keys: every token is refused.
    pub fn empty() -> Self {
        Self { id: [0; 32], keys: Vec::new() }
    }

    /// A secret shared with the issuer. It is for the algorithms whose hash is no longer than it is (RFC 7518 §3.2).
    ///
    /// # Errors
    /// When it is shorter than any.
    pub fn secret(secret: &[u8]) -> Result<Self, String> {
        let all = [(32, Algorithm::HS256), (48, Algorithm::HS384), (64, Algorithm::HS512)];
        let algorithms: Vec<Algorithm> = all
            .iter()
            .filter(|(length, _)| secret.len() >= *length)
            .map(|(_, algorithm)| *algorithm)
            .collect();
        if algorithms.is_empty() {
            return Err(format!("a secret for tokens has at least 32 bytes, this one has {}", secret.len()));
        }
        Ok(Self::single(secret, algorithms, DecodingKey::from_secret(secret)))
    }

    /// A public key in PEM; its type says which algorithms it is for.
    ///
    /// # Errors
    /// When it is none that tokens are signed with.
    pub fn public_key(pem: &[u8]) -> Result<Self, String> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem)
            .map_err(|_| "expected PEM, -----BEGIN PUBLIC KEY-----".to_owned())?;
        // What an SPKI of each curve begins with; the point stands behind it, always as long.
        const P256: &[u8] = &[
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
            0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
        ];
        const P384: &[u8] = &[
            0x30, 0x76, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b,
            0x81, 0x04, 0x00, 0x22, 0x03, 0x62, 0x00,
        ];
        const ED: &[u8] = &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
        if let Some(point) = der.strip_prefix(P256) {
            return Ok(Self::single(&der, vec![Algorithm::ES256], p256(point)?));
        }
        if let Some(point) = der.strip_prefix(P384) {
            return Ok(Self::single(&der, vec![Algorithm::ES384], p384(point)?));
        }
        if let Some(point) = der.strip_prefix(ED) {
            return Ok(Self::single(&der, vec![Algorithm::EdDSA], ed25519(point)?));
        }
        let key = aws_lc_rs::rsa::PublicEncryptingKey::from_der(&der)
            .map_err(|_| "a key for tokens is RSA, P-256, P-384 or Ed25519; this one is none of them")?;
        check_bits(key.key_size_bits())?;
        Ok(Self::single(&der, RSA.to_vec(), DecodingKey::from_rsa_der(&der)))
    }

    /// A JWK set (RFC 7517). Keys that cannot verify tokens are left out, symmetric ones too: what everybody may
    /// read is no secret.
    ///
    /// # Errors
    /// When it is no set, or no key is left.
    pub fn jwks(json: &[u8]) -> Result<Self, String> {
        let set: Value = serde_json::from_slice(json).map_err(|_| "it is not JSON")?;
        let Some(Value::Array(list)) = set.get("keys") else {
            return Err("it is not a JWK set: `keys` is missing".to_owned());
        };
        let mut keys = Vec::new();
        let mut why = None;
        for jwk in list {
            match Key::from_jwk(jwk) {
                Ok(key) => keys.push(key),
                Err(error) => why = Some(error),
            }
        }
        match (keys.is_empty(), why) {
            (false, _) => Ok(Self { id: hash(json), keys }),
            (true, None) => Err("it holds no keys".to_owned()),
            (true, Some(why)) => Err(format!("it holds no key that verifies tokens: {why}")),
        }
    }

    fn single(source: &[u8], algorithms: Vec<Algorithm>, key: DecodingKey) -> Self {
        Self { id: hash(source), keys: vec![Key { name: Name::Any, algorithms, key }] }
    }

    /// Tells sets apart.
    pub(super) const fn id(&self) -> &[u8; 32] {
        &self.id
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The one key that may have signed a token. A name is only ever compared.
    fn find(&self, token: &Token<'_>) -> Result<&Key, NoKey> {
        let named = |key: &&Key| match (&key.name, &token.kid) {
            (Name::Any, _) | (_, None) => true,
            (Name::None, Some(_)) => false,
            (Name::Kid(own), Some(kid)) => own == kid,
        };
        if !self.keys.iter().any(|key| named(&key)) {
            return Err(NoKey::Unknown);
        }
        let mut fit = self.keys.iter().filter(named).filter(|key| key.algorithms.contains(&token.algorithm));
        match (fit.next(), fit.next()) {
            (Some(key), None) => Ok(key),
            _ => Err(NoKey::Unfit), // of several, each would have to be tried
        }
    }

    /// Whether a token is signed with one of the keys.
    pub(super) fn verifies(&self, token: &Token<'_>) -> Result<bool, NoKey> {
        let key = self.find(token)?;
        let verified = jsonwebtoken::crypto::verify(token.signature, token.signed, &key.key, token.algorithm);
        Ok(verified.unwrap_or(false)) // a signature that cannot even be read
    }
}

impl Key {
    fn from_jwk(value: &Value) -> Result<Self, String> {
        let jwk: Jwk = serde_json::from_value(value.clone()).map_err(|_| "a key is malformed")?;
        let for_others = jwk
            .common
            .public_key_use
            .as_ref()
            .is_some_and(|usage| *usage != PublicKeyUse::Signature)
            || jwk.common.key_operations.as_ref().is_some_and(|all| !all.contains(&KeyOperations::Verify));
        if for_others {
            return Err("a key is not for signatures".to_owned());
        }
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| "a key is malformed".to_owned());
        let point = |x: &str, y: &str| Ok::<_, String>([vec![4], decode(x)?, decode(y)?].concat());
        let (mut algorithms, key) = match &jwk.algorithm {
            AlgorithmParameters::RSA(rsa) => {
                let (n, e) = (decode(&rsa.n)?, decode(&rsa.e)?);
                check_bits(bits(&n))?;
                if !(2..=33).contains(&bits(&e)) || n.last().zip(e.last()).is_none_or(|(n, e)| n & e & 1 == 0)
                {
                    return Err("an RSA key is malformed".to_owned());
                }
                (RSA.to_vec(), DecodingKey::from_rsa_raw_components(&n, &e))
            }
            AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => {
                (vec![Algorithm::ES256], p256(&point(&ec.x, &ec.y)?)?)
            }
            AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P384 => {
                (vec![Algorithm::ES384], p384(&point(&ec.x, &ec.y)?)?)
            }
            AlgorithmParameters::OctetKeyPair(ed) if ed.curve == EllipticCurve::Ed25519 => {
                (vec![Algorithm::EdDSA], ed25519(&decode(&ed.x)?)?)
            }
            _ => return Err("a key is neither RSA, P-256, P-384 nor Ed25519".to_owned()),
        };
        if let Some(named) = value.get("alg").and_then(Value::as_str) {
            algorithms.retain(|algorithm| algorithm_of(named) == Some(*algorithm));
        }
        if algorithms.is_empty() {
            return Err("the `alg` of a key is not one of its type".to_owned());
        }
        Ok(Self { name: jwk.common.key_id.map_or(Name::None, Name::Kid), algorithms, key })
    }
}

fn p256(point: &[u8]) -> Result<DecodingKey, String> {
    ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).map_err(|_| "a key is not a point of P-256")?;
    Ok(DecodingKey::from_ec_der(point))
}

fn p384(point: &[u8]) -> Result<DecodingKey, String> {
    ParsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point).map_err(|_| "a key is not a point of P-384")?;
    Ok(DecodingKey::from_ec_der(point))
}

fn ed25519(point: &[u8]) -> Result<DecodingKey, String> {
    ParsedPublicKey::new(&ED25519, point).map_err(|_| "a key is not a point of Ed25519")?;
    Ok(DecodingKey::from_ed_der(point))
}

fn check_bits(bits: usize) -> Result<(), String> {
    match RSA_BITS.contains(&bits) {
        true => Ok(()),
        false => Err(format!("an RSA key has between 2048 and 8192 bits, not {bits}")),
    }
}

/// The length of a number.
fn bits(number: &[u8]) -> usize {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros).map_or(0, |first| (number.len() - zeros) * 8 - first.leading_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rsa(bytes: usize, exponent: &[u8]) -> Value {
        let modulus: Vec<u8> = vec![0xff; bytes];
        json!({ "kty": "RSA", "n": URL_SAFE_NO_PAD.encode(modulus), "e": URL_SAFE_NO_PAD.encode(exponent) })
    }

    fn with(mut key: Value, name: &str, value: Value) -> Value {
        key[name] = value;
        key
    }

    fn read(keys: &[Value]) -> Result<usize, String> {
        KeySet::jwks(json!({ "keys": keys }).to_string().as_bytes()).map(|set| set.len())
    }

    #[test]
    fn a_key_that_is_weak_malformed_or_for_something_else_is_left_out() {
        let good = rsa(256, &[1, 0, 1]);
        assert_eq!(read(std::slice::from_ref(&good)), Ok(1));
        let zeros = URL_SAFE_NO_PAD.encode([0; 32]);
        for (bad, why) in [
            (rsa(128, &[1, 0, 1]), "an RSA key has between 2048 and 8192 bits, not 1024"),
            (rsa(2048, &[1, 0, 1]), "an RSA key has between 2048 and 8192 bits, not 16384"),
            (rsa(256, &[1]), "an RSA key is malformed"),
            (rsa(256, &[2]), "an RSA key is malformed"),
            (with(good.clone(), "n", "!".into()), "a key is malformed"),
            (with(good.clone(), "use", "enc".into()), "a key is not for signatures"),
            (with(good.clone(), "key_ops", json!(["encrypt"])), "a key is not for signatures"),
            (with(good.clone(), "alg", "ES256".into()), "the `alg` of a key is not one of its type"),
            (with(good.clone(), "alg", "HS256".into()), "the `alg` of a key is not one of its type"),
            (with(good.clone(), "alg", "RSA-OAEP".into()), "the `alg` of a key is not one of its type"),
            (json!({ "kty": "EC", "crv": "P-256", "x": zeros, "y": zeros }), "a key is not a point of P-256"),
            (json!({ "kty": "OKP", "crv": "Ed25519", "x": "AAAA" }), "a key is not a point of Ed25519"),
            (
                json!({ "kty": "oct", "k": zeros, "alg": "HS256" }),
                "a key is neither RSA, P-256, P-384 nor Ed25519",
            ),
            (json!({ "kty": "new" }), "a key is neither RSA, P-256, P-384 nor Ed25519"),
            (json!(7), "a key is malformed"),
        ] {
            let message = format!("it holds no key that verifies tokens: {why}");
            assert_eq!(read(std::slice::from_ref(&bad)), Err(message), "{bad}");
            assert_eq!(read(&[bad, good.clone()]), Ok(1), "the others stay");
        }
    }

    #[test]
    fn a_secret_is_for_hashes_that_are_no_longer_than_it_is() {
        let algorithms = |length| KeySet::secret(&vec![7; length]).map(|set| set.keys[0].algorithms.clone());
        assert!(algorithms(31).is_err());
        assert_eq!(algorithms(32), Ok(vec![Algorithm::HS256]));
        assert_eq!(algorithms(63), Ok(vec![Algorithm::HS256, Algorithm::HS384]));
        assert_eq!(algorithms(64), Ok(vec![Algorithm::HS256, Algorithm::HS384, Algorithm::HS512]));
    }

    #[test]
    fn printing_a_set_tells_no_secret() {
        assert_eq!(format!("{:?}", KeySet::secret(&[7; 32]).unwrap()), "KeySet { keys: 1, .. }");
    }
}
