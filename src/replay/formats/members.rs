//! Where the members of JSON lines are that are not called as ours.

use std::str::FromStr;
use std::sync::LazyLock;

use serde_json::Value;
use sluicegate_wire::Headers;

use super::durations::Unit;
use super::line_error::{LineError, bad};
use super::request::{Format, Request, TimeOf, add_header, head, request_line};
use super::texts::address;
use super::times::of_text;
use sluicegate_auth::LogIdentity;

/// The names of our members, as `--map` takes them.
const NAMES: [&str; 13] = [
    "time",
    "client_ip",
    "method",
    "host",
    "path",
    "status",
    "bytes",
    "bytes_in",
    "duration",
    "headers",
    "consumer",
    "plan",
    "user",
];

/// Where the members of a JSON line are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    format: Format,
    /// Names of ours, each with the places where the value can be: names of members, divided by points.
    places: Vec<(&'static str, Vec<String>)>,
    time_of: TimeOf,
    unit: Unit,
    /// Members that begin so are headers of the request.
    header_prefix: &'static str,
}

/// The formats that are recognized: the members that tell them apart, and where what stands.
static KNOWN: LazyLock<Vec<(&[&str], Members)>> = LazyLock::new(|| {
    let of = |format, text: &str, time_of, unit, header_prefix| {
        let places = text.split_whitespace().filter_map(|pair| {
            let (name, places) = pair.split_once('=')?;
            let name = NAMES.iter().find(|known| **known == name)?;
            Some((*name, places.split('|').map(str::to_owned).collect()))
        });
        Members { format, places: places.collect(), time_of, unit, header_prefix }
    };
    vec![
        (
            &["ClientHost", "RequestMethod", "RequestPath"],
            of(
                Format::Traefik,
                "time=StartUTC|StartLocal|time client_ip=ClientHost|ClientAddr method=RequestMethod \
                 host=RequestHost|RequestAddr path=RequestPath status=DownstreamStatus bytes=DownstreamContentSize \
                 bytes_in=RequestContentSize duration=Duration",
                TimeOf::Arrival,
                Unit::Nanos,
                "request_",
            ),
        ),
        (
            &["request.uri", "request.remote_ip", "ts"],
            of(
                Format::Caddy,
                "time=ts client_ip=request.client_ip|request.remote_ip method=request.method host=request.host \
                 path=request.uri status=status bytes=size bytes_in=bytes_read duration=duration headers=request.headers",
                TimeOf::End,
                Unit::Seconds,
                "",
            ),
        ),
        (
            &["client_ip", "started_at", "request.uri"],
            of(
                Format::Kong,
                "time=started_at client_ip=client_ip method=request.method host=request.headers.host path=request.uri \
                 status=response.status bytes=response.size duration=latencies.request headers=request.headers \
                 consumer=consumer.username",
                TimeOf::Arrival,
                Unit::Millis,
                "",
            ),
        ),
        (
            &["remote_addr", "status"],
            of(
                Format::Nginx,
                "time=msec|time_iso8601|time_local|time|timestamp|@timestamp client_ip=remote_addr \
                 method=request_method|method host=http_host|host|server_name path=request_uri|uri|request \
                 status=status bytes=body_bytes_sent|bytes_sent duration=request_time",
                TimeOf::End,
                Unit::Seconds,
                "http_",
            ),
        ),
    ]
});

impl FromStr for Members {
    type Err = String;

    /// `time=ts,client_ip=request.client_ip,duration=took:ms`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (mut places, mut unit): (Vec<(&str, Vec<String>)>, _) = (Vec::new(), Unit::Seconds);
        for pair in text.split(',') {
            let Some((name, place)) = pair.split_once('=').filter(|(_, place)| !place.is_empty()) else {
                return Err(format!("`{pair}` is not NAME=MEMBER, such as time=ts"));
            };
            let Some(name) = NAMES.iter().copied().find(|known| *known == name) else {
                return Err(format!("`{name}` is not one of {}", NAMES.join(", ")));
            };
            let place = match place.rsplit_once(':').filter(|_| name == "duration") {
                Some((place, written)) => {
                    let known = Unit::ALL.iter().copied().find(|unit| unit.name() == written);
                    unit = known.ok_or_else(|| format!("`{written}` is not a unit: s, ms, us or ns"))?;
                    place
                }
                None => place,
            };
            if places.iter().any(|(known, _)| *known == name) {
                return Err(format!("`{name}` is there twice"));
            }
            places.push((name, vec![place.to_owned()]));
        }
        for needed in ["time", "client_ip", "path"] {
            if !places.iter().any(|(name, _)| *name == needed) {
                return Err(format!("`{needed}` is missing: say which member it is"));
            }
        }
        Ok(Self { format: Format::Mapped, places, time_of: TimeOf::Arrival, unit, header_prefix: "" })
    }
}

/// The format of a JSON line, which is first looked for where the last line was.
pub(super) fn recognized(line: &Value, last: Option<Format>) -> Option<&'static Members> {
    let fits = |(signature, _): &&(&[&str], Members)| signature.iter().all(|place| at(line, place).is_some());
    let of_last = KNOWN.iter().filter(|(_, members)| Some(members.format) == last).find(fits);
    of_last.or_else(|| KNOWN.iter().find(fits)).map(|(_, members)| members)
}

