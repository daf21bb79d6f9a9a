//! What is asked for a request, and what it is answered.

use std::time::Duration;

use sluicegate_rls::descriptors::parse;
use sluicegate_rls::plan::{Ask, AskedLimit, Domains, Hits, Outcome, Plan, Planned};
use sluicegate_rls::wire::ratelimit::{
    Code, RateLimit, RateLimitDescriptor, RateLimitOverride, RateLimitResponse, Unit,
};
use sluicegate_rls::wire::status::Code as GrpcCode;
use sluicegate_rls::wire::well_known::{Kind, Struct, UInt64Value, Value};

use super::{descriptor, domain, request};

const OK: i32 = Code::Ok as i32;
const OVER: i32 = Code::OverLimit as i32;

fn domains(text: &str) -> Domains {
    Domains::new(vec![domain(text)]).unwrap()
}

fn outcome(admitted: bool) -> Outcome {
    Outcome { admitted, remaining: u64::from(admitted) * 3, reset: Duration::from_millis(1_500) }
}

/// The response if the limits decide so.
fn answer(plan: &Plan<'_>, admitted: &[bool]) -> RateLimitResponse {
    plan.answer(&admitted.iter().map(|one| outcome(*one)).collect::<Vec<_>>()).unwrap()
}

fn codes(response: &RateLimitResponse) -> (i32, Vec<i32>) {
    (response.overall_code, response.statuses.iter().map(|status| status.code).collect())
}

