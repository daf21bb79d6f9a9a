//! Decoding of requests, with bounds.
//!
//! A list of empty messages takes two bytes an item on the wire and fifty times as much in memory. So items are counted
//! before a message is decoded, and a request with too many of them costs nothing.
//!
//! The bounds are above what a proxy can send: Envoy's heads have at most 60 KiB by default, and a descriptor has what Envoy's
//! configuration says. If they were lower, a client could make a request fail with a long header, and most proxies let
//! requests pass when this fails.

use bytes::{Buf, Bytes};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::authorization::CheckRequest;
use super::health::HealthCheckRequest;
use super::ratelimit::RateLimitRequest;
use super::status::{Code, Status};

/// The most bytes of a message.
pub const MAX_MESSAGE: usize = 1 << 20;
/// The most descriptors of a request.
pub const MAX_DESCRIPTORS: usize = 100;
/// The most entries of a descriptor.
pub const MAX_ENTRIES: usize = 100;
/// The most bytes of a key of an entry, and of the name of a domain.
pub const MAX_KEY: usize = 1 << 10;
/// The most bytes of the value of an entry.
pub const MAX_VALUE: usize = 64 << 10;
/// The most headers of a request that is to be authorized, and the most context extensions.
pub const MAX_HEADERS: usize = 1_000;

/// A request for a rate limit. It has a domain and at least one descriptor, and is within the bounds of this module.
///
/// # Errors
/// It is not.
pub fn rate_limit(message: Bytes) -> Result<RateLimitRequest, Status> {
    within(&message, &[2], MAX_DESCRIPTORS, "descriptors")?;
    within(&message, &[2, 1], MAX_DESCRIPTORS * MAX_ENTRIES, "entries of descriptors")?;
    let request = RateLimitRequest::decode(message).map_err(malformed)?;
    check(&request)?;
    Ok(request)
}

/// Checks the bounds of a request for a rate limit, however it was read.
///
/// # Errors
/// It has no domain or no descriptor, or it exceeds a bound.
pub fn check(request: &RateLimitRequest) -> Result<(), Status> {
    if request.domain.is_empty() {
        return Err(Status::invalid("the request has no domain"));
    }
    if request.descriptors.is_empty() {
        return Err(Status::invalid("the request has no descriptors"));
    }
    at_most(request.domain.len(), MAX_KEY, "bytes in its domain")?;
    at_most(request.descriptors.len(), MAX_DESCRIPTORS, "descriptors")?;
    for descriptor in &request.descriptors {
        at_most(descriptor.entries.len(), MAX_ENTRIES, "entries in a descriptor")?;
        for entry in &descriptor.entries {
            at_most(entry.key.len(), MAX_KEY, "bytes in a key")?;
            at_most(entry.value.len(), MAX_VALUE, "bytes in a value")?;
        }
    }
    Ok(())
}

/// A request for an authorization.
///
/// # Errors
/// It is malformed or exceeds a bound of this module.
pub fn authorization(message: Bytes) -> Result<CheckRequest, Status> {
    within(&message, &[1, 4, 2, 3], MAX_HEADERS, "headers")?;
    within(&message, &[1, 4, 2, 13, 1], MAX_HEADERS, "headers")?;
    within(&message, &[1, 10], MAX_HEADERS, "context extensions")?;
    CheckRequest::decode(message).map_err(malformed)
}

/// A question for the health of a service.
///
/// # Errors
/// It is malformed or exceeds a bound of this module.
pub fn health(message: Bytes) -> Result<HealthCheckRequest, Status> {
    at_most(message.len(), MAX_MESSAGE, "bytes")?;
    HealthCheckRequest::decode(message).map_err(malformed)
}

fn at_most(count: usize, most: usize, what: &str) -> Result<(), Status> {
    if count <= most {
        return Ok(());
    }
    Err(Status::new(
        Code::ResourceExhausted,
        format!("the request has {count} {what}; at most {most} are allowed"),
    ))
}

/// Checks the length of a message and the number of fields at the end of `path`.
fn within(message: &Bytes, path: &[u32], most: usize, what: &str) -> Result<(), Status> {
    at_most(message.len(), MAX_MESSAGE, "bytes")?;
    at_most(count(message, path)?, most, what)
}

