//! Limits for other proxies: the files of envoyproxy/ratelimit, and the limits that they add to the configuration.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluicegate_base::file;
use sluicegate_base::file_watch::{hex, sha256};
use sluicegate_config::{LimitConfig, Problem, Report, RlsConfig, RlsFiles};
use sluicegate_rls::descriptors::{Amount, Domain, parse};
use sluicegate_rls::plan::Domains;

/// The most files that a pattern stands for.
const MAX_FILES: usize = 1_000;
/// The most hits per unit that are counted; more are this many.
pub const MAX_HITS: u32 = sluicegate_limiter::MAX_COUNT as u32;
/// The longest name of a limit.
const MAX_NAME: usize = 64;
/// The limit of the rates that requests carry.
const OVERRIDE: &str = "rls.override";
/// Its rate, which no request has.
const OVERRIDE_RATE: (u32, u64) = (1, 1);

/// Limits for other proxies.
#[derive(Clone, Debug)]
pub struct RlsLimits {
    /// The domains with their rules.
    pub domains: Domains,
    /// For each rule the index of its limit in the configuration; `None` if it admits everything or nothing.
    pub limits: Vec<Option<usize>>,
    /// The index of the limit of the rates that requests carry.
    pub of_requests: usize,
    /// The files before they were read.
    pub stamps: RlsStamps,
}

/// The files of limits and their states: both change if anything in them may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RlsStamps(Vec<(PathBuf, Option<Stamp>)>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

impl RlsStamps {
    /// The files as they are now. It blocks.
    pub fn of(config: &RlsConfig) -> Self {
        let mut all = Vec::new();
        for files in &config.files {
            let paths = paths(files).unwrap_or_default();
            all.extend(paths.into_iter().map(|path| {
                let stamp = std::fs::metadata(&path).ok().as_ref().map(Stamp::of);
                (path, stamp)
            }));
        }
        Self(all)
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Reads the files, and adds their limits to those of the configuration; `None` if any of them cannot be used, which is
/// reported.
pub(super) fn load(
    config: &RlsConfig,
    limits: &mut Vec<LimitConfig>,
    report: &mut Report,
) -> Option<Arc<RlsLimits>> {
    let stamps = RlsStamps::of(config);
    let mut read: Vec<(PathBuf, Domain)> = Vec::new();
    let mut usable = true;
    for files in &config.files {
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
        for path in
            paths.into_iter().filter(|path| !read.iter().any(|(known, _)| known == path)).collect::<Vec<_>>()
        {
            match domain(files, &path, report) {
                Some(domain) => read.push((path, domain)),
                None => usable = false,
            }
        }
    }
    if !usable {
        return None;
    }
    let paths: Vec<_> = read.iter().map(|(path, domain)| (path.clone(), domain.name().to_owned())).collect();
    let domains = Domains::new(read.into_iter().map(|(_, domain)| domain).collect());
    let domains = domains
        .map_err(|name| {
            let of_name = paths.iter().filter(|(_, domain)| *domain == name).map(|(path, _)| path);
            let of_name: Vec<_> = of_name.map(|path| path.display().to_string()).collect();
            let problem = config.files.first().map(|files| {
                files
                    .written
                    .problem(format!("several files have the domain `{name}`: {}", of_name.join(", ")))
            });
            problem.into_iter().for_each(|problem| report.error(problem.help("a domain has one file")));
        })
        .ok()?;
    let indices = add(config, &domains, limits, report)?;
    let (hits, seconds) = OVERRIDE_RATE;
    let of_requests = config.limit(OVERRIDE, hits, seconds, false).ok()?;
    limits.push(of_requests);
    Some(Arc::new(RlsLimits { domains, limits: indices, of_requests: limits.len() - 1, stamps }))
}

/// Adds a limit for each rule.
fn add(
    config: &RlsConfig,
    domains: &Domains,
    limits: &mut Vec<LimitConfig>,
    report: &mut Report,
) -> Option<Vec<Option<usize>>> {
    let mut names: HashSet<String> = limits.iter().map(|limit| limit.name.clone()).collect();
    names.insert(OVERRIDE.to_owned());
    let mut usable = true;
    let mut indices = Vec::with_capacity(domains.rules().len());
    for rule in domains.rules() {
        let (hits, seconds) = match rule.amount {
            Amount::Limited { requests_per_unit: hits @ 1.., unit } => {
                (hits.min(MAX_HITS), unit.seconds().unwrap_or(1))
            }
            Amount::Limited { .. } | Amount::Unlimited => {
                indices.push(None);
                continue;
            }
        };
        // A limit with `quota_mode` refuses alone no request.
        let never_refuses = rule.shadow_mode || rule.quota_mode;
        match config.limit(&name(&rule.path, &mut names), hits, seconds, never_refuses) {
            Ok(limit) => limits.push(limit),
            Err(why) => {
                let text = format!("the limit `{}` cannot be counted: {why}", rule.path);
                let problem = config.files.first().map(|files| files.written.problem(text));
                problem.into_iter().for_each(|problem| report.error(problem));
                usable = false;
            }
        }
        indices.push(Some(limits.len().saturating_sub(1)));
    }
    usable.then_some(indices)
}

/// The name of the limit of a rule: `rls.` and its path. Characters that names do not have are replaced; then, and if it is too
/// long, a digest keeps it apart from others.
fn name(path: &str, names: &mut HashSet<String>) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let whole = format!("rls.{}", path.replace(|c| !is_allowed(c), "_"));
    let digest = hex(&sha256(path.as_bytes()));
    let with_digest = || format!("{}-{}", &whole[..whole.len().min(MAX_NAME - 9)], &digest[..8]);
    let is_same = whole.len() <= MAX_NAME && whole[4..] == *path;
    let name = if is_same && !names.contains(&whole) { whole.clone() } else { with_digest() };
    names.insert(name.clone());
    name
}

/// The files that a name or a pattern stands for, in the order of their names.
fn paths(files: &RlsFiles) -> Result<Vec<PathBuf>, String> {
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

fn domain(files: &RlsFiles, path: &Path, report: &mut Report) -> Option<Domain> {
    let text = match file::read_text(path, file::CONFIG) {
        Ok(text) => text,
        Err(error) => {
            report.error(files.written.problem(format!("cannot read {}: {error}", path.display())));
            return None;
        }
    };
    let mut of_file = Report::default();
    let domain = parse(&text, &mut of_file);
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
    domain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_names_of_their_own() {
        let mut names = HashSet::new();
        let mut of = |path: &str| name(path, &mut names);
        assert_eq!(of("web.client"), "rls.web.client");
        let odd = of("web.path_/a");
        assert!(odd.starts_with("rls.web.path__a-") && odd.len() == 24, "{odd}");
        assert_ne!(of("web.path_/a#2"), odd);
        let (one, other) = (of(&"a".repeat(100)), of(&"a".repeat(101)));
        assert_eq!((one.len(), other.len()), (64, 64));
        assert_ne!(one, other);
    }
}
