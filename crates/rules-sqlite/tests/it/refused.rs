//! Files that are not accepted, and stay as they are.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rusqlite::Connection;
use sluicegate_rules_sqlite::{OpenError, RuleFile};

use crate::common::{batch, place, put, rule};

/// A file with a thousand rules, closed in order.
fn rules(path: &Path) {
    let file = RuleFile::open(path).unwrap();
    file.write(batch((0..1_000).map(|n| put(rule(&format!("r{n}"), &format!("k{n}"), "note"))))).unwrap();
    drop(file);
    fs::remove_file(path.with_file_name("rules.db.lock")).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Opens a file that must be refused, and checks that nothing was written to it or, but for the lock, beside it.
fn refused(path: &Path) -> OpenError {
    let folder = path.parent().unwrap();
    let (content, mut beside) = (fs::read(path).unwrap(), names(folder));
    let error = RuleFile::open(path).unwrap_err();
    assert!(fs::read(path).unwrap() == content, "the file has changed");
    let mut after = names(folder);
    for names in [&mut beside, &mut after] {
        names.retain(|name| name != "rules.db.lock");
    }
    assert_eq!(after, beside);
    assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    error
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut content = fs::read(path).unwrap();
    change(&mut content);
    fs::write(path, content).unwrap();
}

#[test]
fn files_of_others() {
    let (folder, path) = place();
    for content in [&b"x"[..], b"limits:\n  api: 5/s\n", &[0; 8192], b"SQLite format 3\0"] {
        fs::write(&path, content).unwrap();
        let error = refused(&path);
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    }
    assert_eq!(names(folder.path()), ["rules.db"], "no lock beside a foreign file");
}

#[test]
fn databases_of_others() {
    for sql in
        ["CREATE TABLE t (x); PRAGMA application_id = 7", "PRAGMA journal_mode = WAL; CREATE TABLE t (x)"]
    {
        let (folder, path) = place();
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let error = refused(&path);
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("move this one away"), "{error}");
        assert_eq!(names(folder.path()), ["rules.db"]);
    }
}

#[test]
fn files_of_a_newer_release() {
    let (_folder, path) = place();
    rules(&path);
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 2").unwrap();
    let error = refused(&path);
    assert!(matches!(error, OpenError::Newer { found: 2, known: 1, .. }), "{error}");
}

#[test]
fn a_header_with_a_flipped_byte() {
    let (_folder, path) = place();
    rules(&path);
    for place in [0, 15, 16, 19, 21, 68] {
        edit(&path, |content| content[place] ^= 0x40);
        let error = refused(&path);
        assert!(matches!(error, OpenError::Foreign { .. } | OpenError::Corrupt { .. }), "{place}: {error}");
        edit(&path, |content| content[place] ^= 0x40);
    }
    assert_eq!(RuleFile::open(&path).unwrap().count().unwrap(), 1_000);
}

#[test]
fn a_file_that_ends_too_early() {
    for keep in [100, 4096, 8192, 12_345] {
        let (_folder, path) = place();
        rules(&path);
        edit(&path, |content| content.truncate(keep));
        let error = refused(&path);
        assert!(matches!(error, OpenError::Corrupt { .. } | OpenError::Foreign { .. }), "{keep}: {error}");
    }
}

#[test]
fn a_page_of_garbage() {
    let (_folder, path) = place();
    rules(&path);
    let original = fs::read(&path).unwrap();
    let garble = |page: usize, from: usize| {
        edit(&path, |content| content[page * 4096 + from..(page + 1) * 4096].fill(0xa5));
    };

    // The tables themselves cannot be read.
    garble(0, 100);
    assert!(matches!(refused(&path), OpenError::Corrupt { .. }));

    // Any other page is found if the file was not closed in order.
    fs::write(&path, &original).unwrap();
    let pages = original.len() / 4096;
    Connection::open(&path)
        .unwrap()
        .execute_batch("UPDATE meta SET value = '0' WHERE name = 'clean'")
        .unwrap();
    let unclean = fs::read(&path).unwrap();
    for page in 1..pages {
        fs::write(&path, &unclean).unwrap();
        garble(page, 0);
        let error = refused(&path);
        assert!(matches!(error, OpenError::Corrupt { .. }), "{page} of {pages}: {error}");
        assert!(error.to_string().contains(".recover"), "{error}");
    }

    // If it was, reading tells.
    fs::write(&path, &original).unwrap();
    garble(pages / 2, 0);
    if let Ok(file) = RuleFile::open(&path) {
        assert!(
            file.list(None, None, None, 10_000).is_err()
                || file.changes(0, 10_000).is_err()
                || index_is_bad(&file)
        );
    }
}

/// Whether a key is not found, or finding it says that the file is damaged.
fn index_is_bad(file: &RuleFile) -> bool {
    (0..1_000).any(|n| !file.exact("api", &[format!("k{n}")]).is_ok_and(|found| found.len() == 1))
}

#[test]
fn a_missing_table() {
    let (_folder, path) = place();
    rules(&path);
    Connection::open(&path).unwrap().execute_batch("DROP TABLE changes").unwrap();
    let error = refused(&path);
    assert!(matches!(&error, OpenError::Corrupt { detail, .. } if detail.contains("changes")), "{error}");
}

#[test]
fn what_is_no_regular_file() {
    let (folder, path) = place();
    rules(&path);
    let name = |name: &str| folder.path().join(name);
    symlink(&path, name("link")).unwrap();
    symlink(name("nowhere"), name("dangling")).unwrap();
    fs::create_dir(name("folder")).unwrap();
    assert!(Command::new("mkfifo").arg(name("pipe")).status().unwrap().success());
    let before = names(folder.path());
    for (name, path) in ["link", "dangling", "folder", "pipe"].map(|part| (part, name(part))) {
        let error = RuleFile::open(&path).unwrap_err();
        assert!(matches!(error, OpenError::NotRegular { .. }), "{name}: {error}");
    }
    assert_eq!(names(folder.path()), before);
    fs::hard_link(&path, name("second")).unwrap();
    assert!(matches!(refused(&path), OpenError::NotRegular { .. }));
}

#[test]
fn a_log_without_its_file_and_a_folder_that_does_not_exist() {
    let (folder, path) = place();
    fs::write(folder.path().join("rules.db-wal"), "frames").unwrap();
    assert!(matches!(RuleFile::open(&path).unwrap_err(), OpenError::StrayLog { .. }));
    assert!(!path.exists());
    let error = RuleFile::open(&folder.path().join("none/rules.db")).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}
