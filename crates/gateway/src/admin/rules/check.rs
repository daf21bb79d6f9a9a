//! What is wrong with a rule under the configuration in force, and which keys it is for.

use serde_json::{Value, json};
use sluicegate_limiter::Usage;
use sluicegate_rules::{Outcome, Pattern, Rule, RuleMode, canonical};

use crate::admin::Admin;
use crate::snapshot::Snapshot;
use sluicegate_config::{Mode, PartSource, nearest};
use sluicegate_route::keys::{self, Fingerprint, Forms, KeyText, stored_form};

/// Something that is wrong with one field of a rule.
pub(super) struct Fault {
    field: &'static str,
    detail: String,
}

impl Fault {
    pub(super) fn new(field: &'static str, detail: impl Into<String>) -> Self {
        Self { field, detail: detail.into() }
    }

    pub(super) fn text(&self) -> String {
        format!("{}: {}", self.field, self.detail)
    }

    pub(super) fn json(&self) -> Value {
        json!({ "field": self.field, "detail": self.detail })
    }
}

/// Whether a rule is for a pattern of keys.
pub(super) fn is_pattern(rule: &Rule) -> bool {
    Pattern::parse(&rule.key).is_some()
}

/// The keys that a rule for one key is for: most texts have one reading.
pub(super) fn keys_of(snapshot: &Snapshot, rule: &Rule) -> Vec<(Fingerprint, KeyText)> {
    let Some(limit) = snapshot.limit(&rule.limit) else { return Vec::new() };
    let prefix = snapshot.config.client_ip.ipv6_prefix;
    keys::from_text(&limit.config.key, &rule.key, prefix, &snapshot.secret)
}

/// A rule with its key in the form in which requests have it.
///
/// # Errors
/// If no request can have such a key.
pub(super) fn in_stored_form(snapshot: &Snapshot, rule: Rule) -> Result<Rule, Fault> {
    let Some((index, limit)) =
        snapshot.limits.iter().enumerate().find(|(_, one)| one.config.name == rule.limit)
    else {
        return Ok(Rule { key: canonical(&rule.key), ..rule }); // reported by `faults`
    };
    if rule.key.is_empty() {
        return Ok(rule); // the same
    }
    let mut routes = snapshot.config.routes.iter();
    let folds = !routes
        .any(|route| route.matches.exact_spelling && route.limits.iter().any(|limit| limit.index == index));
    let forms = Forms { ipv6_prefix: snapshot.config.client_ip.ipv6_prefix, folds };
    let form = stored_form(&limit.config.key, &rule.key, forms);
    let key =
        form.map_err(|why| Fault::new("key", format!("no request has the key `{}`: {why}", rule.key)))?;
    Ok(Rule { key: canonical(&key), ..rule })
}

/// Everything that is wrong with a rule.
pub(super) fn faults(snapshot: &Snapshot, rule: &Rule) -> Vec<Fault> {
    let own = rule.check().err().unwrap_or_default();
    let mut faults: Vec<Fault> =
        own.into_iter().map(|mistake| Fault::new(mistake.field, mistake.detail)).collect();
    let Some(limit) = snapshot.limit(&rule.limit) else {
        if !rule.limit.is_empty() {
            let known = snapshot.limits.iter().map(|limit| limit.config.name.as_str());
            let help = match nearest(&rule.limit, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "GET /limits has their names".to_owned(),
            };
            faults.push(Fault::new("limit", format!("there is no limit called `{}`: {help}", rule.limit)));
        }
        return faults;
    };
    if limit.config.key.parts().any(|part| part.source() == PartSource::Question) {
        let detail = format!(
            "the limit `{}` is one of a file of `rls`, which has no rules; change the file",
            rule.limit
        );
        faults.push(Fault::new("limit", detail));
        return faults;
    }
    if let (Mode::Off, Some(RuleMode::Enforce | RuleMode::Shadow)) = (limit.config.mode, rule.mode) {
        let detail =
            format!("the limit `{}` is off: no rule applies to it; change its mode in the file", rule.limit);
        faults.push(Fault::new("mode", detail));
    }
    if rule.rate.is_some() || rule.burst.is_some() || rule.max.is_some() {
        let field = match (&rule.rate, rule.burst) {
            (Some(_), _) => "rate",
            (None, Some(_)) => "burst",
            (None, None) => "max",
        };
        if let Err(why) = limit.config.with_numbers(rule.rate.as_deref(), rule.burst, rule.max) {
            faults.extend(why.into_iter().map(|detail| Fault::new(field, detail)));
        }
    }
    if !is_pattern(rule) && !rule.key.is_empty() && keys_of(snapshot, rule).is_empty() {
        let detail = format!(
            "`{}` cannot be a key of `{}`; a composite key is its values joined by commas",
            rule.key, rule.limit
        );
        faults.push(Fault::new("key", detail));
    }
    faults
}

impl Admin {
    /// What a change means for the keys that it is for: what they have left now.
    pub(super) async fn affected(&self, snapshot: &Snapshot, outcome: &Outcome) -> Vec<Value> {
        let Some(rule) = outcome.after.as_ref().or(outcome.before.as_ref()).map(|stored| &stored.rule) else {
            return Vec::new();
        };
        let Some(limit) = snapshot.limit(&rule.limit).filter(|_| !is_pattern(rule)) else {
            return Vec::new();
        };
        let with = outcome.after.as_ref().map(|stored| &stored.rule).filter(|rule| !rule.exempt);
        let quota =
            with.and_then(|rule| limit.config.with_numbers(rule.rate.as_deref(), rule.burst, rule.max).ok());
        let capacity = quota.unwrap_or(limit.config.quota).capacity();
        let keys = keys_of(snapshot, rule);
        if limit.config.shared {
            let usage = self.left_in_store(snapshot, limit, &keys).await;
            let row = |usage: Usage| json!({ "key": rule.key, "remaining": usage.remaining, "capacity_after": capacity });
            return usage.map(row).into_iter().collect();
        }
        let now = self.shared.clock.now();
        let of_key = |(key, _): &(Fingerprint, KeyText)| {
            let usage = limit.all().find_map(|limit| limit.counted.counters.usage(*key, now))?;
            let owed = limit.counted.counters.owed(*key, now);
            Some(json!({
                "key": rule.key,
                "remaining": usage.remaining,
                "owed": owed,
                "capacity_after": capacity,
            }))
        };
        keys.iter().filter_map(of_key).collect()
    }
}