/// The names of the members of a line, for people.
pub(super) fn names(line: &Value) -> String {
    let all = line.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    all.take(12).collect::<Vec<_>>().join(", ")
}

/// The value at a place, whose name can have points itself.
fn at<'v>(line: &'v Value, place: &str) -> Option<&'v Value> {
    if let Some(value) = line.get(place) {
        return Some(value);
    }
    let (first, rest) = place.split_once('.')?;
    at(line.get(first)?, rest)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if matches!(text.as_str(), "" | "-") => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(all) => all.first().and_then(text),
        _ => None,
    }
}

impl Members {
    /// The format whose members these are.
    pub(super) const fn format(&self) -> Format {
        self.format
    }

    fn value(&self, line: &Value, name: &str) -> Option<String> {
        let (_, places) = self.places.iter().find(|(known, _)| *known == name)?;
        places.iter().find_map(|place| at(line, place).and_then(text))
    }

    /// The request of a line.
    pub(super) fn request(&self, line: &Value) -> Result<Request, LineError> {
        let wanted = |name: &str| {
            let place = || {
                self.places.iter().find(|(known, _)| *known == name).map(|(_, places)| places.join(" or "))
            };
            self.value(line, name).ok_or_else(|| LineError(format!("no `{}`", place().unwrap_or_default())))
        };
        let (method, path) = match (self.value(line, "method"), wanted("path")?) {
            (Some(method), path) => (method, path),
            // nginx' `$request` is the whole line.
            (None, path) => match request_line(&path) {
                Ok((method, target)) => (method.to_owned(), target.to_owned()),
                Err(_) => ("GET".to_owned(), path),
            },
        };
        let headers = self.headers(line);
        let parts = head(&method, &path, self.value(line, "host").as_deref(), headers)?;
        let client = wanted("client_ip")?;
        let time = wanted("time")?;
        let number = |name: &str| self.value(line, name).and_then(|value| value.parse::<u64>().ok());
        let identity = LogIdentity {
            consumer: self.value(line, "consumer"),
            plan: self.value(line, "plan"),
            user: self.value(line, "user"),
            key: None,
        };
        let request = Request::new(self.format, (of_text(&time)?, self.time_of), address(&client)?, parts);
        Ok(Request {
            coarse: self.time_of == TimeOf::End && !time.contains('.'),
            duration: self.value(line, "duration").and_then(|took| self.unit.parse(&took)),
            received: number("bytes_in"),
            identity: (identity != LogIdentity::default()).then(|| Box::new(identity)),
            ..request
        }
        .answered(number("status"), number("bytes")))
    }

    fn headers(&self, line: &Value) -> Headers {
        let mut headers = Headers::new();
        let mut add = |name: &str, value: &Value| {
            let name = name.to_ascii_lowercase().replace('_', "-");
            if let Some(value) = text(value).filter(|_| name != "host") {
                add_header(&mut headers, &name, &value);
            }
        };
        let place = self.places.iter().find(|(known, _)| *known == "headers");
        let of_object = place.and_then(|(_, places)| at(line, &places[0])).and_then(Value::as_object);
        of_object.into_iter().flatten().for_each(|(name, value)| add(name, value));
        if !self.header_prefix.is_empty() {
            for (name, value) in line.as_object().into_iter().flatten() {
                if let Some(name) = name.strip_prefix(self.header_prefix) {
                    add(name, value);
                }
            }
        }
        headers
    }
}

/// Why a JSON line has no format that is known.
pub(super) fn unknown<T>(line: &Value, why: &str) -> Result<T, LineError> {
    bad(format!(
        "{why}; its members are {}: say which are ours with --map time=…,client_ip=…,path=…",
        names(line)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_names_members() {
        let members: Members =
            "time=@t,client_ip=who.ip,path=url,duration=took:ms,user=who.name".parse().unwrap();
        let line = serde_json::json!({
            "@t": 1_719_850_000_250_u64, "who": {"ip": "203.0.113.9", "name": "ann"}, "url": "/a", "took": 12,
        });
        let request = members.request(&line).unwrap();
        assert_eq!(request.time.as_nanos(), 1_719_850_000_250_000_000);
        assert_eq!((request.client.to_string().as_str(), request.parts.target.path()), ("203.0.113.9", "/a"));
        assert_eq!(request.duration.map(|(span, _)| span.as_nanos()), Some(12_000_000));
        assert_eq!(request.identity.unwrap().user.as_deref(), Some("ann"));
        for (wrong, why) in [
            ("", "NAME=MEMBER"),
            ("time=ts", "client_ip"),
            ("time=ts,time=t,client_ip=c,path=p", "twice"),
            ("when=ts", "not one of"),
            ("time=ts,client_ip=c,path=p,duration=d:min", "not a unit"),
        ] {
            assert!(wrong.parse::<Members>().unwrap_err().contains(why), "{wrong}");
        }
    }
}
