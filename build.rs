//! What `sluicegate --version` reports besides the version: the commit and the profile.
//!
//! The commit is in `SLUICEGATE_COMMIT` where packages are built, because their sources may be without git. Otherwise git
//! is asked, except in the dev profile, where each commit would compile and link the program and its tests again.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The sources of the program, whose changes make a commit dirty.
const SOURCES: [&str; 5] = ["build.rs", "Cargo.toml", "Cargo.lock", "crates", "src"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SLUICEGATE_COMMIT");
    let given = std::env::var("SLUICEGATE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| is_optimised().then(commit_of_git).flatten());
    let commit = commit.as_deref().unwrap_or(if is_optimised() { "unknown" } else { "not recorded" });
    println!("cargo::rustc-env=SLUICEGATE_BUILD=commit {commit}, profile {}", profile());
}

/// Whether the profile inherits from `release`.
fn is_optimised() -> bool {
    std::env::var("PROFILE").is_ok_and(|profile| profile == "release")
}

/// The name of the profile, which cargo passes only as a part of a path: `…/PROFILE/build/PACKAGE-HASH/out`.
fn profile() -> String {
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let folder = out.ancestors().nth(3).and_then(Path::file_name).unwrap_or_default();
    match folder.to_str().unwrap_or_default() {
        "debug" => "dev".to_owned(),
        name => name.to_owned(),
    }
}

/// The commit of this folder, with `-dirty` if a file has been changed since; `None` without git or where the folder is part
/// of another repository.
fn commit_of_git() -> Option<String> {
    let here = std::env::var("CARGO_MANIFEST_DIR").ok()?;
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()?
        != Path::new(&here).canonicalize().ok()?
    {
        return None;
    }
    // A commit, a checkout and a reset each append to the log of HEAD; a changed source may make the tree dirty.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    for path in SOURCES.into_iter().chain([log.as_str()]).filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
    git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
