//! `GET /explain`: what would happen to a request, or why one was refused.

use std::net::{IpAddr, Ipv4Addr};

use http::StatusCode;
use serde_json::json;

use super::query::{parameter, parameters};
use super::{Admin, Answer, problem, reply};
use crate::explain::{Explanation, Live, Question};
use sluicegate_observe::cut_answers::CutAnswer;

impl Admin {
    pub(super) async fn explain(&self, query: Option<&str>) -> Answer {
        let snapshot = self.shared.snapshot.load_full();
        let now = self.shared.clock.now();
        if let Some(id) = parameter(query, "request") {
            let explained = self.shared.refusals.find(&id, now);
            if let Some(cut) = self.shared.cuts.find(&id).filter(|_| explained.is_none()) {
                return cut_answer(&cut);
            }
            return match explained {
                Some(refusal) => reply(&json!(Explanation::of_refusal(&refusal, &snapshot))),
                None => problem(
                    StatusCode::NOT_FOUND,
                    "no request with this id was refused here within the last hour; under many refusals the oldest are \
                     forgotten earlier",
                ),
            };
        }
        let from = match parameter(query, "from").map(|from| from.parse::<IpAddr>()) {
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(Ok(from)) => from,
            Some(Err(_)) => return problem(StatusCode::BAD_REQUEST, "`from` is not an address"),
        };
        let Some(url) = parameter(query, "url") else {
            return problem(
                StatusCode::BAD_REQUEST,
                "say which request: `url`, and if needed `method`, `header`, `from`, `listener`, `consumer`; or `request`, the id of a \
                 refused request",
            );
        };
        let question = Question {
            method: parameter(query, "method").unwrap_or_else(|| "GET".to_owned()),
            url,
            headers: parameters(query, "header"),
            from,
            listener: parameter(query, "listener"),
            consumer: parameter(query, "consumer"),
        };
        let live = Live { store: self.store.borrow().clone(), clock: self.shared.clock };
        match snapshot.explain(&question, Some(&live), now).await {
            Ok(explanation) => reply(&json!(explanation)),
            Err(why) => problem(StatusCode::BAD_REQUEST, &why),
        }
    }
}

/// What is known of a request whose answer was cut: it was not refused, so that there are no limits to explain.
fn cut_answer(cut: &CutAnswer) -> Answer {
    let CutAnswer { reason, error, status, sent, .. } = cut;
    let error = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let why = format!(
        "the request was not refused; its answer with status {status} was cut after {sent} bytes: {}{error}",
        reason.name()
    );
    problem(StatusCode::NOT_FOUND, &why)
}
