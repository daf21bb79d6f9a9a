//! Files of other programs with limits for other proxies: what they hold, and whether they have changed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use sluicegate_base::file;
use sluicegate_base::file_watch::{Stamp, hex, sha256};
use sluicegate_config::{Config, LimitConfig, LimitFile, LimitFiles, Problem, Report};

/// The most files that a pattern stands for.
const MAX_FILES: usize = 1_000;
/// The most hits of a period that are counted; more are this many.
pub const MAX_HITS: u32 = sluicegate_limiter::MAX_COUNT as u32;
/// The longest name of a limit.
const MAX_NAME: usize = 64;

/// The files of limits and their states: both change if anything in them may have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitFileStamps(Vec<(PathBuf, Option<Stamp>)>);

impl LimitFileStamps {
    /// Whether a configuration has such files.
    pub fn has_files(config: &Config) -> bool {
        all_of(config).next().is_some()
    }

    /// The files as they are now. It blocks.
    pub fn of(config: &Config) -> Self {
        let mut all = Vec::new();
        for files in all_of(config).flat_map(|limits| &limits.files) {
            let paths = paths(files).unwrap_or_default();
            all.extend(paths.into_iter().map(|path| {
                let stamp = std::fs::metadata(&path).ok().as_ref().map(Stamp::of);
                (path, stamp)
            }));
        }
        Self(all)
    }
}

/// All files of a configuration.
fn all_of(config: &Config) -> impl Iterator<Item = &LimitFiles> {
    let rls = config.rls.iter().map(|rls| &rls.limits);
    rls.chain(config.limitador.iter().map(|limitador| &limitador.limits))
}

/// What the files hold, with their paths; `None` if any of them cannot be used, which is reported.
pub(super) fn read_all<T>(
    limits: &LimitFiles,
    report: &mut Report,
    parse: impl Fn(&str, &mut Report) -> Option<T>,
) -> Option<Vec<(PathBuf, T)>> {
    let mut read: Vec<(PathBuf, T)> = Vec::new();
    let mut usable = true;
    for files in &limits.files {
        let paths = match paths(files) {
            Ok(paths) => paths,
            Err(why) => {
                report.error(files.written.problem(why));
                usable = false;
                continue;
            }
        };
        if paths.is_empty() {
            report.warning(
                files
                    .written
                    .problem(format!("there is no file {}", files.written.value))
                    .help("the limits of a file come into force as soon as it is there"),
            );
        }
        for path in paths {
            if read.iter().any(|(known, _)| *known == path) {
                continue;
            }
            match read_one(files, &path, report, &parse) {
                Some(content) => read.push((path, content)),
                None => usable = false,
            }
        }
    }
    usable.then_some(read)
}

/// Reports what is wrong with several files together, at the first of them.
pub(super) fn problem(limits: &LimitFiles, text: String, help: Option<&str>, report: &mut Report) {
    let problem = limits.files.first().map(|files| files.written.problem(text));
    let problem = problem.into_iter().map(|problem| match help {
        Some(help) => problem.help(help),
        None => problem,
    });
    problem.for_each(|problem| report.error(problem));
}

/// A limit of files, as it is added to the configuration.
pub(super) struct NewLimit<'l> {
    /// What it is called in its file, which is the same over reloads.
    pub(super) path: &'l str,
    pub(super) hits: u32,
    pub(super) seconds: u64,
    /// Whether it never refuses.
    pub(super) shadow: bool,
    /// Whether all requests that it applies to have the same counter.
    pub(super) has_one_key: bool,
}

/// The most keys of a limit that has one: files have thousands of such limits, and a table for many keys takes 32 KiB. One more than
/// is used, because a table that is full is a reason for an alert.
const KEYS_OF_ONE: usize = 2;

