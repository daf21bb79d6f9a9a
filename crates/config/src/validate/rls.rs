//! The rate limit service for other proxies.

use super::checks::{missing, word};
use super::context::Context;
use super::limit::limit;
use super::quota::quota;
use super::section::Section;
use crate::Part;
use crate::model::cost::Cost;
use crate::model::key_spec::KeySpec;
use crate::model::limit::{LimitConfig, Mode};
use crate::model::rls::{OverLimit, RlsConfig, RlsFiles};
use crate::raw::RawLimit;
use crate::raw::rls::RawRls;
use crate::read::OneOrMany;
use crate::read::at::{At, Folder};
use crate::read::is_wrong;
use crate::read::report::Report;

/// Why a limit of a file cannot be counted.
const TOO_FAST: &str = "a shared limit cannot count that many hits in so short a time";

/// Reports limits of the file whose names are those of limits of other files.
fn check_names(limits: &Section<LimitConfig>, report: &mut Report) {
    for (name, _) in limits.valid().filter(|(name, _)| name.value.starts_with("rls.")) {
        report.error(
            name.problem(format!("`{}` could be a limit of the files of `rls`", name.value))
                .help("their names begin with `rls.`; choose another name"),
        );
    }
}

pub(super) fn rls(
    raw: &At<RawRls>,
    (folder, context): (Folder<'_>, Context<'_>),
    limits: &Section<LimitConfig>,
    report: &mut Report,
) -> Option<RlsConfig> {
    check_names(limits, report);
    let (at, raw) = (raw.at, &raw.value);
    let texts = raw.files.as_ref().map_or(&[][..], |files| &files.value.0);
    if texts.is_empty() {
        missing(at, "rls", ("files", "[ratelimit/*.yaml]"), &raw.wrong, report);
    }
    let files: Vec<_> = texts.iter().filter_map(|text| files(text, folder, report)).collect();
    let words = [("charge", OverLimit::Charge), ("keep", OverLimit::Keep)];
    let over_limit = raw.over_limit.as_ref();
    let over_limit =
        over_limit.map_or(Some(OverLimit::Charge), |text| word(text, "over_limit", &words, report));
    let algorithms = ["fixed_window", "token_bucket", "sliding_window"].map(|name| (name, name));
    let algorithm = raw.algorithm.as_ref();
    let algorithm =
        algorithm.map_or(Some("fixed_window"), |text| word(text, "algorithm", &algorithms, report));
    let text = |value: &str| At { at, value: value.to_owned() };
    let template = RawLimit {
        key: Some(At { at, value: OneOrMany(vec![text("global")]) }),
        rate: Some(text("1/s")),
        algorithm: Some(text(algorithm.unwrap_or("fixed_window"))),
        scope: raw.scope.clone(),
        sync: raw.sync.clone(),
        on_store_failure: raw.on_store_failure.clone(),
        max_keys: raw.max_keys.clone(),
        ..RawLimit::empty(at)
    };
    let template = limit(&text("rls"), &template, context, report);
    algorithm?;
    let over_limit = over_limit?;
    let mut template = template?;
    template.cost = Cost::Hits;
    template.key = KeySpec::new(vec![vec![Part::Descriptor]]);
    let complete = !texts.is_empty() && files.len() == texts.len() && !is_wrong!(raw, files);
    complete.then(|| RlsConfig { files, over_limit, template: Box::new(template) })
}

fn files(text: &At<String>, folder: Folder<'_>, report: &mut Report) -> Option<RlsFiles> {
    let path = folder.join(&text.value);
    let name = path.file_name().and_then(|name| name.to_str());
    let parent = path.parent().filter(|parent| !parent.to_string_lossy().contains('*'));
    let Some((name, parent)) = name.zip(parent).filter(|_| !text.value.ends_with('/')) else {
        report.error(
            text.problem("expected a file, or a pattern with `*` in the name of the file")
                .help("such as ratelimit/*.yaml"),
        );
        return None;
    };
    Some(RlsFiles { folder: parent.to_owned(), name: name.to_owned(), written: text.clone() })
}

impl RlsConfig {
    /// A limit of these files: so many hits in so many seconds. With `shadow` it never refuses.
    ///
    /// # Errors
    /// If it cannot be counted.
    pub fn limit(&self, name: &str, hits: u32, seconds: u64, shadow: bool) -> Result<LimitConfig, String> {
        let at = self.files.first().map_or(crate::read::report::Place::START, |files| files.written.at);
        let text = |value: String| At { at, value };
        let template = &*self.template;
        let written =
            RawLimit { rate: Some(text(format!("{hits}/{seconds}s"))), ..(*template.written).clone() };
        let mut report = Report::default();
        let quota = quota(&text(name.to_owned()), &written, &mut report);
        let why = || report.errors.first().map(|problem| problem.message.clone()).unwrap_or_default();
        let quota = quota.ok_or_else(why)?;
        if template.shared && !quota.fits_store() {
            return Err(TOO_FAST.to_owned());
        }
        let mode = if shadow { Mode::Shadow } else { template.mode };
        Ok(LimitConfig { name: name.to_owned(), quota, mode, written: written.into(), ..template.clone() })
    }
}
