//! The scripts, known to servers by the SHA-1 of their text.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use redis::Cmd;

/// One script.
pub struct Script {
    text: &'static str,
    sha1: String,
}

impl Script {
    /// A script of this text.
    pub fn new(text: &'static str) -> Self {
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let sha1 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { text, sha1 }
    }

    /// A call with these keys; the arguments follow. With the text if the server does not know it.
    pub fn call(&self, with_text: bool, keys: &[&str]) -> Cmd {
        let mut call = match with_text {
            true => redis::cmd("EVAL"),
            false => redis::cmd("EVALSHA"),
        };
        call.arg(if with_text { self.text } else { &self.sha1 }).arg(keys.len()).arg(keys);
        call
    }
}
