//! Files of other programs with limits for other proxies.

use super::checks::{missing, word};
use super::context::Context;
use super::limit::limit;
use super::quota::quota;
use super::section::Section;
use crate::Part;
use crate::model::cost::Cost;
use crate::model::key_spec::KeySpec;
use crate::model::limit::{LimitConfig, Mode};
use crate::model::limit_files::{LimitFile, LimitFiles};
use crate::raw::RawLimit;
use crate::raw::scalars::{RawCount, RawText};
use crate::read::OneOrMany;
use crate::read::at::{At, Folder};
use crate::read::report::{Place, Report};

/// Why a limit of a file cannot be counted.
const TOO_FAST: &str = "a shared limit cannot count that many hits in so short a time";

/// What a section says about files of limits.
pub(super) struct Written<'r> {
    /// Its name, with which the names of its limits begin.
    pub(super) section: &'static str,
    pub(super) at: Place,
    pub(super) files: Option<&'r At<OneOrMany<At<RawText>>>>,
    /// An example of its files.
    pub(super) example: &'static str,
    /// The fields that are given and wrong.
    pub(super) wrong: &'r [&'static str],
    pub(super) algorithm: Option<&'r At<RawText>>,
    pub(super) scope: Option<&'r At<RawText>>,
    pub(super) sync: Option<&'r At<RawText>>,
    pub(super) on_store_failure: Option<&'r At<RawText>>,
    pub(super) max_keys: Option<&'r At<RawCount>>,
}

impl Written<'_> {
    /// The files, and what all of their limits have in common.
    pub(super) fn limit_files(
        &self,
        (folder, context): (Folder<'_>, Context<'_>),
        limits: &Section<LimitConfig>,
        report: &mut Report,
    ) -> Option<LimitFiles> {
        self.check_names(limits, report);
        let texts = self.files.map_or(&[][..], |files| &files.value.0);
        if texts.is_empty() {
            missing(self.at, self.section, ("files", self.example), self.wrong, report);
        }
        let files: Vec<_> = texts.iter().filter_map(|text| self.file(text, folder, report)).collect();
        let algorithms = ["fixed_window", "token_bucket", "sliding_window"].map(|name| (name, name));
        let algorithm =
            self.algorithm.map_or(Some("fixed_window"), |text| word(text, "algorithm", &algorithms, report));
        let text = |value: &str| At { at: self.at, value: value.to_owned() };
        let template = RawLimit {
            key: Some(At { at: self.at, value: OneOrMany(vec![text("global")]) }),
            rate: Some(text("1/s")),
            algorithm: Some(text(algorithm.unwrap_or("fixed_window"))),
            scope: self.scope.cloned(),
            sync: self.sync.cloned(),
            on_store_failure: self.on_store_failure.cloned(),
            max_keys: self.max_keys.cloned(),
            ..RawLimit::empty(self.at)
        };
        let mut template = limit(&text(self.section), &template, context, report)?;
        template.cost = Cost::Hits;
        template.key = KeySpec::new(vec![vec![Part::Descriptor]]);
        let complete = algorithm.is_some()
            && !texts.is_empty()
            && files.len() == texts.len()
            && !self.wrong.contains(&"files");
        complete.then(|| LimitFiles { files, template: Box::new(template) })
    }

    /// Reports limits of the configuration whose names are those of limits of these files.
    fn check_names(&self, limits: &Section<LimitConfig>, report: &mut Report) {
        let prefix = format!("{}.", self.section);
        for (name, _) in limits.valid().filter(|(name, _)| name.value.starts_with(&prefix)) {
            report.error(
                name.problem(format!("`{}` could be a limit of the files of `{}`", name.value, self.section))
                    .help(format!("their names begin with `{prefix}`; choose another name")),
            );
        }
    }

    fn file(&self, text: &At<String>, folder: Folder<'_>, report: &mut Report) -> Option<LimitFile> {
        let path = folder.join(&text.value);
        let name = path.file_name().and_then(|name| name.to_str());
        let parent = path.parent().filter(|parent| !parent.to_string_lossy().contains('*'));
        let Some((name, parent)) = name.zip(parent).filter(|_| !text.value.ends_with('/')) else {
            let example = self.example.trim_matches(['[', ']']);
            report.error(
                text.problem("expected a file, or a pattern with `*` in the name of the file")
                    .help(format!("such as {example}")),
            );
            return None;
        };
        Some(LimitFile { folder: parent.to_owned(), name: name.to_owned(), written: text.clone() })
    }
}

impl LimitFiles {
    /// A limit of these files: so many hits in so many seconds. With `shadow` it never refuses.
    ///
    /// # Errors
    /// If it cannot be counted.
    pub fn limit(&self, name: &str, hits: u32, seconds: u64, shadow: bool) -> Result<LimitConfig, String> {
        let at = self.files.first().map_or(Place::START, |files| files.written.at);
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