const FILE: &str = "
domain: d
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 5, name: users}}
  - {key: vip, rate_limit: {unit: minute, requests_per_unit: 50, replaces: [{name: users}]}}
  - {key: staff, rate_limit: {unlimited: true, replaces: [{name: users}]}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
";

#[test]
fn each_descriptor_has_its_status_and_one_refusal_refuses() {
    let domains = domains(FILE);
    let asked = request(
        "d",
        vec![descriptor(&[("user", "u")]), descriptor(&[("other", "")]), descriptor(&[("vop", "")])],
    );
    let plan = domains.plan(&asked).unwrap();
    assert!(plan.known_domain);
    assert_eq!(plan.descriptors, [Planned::Asked(0), Planned::NoMatch, Planned::NoMatch]);
    let response = answer(&plan, &[true]);
    assert_eq!(codes(&response), (OK, vec![OK, OK, OK]));
    let status = &response.statuses[0];
    let limit = RateLimit { requests_per_unit: 5, unit: Unit::Minute as i32, name: "users".to_owned() };
    assert_eq!((status.current_limit.as_ref(), status.limit_remaining), (Some(&limit), 3));
    assert_eq!(status.duration_until_reset.unwrap().seconds, 2); // rounded up
    assert_eq!((&response.statuses[1].current_limit, response.statuses[1].limit_remaining), (&None, 0));
    assert_eq!(codes(&answer(&plan, &[false])), (OVER, vec![OVER, OK, OK]));
    assert_eq!(plan.answer(&[]).unwrap_err().code, GrpcCode::Internal);
}

#[test]
fn a_limit_replaces_others_of_the_same_request() {
    let domains = domains(FILE);
    let of = |first: &str| {
        request(
            "d",
            vec![descriptor(&[("user", "u")]), descriptor(&[(first, "x")]), descriptor(&[("user", "v")])],
        )
    };
    let vip = of("vip");
    let plan = domains.plan(&vip).unwrap();
    assert_eq!(plan.descriptors, [Planned::Replaced, Planned::Asked(0), Planned::Replaced]);
    assert_eq!((plan.asks.len(), plan.asks[0].descriptor), (1, 1));
    assert_eq!(codes(&answer(&plan, &[false])), (OVER, vec![OK, OVER, OK]));
    let staff = of("staff");
    let plan = domains.plan(&staff).unwrap();
    assert_eq!(plan.descriptors, [Planned::Replaced, Planned::Unlimited, Planned::Replaced]);
    let response = answer(&plan, &[]);
    assert_eq!((response.overall_code, response.statuses[1].limit_remaining), (OK, u32::MAX));
    assert_eq!(response.statuses[1].current_limit, None);
}

#[test]
fn shadow_mode_never_refuses() {
    let domains = domains(FILE);
    let asked = request("d", vec![descriptor(&[("trial", "t")])]);
    let response = answer(&domains.plan(&asked).unwrap(), &[false]);
    assert_eq!((codes(&response), response.statuses[0].limit_remaining), ((OK, vec![OK]), 0));
}

#[test]
fn an_unknown_domain_has_no_limits_not_even_those_of_requests() {
    let domains = domains(FILE);
    let limit = Some(RateLimitOverride { requests_per_unit: 1, unit: Unit::Day as i32 });
    let asked = request("e", vec![RateLimitDescriptor { limit, ..descriptor(&[("user", "u")]) }]);
    let plan = domains.plan(&asked).unwrap();
    assert_eq!((plan.known_domain, plan.descriptors.as_slice()), (false, &[Planned::NoMatch][..]));
    assert_eq!(codes(&answer(&plan, &[])), (OK, vec![OK]));
}

#[test]
fn a_limit_of_the_request_comes_before_lookup_and_shadow_mode() {
    let domains = domains(FILE);
    let with = |entries: &[(&str, &str)], unit: i32| {
        let limit = Some(RateLimitOverride { requests_per_unit: 9, unit });
        request("d", vec![RateLimitDescriptor { limit, ..descriptor(entries) }])
    };
    let asked = with(&[("trial", "t"), ("x", "y")], Unit::Hour as i32);
    let plan = domains.plan(&asked).unwrap();
    let expected = Ask {
        descriptor: 0,
        limit: AskedLimit::Override { requests_per_unit: 9, unit: Unit::Hour },
        key: "d|trial=t|x=y".to_owned(),
        hits: Hits { count: 1, negative: false },
    };
    assert_eq!(plan.asks, [expected]);
    let response = answer(&plan, &[false]);
    assert_eq!(codes(&response), (OVER, vec![OVER]));
    let limit = RateLimit { requests_per_unit: 9, unit: Unit::Hour as i32, name: String::new() };
    assert_eq!(response.statuses[0].current_limit, Some(limit));
    for unit in [0, -1, 8] {
        let error = domains.plan(&with(&[("user", "u")], unit)).unwrap_err();
        assert_eq!(error.code, GrpcCode::InvalidArgument, "{error}");
    }
}

#[test]
fn hits_are_those_of_the_descriptor_or_of_the_request() {
    let domains = domains(FILE);
    let hits = |of_request: u32, own: Option<u64>, is_negative_hits| {
        let hits_addend = own.map(|value| UInt64Value { value });
        let one = RateLimitDescriptor { hits_addend, is_negative_hits, ..descriptor(&[("user", "u")]) };
        let mut asked = request("d", vec![one]);
        asked.hits_addend = of_request;
        let plan = domains.plan(&asked).unwrap();
        (plan.asks[0].hits.count, plan.asks[0].hits.negative)
    };
    assert_eq!(hits(0, None, false), (1, false));
    assert_eq!(hits(7, None, false), (7, false));
    assert_eq!(hits(7, Some(0), false), (0, false));
    assert_eq!(hits(0, Some(5_000_000_000), true), (5_000_000_000, true));
}

#[test]
fn groups_of_quotas_refuse_only_together() {
    let domains = domains(
        "
domain: d
descriptors:
  - key: backend_name
    descriptors:
      - {key: model_name_override, quota_mode: true, metadata: {a: {x: 1}}, rate_limit: {unit: day, requests_per_unit: 5}}
      - key: model_name_override
        value: big
        quota_mode: true
        metadata: {a: {x: 2, y: 3}}
        rate_limit: {unit: day, requests_per_unit: 5}
  - {key: tenant, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: user, rate_limit: {unit: day, requests_per_unit: 5}}
",
    );
    let model = |name| descriptor(&[("backend_name", "b"), ("model_name_override", name)]);
    let asked = request("d", vec![model("small"), model("big"), descriptor(&[("user", "u")])]);
    let plan = domains.plan(&asked).unwrap();
    assert_eq!(codes(&answer(&plan, &[false, true, true])), (OK, vec![OVER, OK, OK]));
    assert_eq!(codes(&answer(&plan, &[false, false, true])), (OVER, vec![OVER, OVER, OK]));
    assert_eq!(codes(&answer(&plan, &[true, true, false])), (OVER, vec![OK, OK, OVER]));
    // Two of the same group: one of them is enough.
    let asked = request("d", vec![model("big"), model("big")]);
    assert_eq!(
        domains.plan(&asked).unwrap().answer(&[outcome(true), outcome(false)]).unwrap().overall_code,
        OVER
    );
    let asked = request("d", vec![descriptor(&[("tenant", "t")]), descriptor(&[("tenant", "u")])]);
    assert_eq!(
        domains.plan(&asked).unwrap().answer(&[outcome(true), outcome(false)]).unwrap().overall_code,
        OK
    );
}

fn field<'a>(object: &'a Struct, name: &str) -> &'a Struct {
    match &object.fields[name].kind {
        Some(Kind::Struct(found)) => found,
        other => panic!("{other:?}"),
    }
}

