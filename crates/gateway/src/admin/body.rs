//! The bodies of changes.

use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;

use super::{Answer, problem};

/// How long the body of a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The body of a request as text.
pub(super) async fn body(request: Request<Incoming>, largest: usize) -> Result<String, Answer> {
    let reading = Limited::new(request.into_body(), largest).collect();
    let Ok(collected) = tokio::time::timeout(TIMEOUT, reading).await else {
        let why = format!("the body did not arrive within {} s", TIMEOUT.as_secs());
        return Err(problem(StatusCode::REQUEST_TIMEOUT, &why));
    };
    let too_large = |_| {
        problem(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("the body is incomplete, or larger than {largest} bytes"),
        )
    };
    let bytes = collected.map_err(too_large)?.to_bytes();
    String::from_utf8(bytes.to_vec()).map_err(|_| problem(StatusCode::BAD_REQUEST, "the body is not UTF-8"))
}
