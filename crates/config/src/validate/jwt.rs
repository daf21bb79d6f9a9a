//! Validates `auth.jwt`.

use std::time::Duration;

use http::{HeaderName, header};

use super::checks::{between, empty, exactly_one, header_name, secret, value};
use super::http_url::{Words, ca_needs_tls, http_url};
use crate::model::jwt::{JwksUrl, JwtConfig, JwtKeys};
use crate::raw::jwt::{RawJwks, RawJwt};
use crate::raw::scalars::RawSecret;
use crate::read::at::{At, Folder};
use crate::read::is_wrong;
use crate::read::report::{Place, Problem, Report};
use crate::read::{Named, OneOrMany};

const LEEWAY: Duration = Duration::from_secs(30);
const MAX_LEEWAY: Duration = Duration::from_secs(3600);
const REFRESH: Duration = Duration::from_secs(600);
const DAY: Duration = Duration::from_secs(86_400);
const WORDS: Words = Words {
    example: "https://id.example.com/.well-known/jwks.json",
    of: "a JWK set",
    risk: Some("keys that come over http:// can be anybody's"),
};
/// Headers that frame or route the message, or that the gateway sets itself.
const RESERVED: [&str; 14] = [
    "connection",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-consumer-name",
    "x-consumer-plan",
    "x-real-ip",
    "x-request-id",
];

/// Whether a header frames or routes the message, or is set by the gateway itself.
pub(super) fn is_reserved(header: &HeaderName) -> bool {
    let plain = header.as_str().replace('_', "-"); // as many servers read it
    RESERVED.contains(&plain.as_str()) || plain.starts_with("proxy-") || plain.starts_with("x-forwarded-")
}

pub(super) fn jwt(
    At { at, value: raw }: &At<RawJwt>,
    folder: Folder<'_>,
    report: &mut Report,
) -> Option<JwtConfig> {
    let header =
        raw.header.as_ref().map_or(Some(header::AUTHORIZATION), |text| value(text, report, header_name));
    let audience = audience(raw.audience.as_ref(), report);
    for (name, text) in
        [("issuer", &raw.issuer), ("user_claim", &raw.user_claim), ("plan_claim", &raw.plan_claim)]
    {
        if let Some(text) = text.as_ref().filter(|text| text.value.is_empty()) {
            empty(text.at, name, "leave it out, or say what it is", report);
        }
    }
    let leeway = raw.leeway.as_ref().map_or(Some(LEEWAY), |text| {
        between(text, "leeway", (Duration::ZERO, "0s"), (MAX_LEEWAY, "1h"), report)
    });
    let forward = forward(raw.forward.as_ref(), header.as_ref(), report);
    let keys = keys(*at, raw, folder, report);
    if audience.is_empty() && raw.audience.is_none() && !is_wrong!(raw, audience) {
        report.warning(
            Problem::new(*at, "tokens that are meant for other services are accepted here too")
                .help("name yours: `audience: api`, as the issuer writes it into the claim aud"),
        );
    }
    // A wrong field is reported and gets its default, so that key files are checked as well.
    Some(JwtConfig {
        header: header.unwrap_or(header::AUTHORIZATION),
        issuer: raw.issuer.as_ref().map(|text| text.value.clone()),
        audience,
        keys: keys?,
        user_claim: raw.user_claim.as_ref().map_or("sub", |text| &text.value).to_owned(),
        plan_claim: raw.plan_claim.as_ref().map(|text| text.value.clone()),
        leeway: leeway.unwrap_or(LEEWAY),
        require_exp: raw.require_exp.as_ref().is_none_or(|require| require.value),
        required: raw.required.as_ref().is_some_and(|required| required.value),
        forward,
    })
}

fn audience(raw: Option<&At<OneOrMany<At<String>>>>, report: &mut Report) -> Vec<String> {
    let Some(raw) = raw else { return Vec::new() };
    if raw.value.0.is_empty() || raw.value.0.iter().any(|text| text.value.is_empty()) {
        empty(raw.at, "audience", "leave it out, or say what it is", report);
    }
    raw.value.0.iter().map(|text| text.value.clone()).collect()
}

