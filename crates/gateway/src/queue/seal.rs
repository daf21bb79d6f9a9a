//! Secrets of requests in a queue are encrypted with a key that is not in the file of the queue.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

const KEY_LEN: usize = 32;

/// A key that seals (AES-256-GCM, with a random nonce for each text).
pub struct Seal(LessSafeKey);

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// The key in a file. With `create` it is made if there is none, readable by its owner alone.
    ///
    /// # Errors
    /// If it cannot be read or written, or is no such key.
    pub fn open_file(path: &Path, create: bool) -> Result<Self, String> {
        let key = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound && create => new(path),
            read => read,
        };
        let key = key.map_err(|error| format!("{}: {error}", path.display()))?;
        match UnboundKey::new(&AES_256_GCM, &key) {
            Ok(key) => Ok(Self(LessSafeKey::new(key))),
            Err(_) => Err(format!(
                "{} is not the key of a queue, which has {KEY_LEN} bytes; restore it, or begin with a new one (`head -c {KEY_LEN} \
                 /dev/urandom`): credentials that are queued are lost then",
                path.display()
            )),
        }
    }

    /// The key beside the file of a queue, `PATH.key`.
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file).
    pub fn beside(queue: &Path) -> Result<Self, String> {
        Self::open_file(&PathBuf::from(format!("{}.key", queue.display())), true)
    }

    /// Seals a text.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn seal(&self, text: &[u8]) -> Result<Vec<u8>, &'static str> {
        let failed = "the system gives no random bytes";
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| failed)?;
        let mut sealed = text.to_vec();
        let of_text = Nonce::assume_unique_for_key(nonce);
        self.0.seal_in_place_append_tag(of_text, Aad::empty(), &mut sealed).map_err(|_| failed)?;
        Ok([&nonce[..], &sealed].concat())
    }

    /// The text that was sealed; `None` if it was sealed with another key, or was changed.
    pub fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk()?;
        let mut text = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.0.open_in_place(nonce, Aad::empty(), &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }
}

fn new(path: &Path) -> io::Result<Vec<u8>> {
    let mut key = vec![0; KEY_LEN];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| io::Error::other("the system gives no random bytes"))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&key)?;
    file.sync_all()?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_opened_with_the_same_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| Seal::beside(&folder.path().join(name)).unwrap();
        let sealed = at("queue.db").seal(b"secret").unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"secret"));
        assert_eq!(at("queue.db").open(&sealed).unwrap(), b"secret");
        assert_eq!(at("other.db").open(&sealed), None);
        assert_eq!(at("queue.db").open(&sealed[1..]), None);
        assert_eq!(at("queue.db").open(b""), None);
        fs::write(folder.path().join("short.db.key"), "x").unwrap();
        assert!(Seal::beside(&folder.path().join("short.db")).unwrap_err().contains("short.db.key"));
    }
}
