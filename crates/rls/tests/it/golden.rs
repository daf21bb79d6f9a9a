//! Messages as another implementation encodes them, which was generated from the published protos: betterproto2 in
//! envoy_data_plane 2.2.0, and for health grpcio-health-checking.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use sluicegate_rls::wire::authorization::{CheckResponse, HeaderValueOption};
use sluicegate_rls::wire::decode;
use sluicegate_rls::wire::health::{HealthCheckResponse, ServingStatus};
use sluicegate_rls::wire::ratelimit::{
    Code, DescriptorStatus, Entry, RateLimit, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, Unit,
};
use sluicegate_rls::wire::well_known::{Duration, HeaderValue, Kind, Struct, UInt64Value, Value};

fn bytes(hex: &str) -> Bytes {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// The message of these bytes is `expected`, and is written with the same bytes.
fn same<M: Message + Default + PartialEq>(hex: &str, expected: &M) {
    assert_eq!(M::decode(bytes(hex)).unwrap(), *expected);
    assert_eq!(expected.encode_to_vec(), bytes(hex));
}

#[test]
fn a_rate_limit_request() {
    let hex = "0a0377656212240a0a0a047061746812022f610a0c0a06636c69656e741202c3a91204082a10031a002001120d0a030a016b1a060880e4\
               97d01212001803";
    let first = RateLimitDescriptor {
        entries: vec![Entry::new("path", "/a"), Entry::new("client", "é")],
        limit: Some(RateLimitOverride { requests_per_unit: 42, unit: Unit::Hour as i32 }),
        hits_addend: Some(UInt64Value { value: 0 }),
        is_negative_hits: true,
    };
    let second = RateLimitDescriptor {
        entries: vec![Entry::new("k", "")],
        hits_addend: Some(UInt64Value { value: 5_000_000_000 }),
        ..RateLimitDescriptor::default()
    };
    let descriptors = vec![first, second, RateLimitDescriptor::default()];
    let expected = RateLimitRequest { domain: "web".to_owned(), descriptors, hits_addend: 3 };
    same(hex, &expected);
    assert_eq!(decode::rate_limit(bytes(hex)), Ok(expected));
}

#[test]
fn a_rate_limit_response() {
    let hex = "08021211080212071a016e080a100718072202085a1208080118ffffffff0f1a100a0b72657472792d616674657212013922060a01781a01\
               792a027b7d";
    let limit = RateLimit { requests_per_unit: 10, unit: Unit::Week as i32, name: "n".to_owned() };
    let refused = DescriptorStatus {
        code: Code::OverLimit as i32,
        current_limit: Some(limit),
        limit_remaining: 7,
        duration_until_reset: Some(Duration { seconds: 90, nanos: 0 }),
    };
    let free =
        DescriptorStatus { code: Code::Ok as i32, limit_remaining: u32::MAX, ..DescriptorStatus::default() };
    let raw = HeaderValue { raw_value: Bytes::from_static(b"y"), ..HeaderValue::new("x", "") };
    let expected = RateLimitResponse {
        overall_code: Code::OverLimit as i32,
        statuses: vec![refused, free],
        response_headers_to_add: vec![HeaderValue::new("retry-after", "9")],
        request_headers_to_add: vec![raw],
        raw_body: Bytes::from_static(b"{}"),
        dynamic_metadata: None,
    };
    // The other implementation writes the name of a limit first; the order of fields has no meaning.
    assert_eq!(RateLimitResponse::decode(bytes(hex)).unwrap(), expected);
    let again = RateLimitResponse::decode(&*expected.encode_to_vec()).unwrap();
    assert_eq!(again, expected);
}

#[test]
fn dynamic_metadata() {
    let hex = "080132490a0e0a0161120911000000000000f83f0a080a016212031a01740a070a0163120220010a070a0164120208000a1b0a016512162a\
               140a120a0166120d320b0a0911000000000000f03f";
    let fields = |pairs: Vec<(&str, Value)>| Struct {
        fields: pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<BTreeMap<_, _>>(),
    };
    let metadata = fields(vec![
        ("a", Value::number(1.5)),
        ("b", Value::text("t")),
        ("c", Value { kind: Some(Kind::Bool(true)) }),
        ("d", Value { kind: Some(Kind::Null(0)) }),
        ("e", Value::object(fields(vec![("f", Value::list(vec![Value::number(1.0)]))]))),
    ]);
    let expected = RateLimitResponse {
        overall_code: Code::Ok as i32,
        dynamic_metadata: Some(metadata),
        ..RateLimitResponse::default()
    };
    same(hex, &expected);
}

#[test]
fn a_request_for_an_authorization() {
    let hex = "0a99010a1e0a100a0e12093139322e302e322e3718e724220a7370696666653a2f2f6112031201732260125e0a0231371204504f53541a08\
               0a03782d611201316a0a0a080a03782d621a01ff22062f703f713d312a086170692e746573743205687474707348ffffffffffffffffff01\
               5206485454502f325a0769676e6f726564620769676e6f72656452100a056c696d697412077065722d6b6579";
    let request = decode::authorization(bytes(hex)).unwrap();
    assert_eq!(request.source_address(), Some("192.0.2.7"));
    assert_eq!(request.context_extension("limit"), Some("per-key"));
    let source = request.attributes.as_ref().unwrap().source.as_ref().unwrap();
    assert_eq!(source.principal, "spiffe://a");
    assert_eq!(source.address.as_ref().unwrap().socket_address.as_ref().unwrap().port_value, 4711);
    let http = request.http().unwrap();
    assert_eq!(
        (&*http.id, &*http.method(), &*http.path(), &*http.host()),
        ("17", "POST", "/p?q=1", "api.test")
    );
    assert_eq!((&*http.scheme, &*http.protocol), ("https", "HTTP/2"));
    let fields: Vec<_> = http.header_fields().collect();
    assert_eq!(fields, [(&b"x-a"[..], &b"1"[..]), (b"x-b", b"\xff")]);
}

#[test]
fn answers_to_authorizations() {
    let headers = vec![HeaderValueOption::set("retry-after", "3")];
    let denied = CheckResponse::denied(8, 429, headers, "no".to_owned());
    same("0a020808121f0a0308ad0312140a100a0b72657472792d616674657212013318021a026e6f", &denied);
    let ok =
        CheckResponse::ok(vec![HeaderValueOption::set("a", "b")], vec![HeaderValueOption::set("c", "d")]);
    same("0a001a18120a0a060a01611201621802320a0a060a01631201641802", &ok);
}

#[test]
fn health() {
    assert_eq!(decode::health(bytes("0a0173")).unwrap().service, "s");
    same("0801", &HealthCheckResponse::of(ServingStatus::Serving));
    same("0802", &HealthCheckResponse::of(ServingStatus::NotServing));
}
