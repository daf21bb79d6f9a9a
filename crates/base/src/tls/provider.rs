//! The algorithms of TLS.

use std::sync::Arc;

use rustls::SupportedCipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite as suite};

/// rustls' own suites, in an order of our own: AES with 128 bits before 256, which costs more per byte and, by the hash
/// that comes with it, per handshake, and keeps nobody out that the other lets in.
const SUITES: [SupportedCipherSuite; 9] = [
    suite::TLS13_AES_128_GCM_SHA256,
    suite::TLS13_AES_256_GCM_SHA384,
    suite::TLS13_CHACHA20_POLY1305_SHA256,
    suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// The algorithms: rustls' own choice, which has authenticated encryption only, behind elliptic curves and ML-KEM.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { cipher_suites: SUITES.to_vec(), ..aws_lc_rs::default_provider() })
}
