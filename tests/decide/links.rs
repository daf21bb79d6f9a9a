//! Links of the documents lead somewhere: every relative link and every anchor in the Markdown files of the repository, and the
//! book has every page of docs, whose links stay in it.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use regex::Regex;

/// The Markdown files below a folder. Build results and folders of other programs are left out.
fn pages(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                pages(&path, found);
            }
        } else if name.ends_with(".md") {
            found.insert(path);
        }
    }
}

/// The lines outside of fenced blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let outside = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    };
    text.lines().filter(outside).collect()
}

/// The anchors of a page, as GitHub and mdBook make them from its headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for line in prose(text) {
        let Some(heading) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#')) else { continue };
        let Some(heading) = heading.strip_prefix(' ') else { continue };
        let words = link.replace_all(heading.trim(), "$1").to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name = kept.collect::<String>().replace(' ', "-");
        let before = seen.entry(name.clone()).or_default();
        all.insert(if *before == 0 { name.clone() } else { format!("{name}-{before}") });
        *before += 1;
    }
    all
}

/// The targets of the links of a page, inline and in definitions.
fn targets(text: &str) -> Vec<String> {
    let code = Regex::new("`+[^`]*`+").unwrap();
    let link = Regex::new(r"\]\(<?([^)\s>]+)[^)]*\)|^\[[^\]]+\]:\s+(\S+)").unwrap();
    let page = prose(text).join("\n");
    let page = code.replace_all(&page, "");
    page.lines()
        .flat_map(|line| link.captures_iter(line))
        .map(|found| found.get(1).or(found.get(2)).unwrap().as_str().to_owned())
        .collect()
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut all = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(all.pop(), "{} leaves the repository", path.display()),
            Component::CurDir => {}
            part => all.push(part),
        }
    }
    all
}

/// What is wrong with a link; nothing if it leads somewhere.
fn complaint(page: &Path, target: &str) -> Option<&'static str> {
    if ["https://", "http://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file = if path.is_empty() { page.to_owned() } else { normal(&page.parent().unwrap().join(path)) };
    if !file.exists() {
        return Some("no such file");
    }
    let anchor = anchor?;
    let known = file.extension().is_some_and(|kind| kind == "md")
        && anchors(&fs::read_to_string(&file).unwrap()).contains(anchor);
    (!known).then_some("no such anchor")
}

#[test]
fn every_link_leads_somewhere() {
    let mut all = BTreeSet::new();
    pages(Path::new("."), &mut all);
    assert!(all.len() > 50, "{all:?}");
    let mut wrong = String::new();
    for page in &all {
        for target in targets(&fs::read_to_string(page).unwrap()) {
            if let Some(why) = complaint(page, &target) {
                wrong += &format!("{}: {target}: {why}\n", page.display());
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn a_wrong_link_is_noticed() {
    let page = Path::new("docs/README.md");
    for right in [
        "configuration.md",
        "configuration.md#limits",
        "cookbook/README.md#before-you-begin",
        "https://example.com/#x",
    ] {
        assert_eq!(complaint(page, right), None, "{right}");
    }
    assert_eq!(complaint(page, "nowhere.md"), Some("no such file"));
    assert_eq!(complaint(page, "configuration.md#nowhere"), Some("no such anchor"));
    assert_eq!(complaint(page, "#nowhere"), Some("no such anchor"));
    let text = "[a](x.md) `[b](y.md)` [c](z.md \"title\")\n```\n[d](w.md)\n# no heading\n```\n# The `key` of a [limit](l.md)\n# Twice\n# Twice\n";
    assert_eq!(targets(text), ["x.md", "z.md", "l.md"]);
    assert_eq!(anchors(text), ["the-key-of-a-limit", "twice", "twice-1"].map(str::to_owned).into());
}

/// The list of pages from which mdBook makes the book.
#[test]
fn the_book_has_every_page() {
    let summary = Path::new("docs/SUMMARY.md");
    let listed: BTreeSet<PathBuf> = targets(&fs::read_to_string(summary).unwrap())
        .iter()
        .map(|target| normal(&Path::new("docs").join(target)))
        .collect();
    let mut all = BTreeSet::new();
    pages(Path::new("docs"), &mut all);
    all.remove(summary);
    assert_eq!(
        all.difference(&listed).collect::<Vec<_>>(),
        Vec::<&PathBuf>::new(),
        "missing in docs/SUMMARY.md"
    );
    for page in all {
        for target in targets(&fs::read_to_string(&page).unwrap()) {
            let inside =
                target.contains("://") || normal(&page.parent().unwrap().join(&target)).starts_with("docs");
            assert!(inside, "{}: {target} is not in the book", page.display());
        }
    }
}
