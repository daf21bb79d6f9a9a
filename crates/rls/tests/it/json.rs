//! `POST /json`.

use std::time::Duration;

use sluicegate_rls::json::{MAX_JSON, request, response};
use sluicegate_rls::plan::{Domains, Outcome};
use sluicegate_rls::wire::ratelimit::{RateLimitOverride, Unit};
use sluicegate_rls::wire::status::Code;

use super::{descriptor, domain};

#[test]
fn requests_are_read_in_both_spellings() {
    let camel =
        br#"{"domain": "d", "hitsAddend": 2, "descriptors": [{"entries": [{"key": "k", "value": "v"}],
        "limit": {"requestsPerUnit": 5, "unit": "MINUTE"}, "hitsAddend": "7", "isNegativeHits": true}]}"#;
    let snake =
        br#"{"domain": "d", "hits_addend": "2", "descriptors": [{"entries": [{"key": "k", "value": "v"}],
        "limit": {"requests_per_unit": "5", "unit": 2}, "hits_addend": 7, "is_negative_hits": true}]}"#;
    let read = request(camel).unwrap();
    assert_eq!(read, request(snake).unwrap());
    let one = &read.descriptors[0];
    assert_eq!((read.hits_addend, one.hits_addend.unwrap().value, one.is_negative_hits), (2, 7, true));
    assert_eq!(one.limit, Some(RateLimitOverride { requests_per_unit: 5, unit: Unit::Minute as i32 }));
    assert_eq!(one.entries, descriptor(&[("k", "v")]).entries);
    let nulls = br#"{"domain": "d", "hitsAddend": null, "descriptors": [{"entries": null, "limit": null, "hitsAddend": null}]}"#;
    assert_eq!(request(nulls).unwrap().descriptors[0], descriptor(&[]));
}

#[test]
fn other_bodies_are_refused_with_a_reason() {
    let said = |body: &str| request(body.as_bytes()).unwrap_err().message.into_owned();
    assert!(said("{").starts_with("the body is not a request in JSON: EOF"), "{}", said("{"));
    assert!(said(r#"{"domian": "d"}"#).contains("unknown field `domian`"));
    assert!(said(r#"{"hitsAddend": -1}"#).contains("a whole number"));
    assert!(
        said(r#"{"descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}"#).contains("a unit, such as MINUTE")
    );
    assert_eq!(said("{}"), "the request has no domain");
    assert_eq!(said(r#"{"domain": "d"}"#), "the request has no descriptors");
    assert_eq!(request(&vec![b' '; MAX_JSON + 1]).unwrap_err().code, Code::ResourceExhausted);
}

#[test]
fn responses_are_written_as_proto3_writes_them() {
    let file = "domain: d\ndescriptors:\n- {key: k, metadata: {a: [1, x, 1.5, true, ~]}, rate_limit: {unit: week, \
                requests_per_unit: 5, name: n}}\n";
    let domains = Domains::new(vec![domain(file)]).unwrap();
    let asked =
        request(br#"{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}, {}]}"#)
            .unwrap();
    let plan = domains.plan(&asked).unwrap();
    let decided = |admitted, remaining, millis| {
        let outcome = Outcome { admitted, remaining, reset: Duration::from_millis(millis) };
        plan.answer(&[outcome]).unwrap().with_response_headers([("retry-after", "3")])
    };
    let refused = decided(false, 0, 2_001);
    assert!(refused.is_over_limit());
    assert_eq!(
        response(&refused),
        r#"{"dynamicMetadata":{"descriptors":[{"entries":["k=v"]},{"entries":[]}],"domain":"d"},"overallCode":"OVER_LIMIT","responseHeadersToAdd":[{"key":"retry-after","value":"3"}],"statuses":[{"code":"OVER_LIMIT","currentLimit":{"name":"n","requestsPerUnit":5,"unit":"WEEK"},"durationUntilReset":"3s"},{"code":"OK"}]}"#
    );
    let admitted = response(&decided(true, 4, 0));
    assert!(admitted.contains(r#""metadata":{"a":[1,"x",1.5,true,null]}"#), "{admitted}");
    assert!(admitted.contains(r#""durationUntilReset":"0s","limitRemaining":4"#), "{admitted}");
}
