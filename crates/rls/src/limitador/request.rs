//! A question: what is to be counted, and in which namespace.

use std::collections::HashMap;

use serde::Deserialize;

use crate::json::object;
use crate::wire::decode;
use crate::wire::ratelimit::{Entry, RateLimitDescriptor, RateLimitRequest};
use crate::wire::status::Status;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The namespace whose limits apply.
    pub namespace: String,
    /// What conditions and variables refer to.
    pub descriptors: Vec<RateLimitDescriptor>,
    /// How much each limit that applies counts; 0 looks only.
    pub hits: u64,
    /// Whether the answer has rate limit headers.
    pub headers: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    namespace: String,
    values: HashMap<String, String>,
    delta: u64,
    response_headers: Option<String>,
}

impl Question {
    /// The question that the body of an HTTP request is. Its values are `descriptors[0]`.
    ///
    /// # Errors
    /// It is not such a question, or exceeds a bound of [`decode`].
    pub fn in_json(body: &[u8]) -> Result<Self, Status> {
        let read: Body = object(body)?;
        if read.namespace.is_empty() {
            return Err(Status::invalid("`namespace` is empty"));
        }
        let headers = match read.response_headers.as_deref() {
            None | Some("NONE") => false,
            Some("DraftVersion03") => true,
            Some(other) => {
                let text = format!("`response_headers` is NONE or DraftVersion03, not `{other}`");
                return Err(Status::invalid(text));
            }
        };
        let entries = read.values.into_iter().map(|(key, value)| Entry::new(key, value)).collect();
        let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
        let request = RateLimitRequest { domain: read.namespace, descriptors, hits_addend: 0 };
        decode::check(&request)?;
        Ok(Self { hits: read.delta, ..Self::of(request, headers) })
    }

    /// The question that a gRPC request is. As in limitador, only the request says how much is counted.
    pub fn of(request: RateLimitRequest, headers: bool) -> Self {
        let RateLimitRequest { domain, descriptors, hits_addend } = request;
        Self { namespace: domain, descriptors, hits: hits_addend.max(1).into(), headers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_a_question() {
        let body =
            r#"{"namespace":"web","values":{"user":"a"},"delta":0,"response_headers":"DraftVersion03"}"#;
        let question = Question::in_json(body.as_bytes()).unwrap();
        assert_eq!((question.namespace.as_str(), question.hits, question.headers), ("web", 0, true));
        assert_eq!(question.descriptors[0].entries, [Entry::new("user", "a")]);
        for (body, why) in [
            ("", "the body is not a request in JSON: EOF"),
            (r#"{"namespace":"web","values":{}}"#, "missing field `delta`"),
            (r#"{"namespace":"","values":{},"delta":1}"#, "`namespace` is empty"),
            (r#"["web",{},1,"NONE"]"#, "found a list"),
            (r#"{"namespace":"web","values":{},"delta":-1}"#, "invalid value"),
            (r#"{"namespace":"web","values":{},"delta":1,"deltas":1}"#, "unknown field `deltas`"),
            (r#"{"namespace":"web","values":{},"delta":1,"response_headers":"all"}"#, "not `all`"),
        ] {
            let status = Question::in_json(body.as_bytes()).unwrap_err();
            assert!(status.message.contains(why), "{}", status.message);
        }
    }
}
