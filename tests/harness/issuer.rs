//! An issuer of tokens, valid ones and any others that a test needs.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// A key that tokens are signed with.
pub struct Signer {
    pub kid: Option<String>,
    /// The algorithm that its tokens name.
    pub alg: &'static str,
    key: Key,
}

enum Key {
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Rsa(RsaKeyPair),
    Secret(Vec<u8>),
}

impl Signer {
    fn new(kid: &str, alg: &'static str, key: Key) -> Self {
        Self { kid: Some(kid.to_owned()).filter(|kid| !kid.is_empty()), alg, key }
    }

    /// An empty `kid` is none, here and below.
    pub fn es256(kid: &str) -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Self::new(kid, "ES256", Key::Ec(key))
    }

    pub fn es384(kid: &str) -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
        Self::new(kid, "ES384", Key::Ec(key))
    }

    pub fn ed25519(kid: &str) -> Self {
        Self::new(kid, "EdDSA", Key::Ed(Ed25519KeyPair::generate().unwrap()))
    }

    /// `alg` is RS256 or PS256.
    pub fn rsa(kid: &str, alg: &'static str) -> Self {
        Self::new(kid, alg, Key::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()))
    }

    pub fn hs256(secret: &[u8]) -> Self {
        Self::new("", "HS256", Key::Secret(secret.to_vec()))
    }

    /// The public key as a member of a JWK set, without `alg`.
    pub fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = match &self.key {
            Key::Ec(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(key.public_key().as_ref().len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({ "kty": "EC", "crv": curve, "x": text(x), "y": text(y) })
            }
            Key::Ed(key) => json!({ "kty": "OKP", "crv": "Ed25519", "x": text(key.public_key().as_ref()) }),
            Key::Rsa(key) => {
                let (n, e) = (key.public_key().modulus(), key.public_key().exponent());
                json!({
                    "kty": "RSA",
                    "n": text(n.big_endian_without_leading_zero()),
                    "e": text(e.big_endian_without_leading_zero()),
                })
            }
            Key::Secret(secret) => json!({ "kty": "oct", "k": text(secret) }),
        };
        if let Some(kid) = &self.kid {
            jwk["kid"] = kid.as_str().into();
        }
        jwk
    }

    /// The public key in PEM.
    pub fn pem(&self) -> String {
        let der: PublicKeyX509Der<'_> = match &self.key {
            Key::Ec(key) => key.public_key().as_der(),
            Key::Ed(key) => key.public_key().as_der(),
            Key::Rsa(key) => key.public_key().as_der(),
            Key::Secret(_) => panic!("a secret has no public key"),
        }
        .unwrap();
        let text = STANDARD.encode(der.as_ref());
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"))
    }

    /// A valid token.
    pub fn token(&self, claims: &Value) -> String {
        let mut header = json!({ "typ": "JWT", "alg": self.alg });
        if let Some(kid) = &self.kid {
            header["kid"] = kid.as_str().into();
        }
        self.signed(&header.to_string(), &claims.to_string())
    }

    /// A token with this header and these claims, correctly signed.
    pub fn signed(&self, header: &str, claims: &str) -> String {
        let signed = unsigned(header, claims);
        let message = signed.as_bytes();
        let random = SystemRandom::new();
        let signature = match &self.key {
            Key::Ec(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Key::Ed(key) => key.sign(message).as_ref().to_vec(),
            Key::Rsa(key) => {
                let padding: &'static dyn aws_lc_rs::signature::RsaEncoding =
                    if self.alg == "PS256" { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
            Key::Secret(secret) => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message).as_ref().to_vec()
            }
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Header and claims without a signature.
pub fn unsigned(header: &str, claims: &str) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
}

/// A JWK set of these keys.
pub fn jwks(signers: &[&Signer]) -> String {
    json!({ "keys": signers.iter().map(|signer| signer.jwk()).collect::<Vec<_>>() }).to_string()
}

/// Ten minutes from now, as a NumericDate.
pub fn soon() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 600
}
