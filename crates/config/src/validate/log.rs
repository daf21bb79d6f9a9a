//! The access log and traces.

use http::HeaderName;

use super::checks::{empty, value, word};
use super::share::share;
use crate::language::values;
use crate::model::api_key::ApiKeyConfig;
use crate::model::log::{
    Accept, AccessLogConfig, Field, Known, LogFormat, LogTarget, SHORT, Sample, Share, TraceConfig,
    is_secret_header, secret_parameters, usual_secret_parameters,
};
use crate::raw::log::{RawAccessLog, RawAccessLogFields, RawSample, RawTrace};
use crate::read::at::{At, Folder};
use crate::read::report::{Mistake, Report};

const BUFFER: u64 = 1 << 20;

pub(super) fn access_log(
    raw: Option<&At<RawAccessLog>>,
    folder: Folder<'_>,
    (api_key, token_headers): (&ApiKeyConfig, &[&HeaderName]),
    report: &mut Report,
) -> Option<AccessLogConfig> {
    let raw = match raw.map(|raw| &raw.value.0) {
        Some(None) => return None,
        Some(Some(raw)) => raw,
        None => {
            return Some(AccessLogConfig {
                target: LogTarget::Stdout,
                format: LogFormat::Short,
                fields: short(),
                redact: usual_secret_parameters(api_key),
                sample: Sample::ALL,
                buffer: BUFFER as usize,
                written: None,
            });
        }
    };
    let formats = [("json", LogFormat::Json), ("combined", LogFormat::Combined), ("short", LogFormat::Short)];
    let format = raw.format.as_ref().and_then(|text| word(text, "format", &formats, report));
    let fields = fields(raw, format, api_key, token_headers, report);
    let buffer = raw.buffer.as_ref().and_then(|text| {
        value(text, report, |text| match values::bytes(text)? {
            bytes @ 0x1_0000..=0x4000_0000 => Ok(bytes),
            _ => Err(Mistake::new(format!("`buffer` is between 64KiB and 1GiB, not {text}"))),
        })
    });
    let named = raw.redact.as_ref().map_or(&[][..], |names| &names.value.0);
    let is_off = |name: &At<String>| name.value == "off";
    let mut redact =
        if named.iter().any(is_off) { secret_parameters(api_key) } else { usual_secret_parameters(api_key) };
    redact.extend(named.iter().filter(|name| !is_off(name)).map(|name| name.value.clone()));
    let sample = raw.sample.as_ref().map_or(Sample::ALL, |sample| self::sample(&sample.value, report));
    if let Some(path) = raw.path.as_ref().filter(|path| path.value.is_empty()) {
        empty(path.at, "path", "write stdout, or the name of a file", report);
    }
    Some(AccessLogConfig {
        target: match raw.path.as_ref().map_or("stdout", |path| &path.value) {
            "stdout" => LogTarget::Stdout,
            file => LogTarget::File(folder.join(file)),
        },
        format: format.unwrap_or(LogFormat::Json),
        fields,
        redact,
        sample,
        buffer: buffer.unwrap_or(BUFFER) as usize,
        written: raw.path.as_ref().map(|path| At { at: path.at, value: () }),
    })
}

fn fields(
    raw: &RawAccessLogFields,
    format: Option<LogFormat>,
    api_key: &ApiKeyConfig,
    token_headers: &[&HeaderName],
    report: &mut Report,
) -> Vec<Field> {
    let is_short = format == Some(LogFormat::Short);
    let Some(all) = &raw.fields else {
        return if is_short { short() } else { Known::USUAL.iter().copied().map(Field::Known).collect() };
    };
    if is_short || format == Some(LogFormat::Combined) {
        let name = if is_short { "short" } else { "combined" };
        report.error(
            all.problem(format!("`fields` means nothing for the {name} format"))
                .help("it always has the same; use `format: json`"),
        );
    }
    if all.value.is_empty() {
        empty(all.at, "fields", "leave it out for the usual ones", report);
    }
    let mut fields = Vec::new();
    for text in &all.value {
        let Some(field) = field(text, api_key, token_headers, report) else { continue };
        match fields.contains(&field) {
            true => report.error(text.problem(format!("the field `{}` is given twice", text.value))),
            false => fields.push(field),
        }
    }
    fields
}

fn short() -> Vec<Field> {
    SHORT.iter().copied().map(Field::Known).collect()
}

fn field(
    text: &At<String>,
    api_key: &ApiKeyConfig,
    token_headers: &[&HeaderName],
    report: &mut Report,
) -> Option<Field> {
    if let Some(name) = text.value.strip_prefix("header:") {
        let name = super::key::header(text, name, report)?;
        if is_secret_header(&name, api_key, token_headers.iter().copied()) {
            report.error(
                text.problem(format!("the header `{name}` is a secret, and is never logged"))
                    .help("`consumer` and `user` say who it was"),
            );
            return None;
        }
        return Some(Field::Header(name));
    }
    if let Some(known) = Known::ALL.iter().find(|known| known.name() == text.value) {
        return Some(Field::Known(*known));
    }
    let problem = text.problem(format!("unknown field `{}`", text.value));
    let names = Known::ALL.iter().map(|known| known.name());
    report.error(problem.did_you_mean(&text.value, names.clone(), || {
        format!("known: {}, header:NAME", names.collect::<Vec<_>>().join(", "))
    }));
    None
}

fn sample(raw: &RawSample, report: &mut Report) -> Sample {
    let mut read = |text: &At<String>| value(text, report, share).unwrap_or(Share::ALL);
    match raw {
        RawSample::All(text) => {
            let share = read(text);
            Sample { ok: share, refused: share, error: share }
        }
        RawSample::Fields(fields) => {
            let mut of = |text: &Option<At<String>>| text.as_ref().map_or(Share::ALL, &mut read);
            Sample { ok: of(&fields.ok), refused: of(&fields.refused), error: of(&fields.error) }
        }
    }
}

pub(super) fn trace(raw: Option<&At<RawTrace>>, report: &mut Report) -> TraceConfig {
    let mut config = TraceConfig::default();
    let Some(raw) = raw.map(|raw| &raw.value) else { return config };
    let words =
        [("anybody", Accept::Anybody), ("trusted_proxies", Accept::Trusted), ("nobody", Accept::Nobody)];
    if let Some(text) = &raw.accept {
        config.accept = word(text, "accept", &words, report).unwrap_or(config.accept);
    }
    config.create = raw.create.as_ref().is_none_or(|create| create.value);
    if let Some(text) = &raw.sampled {
        config.sampled = value(text, report, share).unwrap_or(config.sampled);
        if !config.create {
            report.error(
                text.problem("`sampled` means nothing without `create`")
                    .help("whoever begins a trace says whether it is sampled"),
            );
        }
    }
    config
}

impl Sample {
    const ALL: Self = Self { ok: Share::ALL, refused: Share::ALL, error: Share::ALL };
}
