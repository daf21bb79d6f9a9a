//! A response in JSON. Fields with their default value are left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value as Json, json};

use crate::wire::ratelimit::{Code, DescriptorStatus, RateLimit, RateLimitResponse, Unit};
use crate::wire::well_known::{Duration, HeaderValue, Kind, Struct, Value, text};

/// The body of a response. The status beside it is 429 if [`RateLimitResponse::is_over_limit`], and 200 otherwise.
pub fn response(response: &RateLimitResponse) -> String {
    let mut fields = Map::new();
    code(&mut fields, "overallCode", response.overall_code);
    list(&mut fields, "statuses", &response.statuses, status);
    list(&mut fields, "responseHeadersToAdd", &response.response_headers_to_add, header);
    list(&mut fields, "requestHeadersToAdd", &response.request_headers_to_add, header);
    if !response.raw_body.is_empty() {
        fields.insert("rawBody".to_owned(), STANDARD.encode(&response.raw_body).into());
    }
    if let Some(metadata) = &response.dynamic_metadata {
        fields.insert("dynamicMetadata".to_owned(), object(metadata));
    }
    Json::Object(fields).to_string()
}

fn status(status: &DescriptorStatus) -> Json {
    let mut fields = Map::new();
    code(&mut fields, "code", status.code);
    if let Some(current) = &status.current_limit {
        fields.insert("currentLimit".to_owned(), limit(current));
    }
    if status.limit_remaining != 0 {
        fields.insert("limitRemaining".to_owned(), status.limit_remaining.into());
    }
    if let Some(duration) = &status.duration_until_reset {
        fields.insert("durationUntilReset".to_owned(), seconds(duration).into());
    }
    Json::Object(fields)
}

fn limit(limit: &RateLimit) -> Json {
    let mut fields = Map::new();
    if !limit.name.is_empty() {
        fields.insert("name".to_owned(), limit.name.as_str().into());
    }
    if limit.requests_per_unit != 0 {
        fields.insert("requestsPerUnit".to_owned(), limit.requests_per_unit.into());
    }
    match Unit::try_from(limit.unit) {
        Ok(Unit::Unknown) => {}
        Ok(unit) => {
            fields.insert("unit".to_owned(), unit.name().to_uppercase().into());
        }
        Err(_) => {
            fields.insert("unit".to_owned(), limit.unit.into());
        }
    }
    Json::Object(fields)
}

fn header(header: &HeaderValue) -> Json {
    json!({"key": text(&header.key), "value": text(header.bytes())})
}

fn code(fields: &mut Map<String, Json>, name: &str, code: i32) {
    let json = match Code::try_from(code) {
        Ok(Code::Unknown) => return,
        Ok(Code::Ok) => "OK".into(),
        Ok(Code::OverLimit) => "OVER_LIMIT".into(),
        Err(_) => code.into(),
    };
    fields.insert(name.to_owned(), json);
}

fn list<T>(fields: &mut Map<String, Json>, name: &str, items: &[T], json: fn(&T) -> Json) {
    if !items.is_empty() {
        fields.insert(name.to_owned(), items.iter().map(json).collect());
    }
}

/// `1.500s`: with 0, 3, 6 or 9 decimals.
fn seconds(duration: &Duration) -> String {
    let decimals = format!("{:09}", duration.nanos.unsigned_abs());
    let mut decimals = decimals.as_str();
    while let Some(shorter) = decimals.strip_suffix("000") {
        decimals = shorter;
    }
    let sign = if duration.seconds < 0 || duration.nanos < 0 { "-" } else { "" };
    let point = if decimals.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{decimals}s", duration.seconds.unsigned_abs())
}

fn object(object: &Struct) -> Json {
    Json::Object(object.fields.iter().map(|(name, field)| (name.clone(), value(field))).collect())
}

fn value(value: &Value) -> Json {
    match &value.kind {
        None | Some(Kind::Null(_)) => Json::Null,
        Some(Kind::Number(number)) => whole_or_not(*number),
        Some(Kind::String(text)) => text.as_str().into(),
        Some(Kind::Bool(bool)) => (*bool).into(),
        Some(Kind::Struct(fields)) => object(fields),
        Some(Kind::List(list)) => list.values.iter().map(self::value).collect(),
    }
}

/// A number, without decimals if it needs none.
fn whole_or_not(number: f64) -> Json {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return Json::Number(Number::from(number as i64));
    }
    Number::from_f64(number).map_or(Json::Null, Json::Number)
}
