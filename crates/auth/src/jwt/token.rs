//! A token as it is written (RFC 7515, compact): taken apart, nothing of it believed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, HeaderName};
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};
use smallvec::SmallVec;

use super::TokenError;
use sluicegate_wire::Headers;

/// The longest token that is looked at.
pub(crate) const MAX_TOKEN: usize = 8 << 10;
/// What stands before a token (RFC 6750).
pub(crate) const SCHEME: &[u8] = b"Bearer ";

/// The parts of a token.
pub(super) struct Token<'a> {
    /// What is signed: header and claims as they came.
    pub(super) signed: &'a [u8],
    /// The signature as it came.
    pub(super) signature: &'a str,
    /// The algorithm that it says it is signed with; never `none`.
    pub(super) algorithm: Algorithm,
    /// The key that it says it is signed with.
    pub(super) kid: Option<String>,
    claims: &'a str,
}

/// What a token claims, or what its issuer says of it.
pub(crate) struct Claims {
    /// Each claim by its name. A number that is neither a `u64` nor an `i64` is rounded here.
    pub(super) values: Map<String, Value>,
    /// The JSON that they were read from, which has all digits.
    json: Vec<u8>,
}

/// The token of a request; `None` if it has none. What stands there and is not a JWT at all, such as an opaque token or
/// `Basic`, is somebody else's business.
pub(super) fn of<'a>(headers: &'a Headers, name: &HeaderName) -> Result<Option<&'a str>, TokenError> {
    let mut lines = headers.get_all(name);
    let Some(first) = lines.next() else { return Ok(None) };
    let bare = *name != AUTHORIZATION;
    let Some(second) = lines.next() else { return in_line(first, bare) };
    // Several lines: whoever reads another of them than the gateway does would see another user.
    for line in [first, second].into_iter().chain(lines) {
        if in_line(line, bare)?.is_some() {
            return Err(TokenError::Several);
        }
    }
    Ok(None)
}

fn in_line(line: &[u8], bare: bool) -> Result<Option<&str>, TokenError> {
    let token = match line.split_at_checked(SCHEME.len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) => token.trim_ascii(),
        _ if bare => line,
        _ => return Ok(None),
    };
    if token.len() > MAX_TOKEN {
        return Err(TokenError::TooLong);
    }
    // `{"`, `{` and white space, `{}`: what base64url makes of the beginning of any JSON object.
    let is_object = [b"ey", b"ew", b"e3"].iter().any(|begin| token.starts_with(*begin));
    if !is_object || !token.contains(&b'.') {
        return Ok(None);
    }
    std::str::from_utf8(token).map(Some).map_err(|_| TokenError::Malformed)
}

impl<'a> Token<'a> {
    /// Takes a token apart.
    pub(super) fn parse(text: &'a str) -> Result<Self, TokenError> {
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        if claims.contains('.') {
            return Err(TokenError::Malformed); // five parts: it is encrypted
        }
        let header = read(&decoded(header)?)?;
        // An extension that is critical and not understood; none is understood here (RFC 7515 §4.1.11).
        if header.contains_key("crit") {
            return Err(TokenError::Malformed);
        }
        let kid = match header.get("kid") {
            None => None,
            Some(Value::String(kid)) => Some(kid.clone()),
            Some(_) => return Err(TokenError::Malformed),
        };
        let Some(Value::String(algorithm)) = header.get("alg") else { return Err(TokenError::Malformed) };
        let algorithm = algorithm_of(algorithm).ok_or(TokenError::Untrusted)?;
        Ok(Self { signed: signed.as_bytes(), signature, algorithm, kid, claims })
    }

    /// The claims. Ask for them when the signature is verified.
    pub(super) fn claims(&self) -> Result<Claims, TokenError> {
        Claims::read(decoded(self.claims)?)
    }
}

impl Claims {
    /// The claims in a JSON object.
    pub(crate) fn read(json: Vec<u8>) -> Result<Self, TokenError> {
        Ok(Self { values: read(&json)?, json })
    }

    /// Whether the token is active, if an issuer says so of it.
    pub(crate) fn is_active(&self) -> Option<bool> {
        self.values.get("active")?.as_bool()
    }

    /// Who says that it has issued the token.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.values.get("iss")?.as_str()
    }

    /// A claim as text: a string, a number or a truth value, and nothing that is empty. `a.b` is the member `a.b`, or
    /// `b` inside of `a`.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let mut names = Names::new();
        match find(&self.values, path, &mut names)? {
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            // Two numbers that round to the same `f64` are two users.
            Value::Number(number) if number.is_f64() => self.as_written(&names),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(truth) => Some(truth.to_string()),
            _ => None,
        }
    }

    /// The JSON text of the claim at this place.
    fn as_written(&self, names: &Names<'_>) -> Option<String> {
        let mut json = std::str::from_utf8(&self.json).ok()?;
        for name in names {
            let members: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(json).ok()?;
            json = members.get(*name)?.get();
        }
        Some(json.to_owned())
    }
}

/// The names of objects within objects, and of the claim in the innermost.
type Names<'p> = SmallVec<[&'p str; 4]>;

/// The claim at `path`; the names that lead to it are appended to `names`.
fn find<'a, 'p>(claims: &'a Map<String, Value>, path: &'p str, names: &mut Names<'p>) -> Option<&'a Value> {
    let depth = names.len();
    if let Some(value) = claims.get(path) {
        names.push(path);
        return Some(value);
    }
    path.match_indices('.').find_map(|(dot, _)| {
        names.truncate(depth);
        names.push(&path[..dot]);
        find(claims.get(&path[..dot])?.as_object()?, &path[dot + 1..], names)
    })
}

/// The algorithm of this name, in tokens and in keys.
pub(super) fn algorithm_of(name: &str) -> Option<Algorithm> {
    match name {
        "Ed25519" => Some(Algorithm::EdDSA), // its name since RFC 9864
        name => name.parse().ok(),
    }
}

/// The text of a part of a token.
fn decoded(part: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)
}

/// The JSON object in a text.
fn read(json: &[u8]) -> Result<Map<String, Value>, TokenError> {
    match serde_json::from_slice(json) {
        Ok(Strict(Value::Object(object))) => Ok(object),
        _ => Err(TokenError::Malformed),
    }
}

/// JSON in which no member of an object is given twice: of two, others might take the other.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without repeated members")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("no number"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Strict(value))) = members.next_entry::<String, Strict>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a member is given twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two numbers are two users, however near they are; a number is the text that has its digits.
    #[test]
    fn a_number_is_its_digits() {
        let text = |claims: &str, path: &str| {
            let json = claims.as_bytes().to_vec();
            Claims { values: read(&json).unwrap(), json }.text(path)
        };
        let long = "9".repeat(300);
        let numbers = ["17", "-9223372036854775809", "1.0", "1e3", "-0", "0.10000000000000000001", &long];
        let large = ["9007199254740993", "18446744073709551616", "18446744073709551617"];
        for number in numbers.into_iter().chain(large) {
            assert_eq!(text(&format!(r#"{{"sub": {number} }}"#), "sub").as_deref(), Some(number));
            let inside = format!(r#"{{"o\u0072g": {{"b": 1, "tenant.id": {number}}}, "org.b": {{}}}}"#);
            assert_eq!(text(&inside, "org.tenant.id").as_deref(), Some(number));
        }
        assert_eq!(text(r#"{"sub": "17"}"#, "sub").as_deref(), Some("17"));
        assert!(read(format!(r#"{{"sub": {long}e99}}"#).as_bytes()).is_err(), "larger than any number");
    }
}