/// The headers in which the upstream is told claims; `token` is the header that tokens come in.
pub(super) fn forward(
    raw: Option<&At<Named<At<String>>>>,
    token: Option<&HeaderName>,
    report: &mut Report,
) -> Vec<(HeaderName, String)> {
    let mut headers: Vec<(HeaderName, String)> = Vec::new();
    for (name, claim) in raw.map_or(&[][..], |forward| &forward.value.0) {
        let Some(header) = value(name, report, header_name) else { continue };
        if is_reserved(&header) || token == Some(&header) {
            report.error(
                name.problem(format!("a claim cannot be forwarded as `{}`", name.value)).help(
                    "that header means something else already; take a name of your own, such as X-User",
                ),
            );
        } else if headers.iter().any(|(other, _)| *other == header) {
            report.error(name.problem(format!("`{}` is given twice", name.value)));
        } else if let Some(claim) = claim {
            if claim.value.is_empty() {
                report.error(claim.problem("the claim needs a name").help("such as `X-User: sub`"));
            }
            headers.push((header, claim.value.clone()));
        }
    }
    headers
}

fn keys(at: Place, raw: &RawJwt, folder: Folder<'_>, report: &mut Report) -> Option<JwtKeys> {
    let given = [
        ("jwks", raw.jwks.as_ref().map(|jwks| jwks.at)),
        ("secret", raw.secret.as_ref().map(|secret| secret.at)),
        ("public_key", raw.public_key.as_ref().map(|key| key.at)),
    ];
    let helps = [
        "such as `jwks: {url: https://id.example.com/.well-known/jwks.json}`",
        "keep one of them: tokens are signed by one issuer, in one way",
    ];
    exactly_one(at, "auth.jwt", given, helps, &raw.wrong, report);
    let jwks = raw.jwks.as_ref().and_then(|jwks| self::jwks(jwks, folder, report));
    let mut text = |raw: Option<&At<RawSecret>>| {
        let raw = raw?;
        Some(At { at: raw.at, value: secret(Some(raw), folder, report)? })
    };
    let secret = text(raw.secret.as_ref()).map(JwtKeys::Secret);
    let public = text(raw.public_key.as_ref()).map(JwtKeys::PublicKey);
    jwks.or(secret).or(public)
}

fn jwks(At { at, value: raw }: &At<RawJwks>, folder: Folder<'_>, report: &mut Report) -> Option<JwtKeys> {
    let refresh = raw.refresh.as_ref().map_or(Some(REFRESH), |text| {
        between(text, "refresh", (Duration::from_secs(1), "1s"), (DAY, "1d"), report)
    });
    let roots = raw.ca.as_ref().map(|path| folder.content(path, report));
    match (&raw.file, &raw.url) {
        (Some(_), Some(url)) => {
            report.error(url.problem("jwks has `file` and `url`").help("keep one of them"));
            None
        }
        (Some(path), None) => {
            for (name, at) in
                [("refresh", raw.refresh.as_ref().map(|t| t.at)), ("ca", raw.ca.as_ref().map(|t| t.at))]
            {
                if let Some(at) = at {
                    let problem = Problem::new(at, format!("`{name}` means nothing for a file"));
                    report.error(problem.help("remove it; a file is watched"));
                }
            }
            Some(JwtKeys::File(folder.file(path)))
        }
        (None, Some(url)) => {
            let url = value(url, report, |text| http_url(text, &WORDS))?;
            ca_needs_tls(raw.ca.as_ref(), &url, report);
            let refresh = refresh.unwrap_or(REFRESH);
            Some(JwtKeys::Url(JwksUrl { url, refresh, ca: roots.flatten() }))
        }
        (None, None) => {
            if !["file", "url"].iter().any(|name| raw.wrong.contains(name)) {
                report.error(
                    Problem::new(*at, "jwks needs `file` or `url`").help("such as `jwks: {file: jwks.json}`"),
                );
            }
            None
        }
    }
}
