//! An explanation as text for a terminal.

use std::fmt::Write;

use super::Explanation;

impl Explanation {
    /// The explanation in lines.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |label: &str, value: &str| _ = writeln!(out, "{label:<12}{value}");
        if let Some(id) = &self.request_id {
            line("request", &format!("{id}, {}", self.at.as_deref().unwrap_or("at an unknown time")));
        }
        let status =
            self.status.map_or_else(|| "the upstream answers".to_owned(), |status| status.to_string());
        let why = [self.reason.as_deref(), self.limit.as_deref(), self.detail.as_deref()];
        let why: Vec<&str> = why.into_iter().flatten().collect();
        let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
        line("outcome", &format!("{}{why}: {status}", self.outcome));
        line("route", self.route.as_deref().unwrap_or("none"));
        if let Some(client) = self.client {
            line("client", &format!("{client}: {}", self.client_why));
        }
        if let Some(consumer) = &self.consumer {
            let plan = self.plan.as_ref().map_or_else(String::new, |plan| format!(", plan {plan}"));
            line("consumer", &format!("{consumer}{plan}"));
        }
        for limit in &self.limits {
            let key = limit.key.as_deref().unwrap_or("no key");
            let left = match (limit.remaining, limit.capacity, limit.reset) {
                (Some(remaining), Some(capacity), Some(reset)) => {
                    format!("{remaining} of {capacity} left, full again in {reset:.3} s")
                }
                _ => "not asked".to_owned(),
            };
            let rule = limit.rule.as_ref().map_or_else(String::new, |rule| format!("; rule {rule}"));
            let retry =
                limit.retry_after.map_or_else(String::new, |wait| format!("; retry after {wait:.3} s"));
            let why = limit.why.as_ref().map_or_else(String::new, |why| format!("; {why}"));
            let candidate = if limit.candidate { " (candidate)" } else { "" };
            line(
                "limit",
                &format!("{}{candidate} {}: {key}: {left}{rule}{retry}{why}", limit.name, limit.outcome),
            );
        }
        for route in &self.passed_over {
            line("not", &format!("{}: {}", route.route, route.why));
        }
        for (name, value) in &self.headers {
            line("header", &format!("{name}: {value}"));
        }
        out
    }
}