#[test]
fn metadata_says_what_has_passed() {
    let domains = domains(
        "
domain: d
descriptors:
  - key: backend_name
    value: one
    quota_mode: true
    metadata: {pool: {name: one, size: 1}, only: one}
    rate_limit: {unit: day, requests_per_unit: 5}
  - key: backend_name
    value: two
    quota_mode: true
    metadata: {pool: {name: two, zone: z}}
    rate_limit: {unit: day, requests_per_unit: 5}
",
    );
    let asked =
        request("d", vec![descriptor(&[("backend_name", "one")]), descriptor(&[("backend_name", "two")])]);
    let plan = domains.plan(&asked).unwrap();
    let both = answer(&plan, &[true, true]).dynamic_metadata.unwrap();
    let pool = field(field(&both, "metadata"), "pool");
    let text = |text: &str| Value::text(text);
    assert_eq!((&pool.fields["name"], &pool.fields["zone"]), (&text("one"), &text("z")));
    let one = answer(&plan, &[false, true]).dynamic_metadata.unwrap();
    assert_eq!(field(field(&one, "metadata"), "pool").fields["name"], text("two"));
    let backend = Value::object(Struct {
        fields: [("backend_name".to_owned(), text("two")), ("model_name_override".to_owned(), text(""))]
            .into(),
    });
    assert_eq!(one.fields["passedBackends"], Value::list(vec![backend]));
    assert_eq!(one.fields["domain"], text("d"));
    // Nothing is sent where no limit has metadata or a quota.
    let plain = self::domains(FILE);
    let asked = request("d", vec![descriptor(&[("user", "u")])]);
    assert_eq!(answer(&plain.plan(&asked).unwrap(), &[true]).dynamic_metadata, None);
}

#[test]
fn rules_of_several_files_have_one_numbering() {
    let file = |name: &str| {
        format!(
            "domain: {name}\ndescriptors: [{{key: k, rate_limit: {{unit: day, requests_per_unit: 1}}}}]\n"
        )
    };
    let domains = Domains::new(vec![domain(&file("a")), domain(&file("b"))]).unwrap();
    let paths: Vec<_> = domains.rules().iter().map(|rule| rule.path.as_str()).collect();
    assert_eq!(paths, ["a.k", "b.k"]);
    let asked = request("b", vec![descriptor(&[("k", "v")])]);
    let plan = domains.plan(&asked).unwrap();
    assert_eq!((plan.asks[0].rule(), plan.rule(&plan.asks[0]).unwrap().path.as_str()), (Some(1), "b.k"));
    assert_eq!(domains.domain("b").unwrap().name(), "b");
    let twice = Domains::new(vec![domain(&file("a")), domain(&file("a"))]);
    assert_eq!(twice.unwrap_err(), "a");
}

#[test]
fn periods_that_are_no_unit_have_none() {
    assert_eq!(RateLimit::of_period(20, 15, "n").unit, Unit::Unknown as i32);
    assert_eq!(RateLimit::of_period(20, 60, "n").unit, Unit::Minute as i32);
}

#[test]
fn a_file_with_mistakes_has_no_domain() {
    let mut report = sluicegate_config::Report::default();
    assert!(parse("domain: d\ndescriptors: [{}]\n", &mut report).is_none());
}
