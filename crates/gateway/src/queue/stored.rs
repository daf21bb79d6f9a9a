//! What is stored of a request that is delivered later, and of its answer: a JSON object with its length before it, and the body.

use std::net::SocketAddr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::seal::Seal;
use sluicegate_auth::StoredIdentity;

/// A request as it was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRequest {
    /// The method.
    pub method: String,
    /// The path and query, without credentials.
    pub target: String,
    /// The header fields without credentials. Bytes are characters.
    pub headers: Vec<(String, String)>,
    /// The id of the request.
    pub request_id: String,
    /// The listener that it came by.
    pub listener: String,
    /// The peer of its connection.
    pub peer: SocketAddr,
    /// The TLS of the connection, if it had any.
    pub tls: Option<StoredTls>,
    /// The identity of its sender.
    pub identity: StoredIdentity,
    /// The keys that it had under limits of these names, in full, in base64; those with secrets are in `sealed`.
    pub keys: Vec<(String, String)>,
    /// A [`Sealed`], in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<String>,
    /// The body.
    #[serde(skip)]
    pub body: Bytes,
}

/// The subject and the fingerprint of the client's certificate, if it sent one.
pub type StoredTls = Option<(String, String)>;

/// The secrets of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Keys with secrets, as in [`StoredRequest::keys`].
    pub keys: Vec<(String, String)>,
    /// Header fields with credentials.
    pub headers: Vec<(String, String)>,
    /// The path and query with credentials, if they have any.
    pub target: Option<String>,
}

/// An answer of the upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAnswer {
    /// The status.
    pub status: u16,
    /// The header fields. Bytes are characters.
    pub headers: Vec<(String, String)>,
    /// Whether only the beginning of the body is stored.
    pub truncated: bool,
    /// The body.
    #[serde(skip)]
    pub body: Bytes,
}

/// Stored bytes that this release does not understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl StoredRequest {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self, &self.body)
    }

    /// Reads what [`encode`](Self::encode) has written.
    ///
    /// # Errors
    /// If it is something else.
    pub fn decode(stored: &[u8]) -> Result<Self, Unreadable> {
        let (mut request, body): (Self, _) = decode(stored)?;
        request.body = body;
        Ok(request)
    }

    /// The secrets, if there are any and this is their key.
    pub fn open(&self, seal: &Seal) -> Option<Sealed> {
        let sealed = BASE64_STANDARD.decode(self.sealed.as_ref()?).ok()?;
        serde_json::from_slice(&seal.open(&sealed)?).ok()
    }

    /// The keys in full, with those that are secret.
    pub fn keys(&self, sealed: Option<&Sealed>) -> Vec<(String, Vec<u8>)> {
        let all = self.keys.iter().chain(sealed.into_iter().flat_map(|sealed| &sealed.keys));
        all.filter_map(|(limit, key)| Some((limit.clone(), BASE64_STANDARD.decode(key).ok()?))).collect()
    }
}

impl Sealed {
    /// The text that a [`StoredRequest`] has; `None` if there is no secret.
    ///
    /// # Errors
    /// If it cannot be sealed.
    pub fn encode(&self, seal: &Seal) -> Result<Option<String>, &'static str> {
        if *self == Self::default() {
            return Ok(None);
        }
        let text = serde_json::to_vec(self).map_err(|_| "the secrets cannot be written")?;
        Ok(Some(BASE64_STANDARD.encode(seal.seal(&text)?)))
    }
}

impl StoredAnswer {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self, &self.body)
    }

    /// Reads what [`encode`](Self::encode) has written.
    ///
    /// # Errors
    /// If it is something else.
    pub fn decode(stored: &[u8]) -> Result<Self, Unreadable> {
        let (mut answer, body): (Self, _) = decode(stored)?;
        answer.body = body;
        Ok(answer)
    }
}

/// Bytes as a text whose characters have their numbers.
pub(crate) fn characters(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// The bytes of such a text.
pub(crate) fn of_characters(text: &str) -> Vec<u8> {
    text.chars().filter_map(|character| u8::try_from(character).ok()).collect()
}

fn encode(head: &impl Serialize, body: &[u8]) -> Vec<u8> {
    let head = serde_json::to_vec(head).unwrap_or_default(); // texts and numbers can be written
    let length = u32::try_from(head.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &head, body].concat()
}

fn decode<T: for<'d> Deserialize<'d>>(stored: &[u8]) -> Result<(T, Bytes), Unreadable> {
    let (length, rest) = stored.split_first_chunk().ok_or(Unreadable)?;
    let (head, body) = rest.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or(Unreadable)?;
    let head = serde_json::from_slice(head).map_err(|_| Unreadable)?;
    Ok((head, Bytes::copy_from_slice(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        let request = StoredRequest {
            method: "POST".into(),
            target: "/a?b=%20".into(),
            headers: vec![("x-a".into(), characters(b"\xff\x80 z"))],
            request_id: "r".into(),
            listener: "127.0.0.1:1".into(),
            peer: "[::1]:5".parse().unwrap(),
            tls: Some(Some(("CN=a".into(), "00".into()))),
            identity: StoredIdentity { consumer: Some("acme".into()), cost: Some(3), ..Default::default() },
            keys: vec![("orders".into(), BASE64_STANDARD.encode(b"\x01key"))],
            sealed: None,
            body: Bytes::from_static(b"\0body"),
        };
        let stored = request.encode();
        assert_eq!(StoredRequest::decode(&stored), Ok(request.clone()));
        assert_eq!(of_characters(&request.headers[0].1), b"\xff\x80 z");
        assert_eq!(request.keys(None), [("orders".to_owned(), b"\x01key".to_vec())]);
        for cut in [0, 3, 4, 20] {
            assert_eq!(StoredRequest::decode(&stored[..cut]), Err(Unreadable));
        }
        let answer = StoredAnswer {
            status: 201,
            headers: Vec::new(),
            truncated: true,
            body: Bytes::from_static(b"ok"),
        };
        assert_eq!(StoredAnswer::decode(&answer.encode()), Ok(answer));
    }
}