/// Adds limits of files to those of the configuration, and returns the index of each; `None` for those that count nothing.
/// `section` is the one that names the files.
pub(super) fn add<'l>(
    section: &str,
    files: &LimitFiles,
    new: impl Iterator<Item = Option<NewLimit<'l>>>,
    limits: &mut Vec<LimitConfig>,
    report: &mut Report,
) -> Option<Vec<Option<usize>>> {
    let mut names: HashSet<String> = limits.iter().map(|limit| limit.name.clone()).collect();
    let mut usable = true;
    let mut indices = Vec::new();
    for new in new {
        let Some(NewLimit { path, hits, seconds, shadow, has_one_key }) = new else {
            indices.push(None);
            continue;
        };
        match files.limit(&name(section, path, &mut names), hits, seconds, shadow) {
            Ok(mut limit) => {
                if has_one_key {
                    limit.max_keys = limit.max_keys.min(KEYS_OF_ONE);
                }
                limits.push(limit);
            }
            Err(why) => {
                problem(files, format!("the limit `{path}` cannot be counted: {why}"), None, report);
                usable = false;
            }
        }
        indices.push(Some(limits.len().saturating_sub(1)));
    }
    usable.then_some(indices)
}

/// The name of a limit: that of the section, a dot and its path. Characters that names do not have are replaced; then, and if it is too
/// long, a digest keeps it apart from others.
fn name(section: &str, path: &str, names: &mut HashSet<String>) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let whole = format!("{section}.{}", path.replace(|c| !is_allowed(c), "_"));
    let with_digest = || {
        let digest = hex(&sha256(path.as_bytes()));
        format!("{}-{}", &whole[..whole.len().min(MAX_NAME - 9)], &digest[..8])
    };
    let is_same = whole.len() <= MAX_NAME && whole[section.len() + 1..] == *path;
    let name = if is_same && !names.contains(&whole) { whole.clone() } else { with_digest() };
    names.insert(name.clone());
    name
}

/// The files that a name or a pattern stands for, in the order of their names.
fn paths(files: &LimitFile) -> Result<Vec<PathBuf>, String> {
    if !files.is_pattern() {
        let path = files.folder.join(&files.name);
        return Ok(vec![path]);
    }
    let folder: &Path = if files.folder.as_os_str().is_empty() { Path::new(".") } else { &files.folder };
    let unread = |error: std::io::Error| format!("cannot read the folder {}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unread)? {
        let name = entry.map_err(unread)?.file_name();
        let Some(name) = name.to_str().filter(|name| !name.starts_with('.') && files.is_named(name)) else {
            continue;
        };
        let path = files.folder.join(name);
        if path.is_dir() {
            continue;
        }
        found.push(path);
        if found.len() > MAX_FILES {
            return Err(format!("{} stands for more than {MAX_FILES} files", files.written.value));
        }
    }
    found.sort();
    Ok(found)
}

/// What a file holds.
fn read_one<T>(
    files: &LimitFile,
    path: &Path,
    report: &mut Report,
    parse: &impl Fn(&str, &mut Report) -> Option<T>,
) -> Option<T> {
    let text = match file::read_text(path, file::CONFIG) {
        Ok(text) => text,
        Err(error) => {
            report.error(files.written.problem(format!("cannot read {}: {error}", path.display())));
            return None;
        }
    };
    let mut of_file = Report::default();
    let content = parse(&text, &mut of_file);
    of_file.sort();
    let name = path.display().to_string();
    let rendered = of_file.render(&name, &text);
    let problem = |message: String| -> Problem {
        let mut problem = files.written.problem(message);
        problem.details = rendered.trim_end().lines().map(str::to_owned).collect();
        problem
    };
    if !of_file.errors.is_empty() {
        report.error(problem(format!("{name} cannot be used")));
        return None;
    }
    if !rendered.is_empty() {
        report.warning(problem(format!("{name} has doubtful parts")));
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_names_of_their_own() {
        let mut names = HashSet::new();
        let mut of = |path: &str| name("rls", path, &mut names);
        assert_eq!(of("web.client"), "rls.web.client");
        let odd = of("web.path_/a");
        assert!(odd.starts_with("rls.web.path__a-") && odd.len() == 24, "{odd}");
        assert_ne!(of("web.path_/a#2"), odd);
        let (one, other) = (of(&"a".repeat(100)), of(&"a".repeat(101)));
        assert_eq!((one.len(), other.len()), (64, 64));
        assert_ne!(one, other);
    }
}
