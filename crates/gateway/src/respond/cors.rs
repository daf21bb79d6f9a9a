//! Cross-origin resource sharing (Fetch standard, §3.3): the headers that say which pages may read a response, and responses to
//! preflight requests.

use http::{StatusCode, header};

use super::problem::X_REQUEST_ID;
use sluicegate_base::message::{LocalBody, LocalResponse, RequestId};
use sluicegate_config::{CorsConfig, Origins};
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;
use sluicegate_wire::number::Decimal;

/// The headers of responses that the gateway sets.
const OWN: [&str; 3] =
    ["access-control-allow-origin", "access-control-allow-credentials", "access-control-expose-headers"];
/// The Vary of responses to preflight requests, besides the origin.
const ASKED: &str = "Access-Control-Request-Method, Access-Control-Request-Headers";

/// Sets the CORS headers of a response in place of those of the upstream. `origin` is that of the request.
pub fn share(cors: &CorsConfig, origin: Option<&[u8]>, headers: &mut Headers) {
    headers.remove_all(&OWN);
    let origin: &[u8] = match (&cors.origins, origin) {
        (Origins::Any, _) => b"*",
        (origins, origin) => {
            // A cache must not use the response to one origin for another one.
            if !varies(headers) {
                headers.append("vary", "Origin");
            }
            let Some(origin) = origin.filter(|origin| origins.admit(origin)) else { return };
            origin
        }
    };
    headers.append(OWN[0], origin);
    if cors.credentials {
        headers.append(OWN[1], "true");
    }
    headers.append(OWN[2], &cors.expose);
}

/// Whether the response says already that it depends on the origin.
fn varies(headers: &Headers) -> bool {
    let names = headers.get_all("vary").flat_map(|line| line.split(|b| *b == b','));
    names.map(<[u8]>::trim_ascii).any(|name| name == b"*" || name.eq_ignore_ascii_case(b"origin"))
}

/// The response to a preflight request; `cors` is the policy of the route of the actual request. An origin that is not admitted
/// gets no CORS headers, which browsers treat as a refusal.
#[cold]
pub fn preflight(cors: Option<&CorsConfig>, head: &RequestHead, id: &RequestId) -> LocalResponse {
    let mut response = LocalResponse::new(StatusCode::NO_CONTENT, LocalBody::Empty);
    let headers = &mut response.headers;
    headers.append(X_REQUEST_ID, id);
    headers.append("vary", ASKED);
    let asked = |name| head.headers.only(name);
    let admitted = cors.filter(|cors| asked(header::ORIGIN).is_some_and(|origin| cors.origins.admit(origin)));
    let Some(cors) = admitted else { return response };
    let mut allow = |name, configured: Option<&str>, asked: Option<&[u8]>| {
        let value = configured.map(str::as_bytes).or(asked).filter(|value| !value.is_empty());
        if let Some(value) = value {
            headers.append(name, value);
        }
    };
    allow(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        cors.methods.as_deref(),
        asked(header::ACCESS_CONTROL_REQUEST_METHOD),
    );
    allow(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        cors.headers.as_deref(),
        asked(header::ACCESS_CONTROL_REQUEST_HEADERS),
    );
    if let Some(seconds) = cors.max_age {
        headers.append(header::ACCESS_CONTROL_MAX_AGE, Decimal::new().format(seconds));
    }
    response
}
