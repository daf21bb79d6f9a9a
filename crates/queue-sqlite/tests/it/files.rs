//! Files that are not accepted, and stay as they are; files that cannot grow.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use sluicegate_queue::Message;
use sluicegate_queue_sqlite::{OpenError, QueueError, QueueFile};

use crate::common::{BOUNDS, LATER, LIMIT, NOW, accept, again, message, numbers, open, place};

/// The path of the file, for the child.
const FILE: &str = "QUEUE_SQLITE_TEST_FULL";

fn refused(path: &Path) -> OpenError {
    let content = fs::read(path).unwrap();
    let error = QueueFile::open(path, Duration::ZERO).unwrap_err();
    assert!(fs::read(path).unwrap() == content, "the file has changed");
    error
}

#[test]
fn files_of_others_are_refused() {
    let (_folder, path) = place();
    fs::write(&path, "orders").unwrap();
    let error = refused(&path);
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("is not a file of queued requests"), "{error}");
    fs::remove_file(&path).unwrap();
    rusqlite::Connection::open(&path).unwrap().execute_batch("PRAGMA application_id = 1397506887").unwrap();
    assert!(refused(&path).to_string().contains("a database of another program"), "a file of rules");
}

#[test]
fn a_queue_is_for_one_gateway() {
    let (_folder, path) = place();
    let file = open(&path);
    let error = QueueFile::open(&path, Duration::from_millis(30)).unwrap_err();
    assert!(error.to_string().contains("queue: {redis"), "{error}");
    accept(&file, message(1, "a"));
    file.release_lock();
    let next = open(&path);
    assert_eq!(file.accept(message(2, "a"), BOUNDS), Err(QueueError::Released));
    assert_eq!(numbers(&next.claim(LIMIT, NOW, LATER, 1).unwrap().claimed), [1]);
}

/// The child, which may write files of 512 kB only.
#[test]
fn child() {
    let Ok(path) = env::var(FILE) else { return };
    let file = open(Path::new(&path));
    accept(&file, message(1, "a"));
    let large = Message { request: vec![b'x'; 900 << 10], ..message(2, "a") };
    let error = file.accept(large, BOUNDS).unwrap_err();
    assert!(matches!(error, QueueError::Storage(_)), "{error}");
    accept(&file, message(3, "a"));
}

#[test]
fn a_full_disk_refuses_a_message_and_keeps_the_others() {
    let (_folder, path) = place();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\""]).arg(env::current_exe().unwrap());
    let mut child = again("files::child", shell, (FILE, &path));
    assert!(child.0.wait().unwrap().success());
    assert_eq!(numbers(&open(&path).claim(LIMIT, NOW, LATER, 5).unwrap().claimed), [1, 3]);
}
