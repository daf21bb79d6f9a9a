//! Messages that several services use: of `google.protobuf` and of `envoy.config.core.v3`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;

/// A span of time.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Duration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The rest, in nanoseconds.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// A number that can be absent.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct UInt64Value {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

/// A JSON object.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Struct {
    /// Its fields.
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// A JSON value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    /// Its kind; null if it is absent.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<Kind>,
}

/// The kinds of JSON values.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// `null`, whose number is 0.
    #[prost(int32, tag = "1")]
    Null(i32),
    /// A number.
    #[prost(double, tag = "2")]
    Number(f64),
    /// A text.
    #[prost(string, tag = "3")]
    String(String),
    /// A boolean.
    #[prost(bool, tag = "4")]
    Bool(bool),
    /// An object.
    #[prost(message, tag = "5")]
    Struct(Struct),
    /// A list.
    #[prost(message, tag = "6")]
    List(ListValue),
}

/// A JSON list.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListValue {
    /// Its items.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

/// A header. Its texts are bytes, because clients choose them: a message is not refused because one of them is not UTF-8.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeaderValue {
    /// The name.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The value, or empty if it is in `raw_value`.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// The value.
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

impl HeaderValue {
    /// A header.
    pub fn new(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { key: name.into(), value: value.into(), raw_value: Bytes::new() }
    }

    /// Its value, in whichever field it is.
    pub fn bytes(&self) -> &[u8] {
        if self.raw_value.is_empty() { &self.value } else { &self.raw_value }
    }
}

impl Value {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { kind: Some(Kind::String(text.into())) }
    }

    /// A number.
    pub fn number(number: f64) -> Self {
        Self { kind: Some(Kind::Number(number)) }
    }

    /// An object.
    pub fn object(fields: Struct) -> Self {
        Self { kind: Some(Kind::Struct(fields)) }
    }

    /// A list.
    pub fn list(values: Vec<Self>) -> Self {
        Self { kind: Some(Kind::List(ListValue { values })) }
    }
}

/// The text that bytes of a client mean. What is not UTF-8 becomes U+FFFD: values that differ only there are the same.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