/// How many fields there are at the end of a path of field numbers.
fn count(mut message: &[u8], path: &[u32]) -> Result<usize, Status> {
    let Some((wanted, rest)) = path.split_first() else { return Ok(1) };
    let mut found = 0;
    while message.has_remaining() {
        let (tag, kind) = decode_key(&mut message).map_err(malformed)?;
        if tag != *wanted || kind != WireType::LengthDelimited {
            skip_field(kind, tag, &mut message, DecodeContext::default()).map_err(malformed)?;
            continue;
        }
        let length = usize::try_from(decode_varint(&mut message).map_err(malformed)?).unwrap_or(usize::MAX);
        let Some((field, behind)) = message.split_at_checked(length) else {
            return Err(Status::invalid("the message ends within a field"));
        };
        message = behind;
        found += count(field, rest)?;
    }
    Ok(found)
}

fn malformed(error: prost::DecodeError) -> Status {
    Status::invalid(format!("the message is malformed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ratelimit::{Entry, RateLimitDescriptor};

    fn request(descriptors: usize, entries: usize, key: usize, value: usize) -> RateLimitRequest {
        let entry = Entry::new("k".repeat(key), "v".repeat(value));
        let descriptor = RateLimitDescriptor { entries: vec![entry; entries], ..Default::default() };
        RateLimitRequest { domain: "d".into(), descriptors: vec![descriptor; descriptors], hits_addend: 0 }
    }

    fn outcome(request: &RateLimitRequest) -> Result<(), String> {
        let decoded = rate_limit(request.encode_to_vec().into()).map_err(|status| status.message)?;
        assert_eq!(decoded, *request);
        Ok(())
    }

    #[test]
    fn what_is_within_the_bounds_is_decoded() {
        assert_eq!(outcome(&request(100, 100, 1, 1)), Ok(()));
        assert_eq!(outcome(&request(1, 1, MAX_KEY, MAX_VALUE)), Ok(()));
        assert_eq!(outcome(&request(12, 1, 9, 60 << 10)), Ok(()));
    }

    #[test]
    fn what_is_too_much_is_said() {
        let said = |request: &RateLimitRequest| outcome(request).unwrap_err();
        assert_eq!(said(&request(101, 1, 1, 1)), "the request has 101 descriptors; at most 100 are allowed");
        assert_eq!(
            said(&request(1, 101, 1, 1)),
            "the request has 101 entries in a descriptor; at most 100 are allowed"
        );
        assert_eq!(
            said(&request(1, 10_001, 0, 0)),
            "the request has 10001 entries of descriptors; at most 10000 are allowed"
        );
        assert_eq!(
            said(&request(1, 1, MAX_KEY + 1, 0)),
            "the request has 1025 bytes in a key; at most 1024 are allowed"
        );
        assert_eq!(
            said(&request(1, 1, 1, MAX_VALUE + 1)),
            "the request has 65537 bytes in a value; at most 65536 are allowed"
        );
        assert_eq!(
            said(&request(1, 1, 1, 1 << 20)),
            "the request has 1048594 bytes; at most 1048576 are allowed"
        );
        assert_eq!(said(&request(0, 0, 0, 0)), "the request has no descriptors");
        assert_eq!(said(&RateLimitRequest::default()), "the request has no domain");
    }

    #[test]
    fn values_need_not_be_utf_8() {
        let mut odd = request(1, 1, 1, 1);
        odd.descriptors[0].entries[0].value = Bytes::from_static(b"\xff\xfe");
        let read = rate_limit(odd.encode_to_vec().into()).unwrap();
        assert_eq!(read.descriptors[0].entries[0].value(), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_million_empty_descriptors_are_counted_only() {
        let message = Bytes::from(b"\x12\x00".repeat(MAX_MESSAGE / 2));
        assert_eq!(rate_limit(message).unwrap_err().code, Code::ResourceExhausted);
        let headers =
            Bytes::from([&b"\x0a\x0c\x22\x0a\x12\x08"[..], b"\x6a\x06\x0a\x00\x0a\x00\x0a\x00"].concat());
        assert_eq!(count(&headers, &[1, 4, 2, 13, 1]), Ok(3));
        assert_eq!(authorization(headers).unwrap().http().unwrap().header_fields().count(), 3);
    }

    #[test]
    fn half_a_message_is_malformed() {
        let whole = request(2, 2, 3, 3).encode_to_vec();
        for end in 0..whole.len() {
            let _ = rate_limit(Bytes::copy_from_slice(&whole[..end]));
        }
        assert_eq!(rate_limit(Bytes::from_static(b"\x12\x05a")).unwrap_err().code, Code::InvalidArgument);
        assert_eq!(rate_limit(Bytes::from_static(b"\x0b")).unwrap_err().code, Code::InvalidArgument);
    }
}
