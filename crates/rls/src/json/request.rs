//! A request in JSON.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error, Unexpected, Visitor};

use crate::wire::decode;
use crate::wire::ratelimit::{Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, Unit};
use crate::wire::status::{Code, Status};
use crate::wire::well_known::UInt64Value;

/// The most bytes of a request in JSON.
pub const MAX_JSON: usize = 256 << 10;

/// The request that a body is. Names of fields can be written as in the proto, too, and whole numbers as text.
///
/// # Errors
/// It is not JSON, has a field that requests do not have, or exceeds a bound of [`decode`].
pub fn request(body: &[u8]) -> Result<RateLimitRequest, Status> {
    let request = RateLimitRequest::from(object::<Request>(body)?);
    decode::check(&request)?;
    Ok(request)
}

/// What a body in JSON is.
///
/// # Errors
/// It is longer than [`MAX_JSON`], or not such an object. A list of its values, which `serde` would take for one, is none.
pub(crate) fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, Status> {
    if body.len() > MAX_JSON {
        let text = format!("the body has {} bytes; at most {MAX_JSON} are read", body.len());
        return Err(Status::new(Code::ResourceExhausted, text));
    }
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(Status::invalid("the body is not a request in JSON: expected an object, found a list"));
    }
    serde_json::from_slice(body)
        .map_err(|error| Status::invalid(format!("the body is not a request in JSON: {error}")))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    domain: Option<String>,
    descriptors: Option<Vec<Descriptor>>,
    #[serde(alias = "hits_addend", deserialize_with = "small")]
    hits_addend: u32,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Descriptor {
    entries: Option<Vec<JsonEntry>>,
    limit: Option<Limit>,
    #[serde(alias = "hits_addend", deserialize_with = "whole")]
    hits_addend: Option<u64>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct JsonEntry {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Limit {
    #[serde(alias = "requests_per_unit", deserialize_with = "small")]
    requests_per_unit: u32,
    #[serde(deserialize_with = "unit")]
    unit: i32,
}

impl From<Request> for RateLimitRequest {
    fn from(read: Request) -> Self {
        Self {
            domain: read.domain.unwrap_or_default(),
            descriptors: read.descriptors.unwrap_or_default().into_iter().map(Into::into).collect(),
            hits_addend: read.hits_addend,
        }
    }
}

impl From<Descriptor> for RateLimitDescriptor {
    fn from(read: Descriptor) -> Self {
        let entry =
            |entry: JsonEntry| Entry::new(entry.key.unwrap_or_default(), entry.value.unwrap_or_default());
        Self {
            entries: read.entries.unwrap_or_default().into_iter().map(entry).collect(),
            limit: read.limit.map(|limit| RateLimitOverride {
                requests_per_unit: limit.requests_per_unit,
                unit: limit.unit,
            }),
            hits_addend: read.hits_addend.map(|value| UInt64Value { value }),
            is_negative_hits: read.is_negative_hits.unwrap_or_default(),
        }
    }
}

/// A whole number or its text; none if it is null.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    deserializer.deserialize_any(Scalar).and_then(|scalar| match scalar {
        Written::Null => Ok(None),
        Written::Number(number) => Ok(Some(number)),
        Written::Text(text) => {
            text.parse().map(Some).map_err(|_| D::Error::invalid_value(Unexpected::Str(&text), &Scalar))
        }
    })
}

fn small<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = whole(deserializer)?.unwrap_or_default();
    u32::try_from(number).map_err(|_| D::Error::invalid_value(Unexpected::Unsigned(number), &Scalar))
}

/// A unit by its name or number.
fn unit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    deserializer.deserialize_any(Scalar).and_then(|scalar| match scalar {
        Written::Null => Ok(0),
        Written::Number(number) => {
            i32::try_from(number).map_err(|_| D::Error::invalid_value(Unexpected::Unsigned(number), &Scalar))
        }
        Written::Text(name) if name == "UNKNOWN" => Ok(0),
        Written::Text(name) => Unit::named(&name)
            .filter(|_| name.chars().all(|c| c.is_ascii_uppercase()))
            .map(|unit| unit as i32)
            .ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&name), &"a unit, such as MINUTE")),
    })
}

enum Written {
    Null,
    Number(u64),
    Text(String),
}

struct Scalar;

impl Visitor<'_> for Scalar {
    type Value = Written;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_unit<E>(self) -> Result<Written, E> {
        Ok(Written::Null)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Written, E> {
        Ok(Written::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Written, E> {
        Ok(Written::Text(text.to_owned()))
    }
}
