//! The process log goes to standard error. If its reader has gone or has stopped reading, lines are dropped and
//! counted, and nothing else happens.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Duration;

use crate::harness::{Gateway, Setup, Stopwatch, deadline, measure, patience, until};

const FILE: &str = "routes: [{name: all, respond: {status: 200}}]\n";
const DROPPED: &str = "sluicegate_log_dropped_total";

/// Reloads that are refused, each with a report of its own.
fn refused_reloads(gateway: &Gateway, count: usize) {
    for turn in 0..count {
        gateway.write(&format!("{FILE}unknown-{turn}-{}: 1\n", "x".repeat(4_000)));
        assert_eq!(gateway.admin_change("POST", "/reload").status, 422);
    }
}

/// The gateway answers operators and clients, and ends as it is told to.
fn lives(mut gateway: Gateway) {
    let (answer, took) = measure(|| gateway.admin_get("/readyz"));
    assert_eq!(answer.status, 200);
    assert!(took < patience(5), "{took:?}");
    assert_eq!(gateway.get("/").status, 200);
    gateway.signal("TERM");
    assert_eq!(gateway.ended(deadline()).code(), Some(0));
}

/// What cannot be written is lost and counted.
#[test]
fn a_full_disk_does_not_affect_serving() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let gateway = Setup::default().stderr(full).start(FILE);
    refused_reloads(&gateway, 3);
    until("the lines are counted", || (gateway.metric(DROPPED, &[]) >= 3.0).then_some(()));
    lives(gateway);
}

/// The program that read the log has died.
#[test]
fn a_closed_pipe_does_not_affect_serving() {
    let (reader, writer) = std::io::pipe().unwrap();
    let gateway = Setup::default().stderr(writer).start(FILE);
    drop(reader);
    refused_reloads(&gateway, 3);
    until("the lines are counted", || (gateway.metric(DROPPED, &[]) >= 3.0).then_some(()));
    lives(gateway);
}

/// The program that reads the log has stopped: what it leaves in the pipe stops nothing.
#[test]
fn a_full_pipe_does_not_affect_serving() {
    let (_reader, writer) = std::io::pipe().unwrap();
    let gateway = Setup::default().stderr(writer).start(FILE);
    refused_reloads(&gateway, 40);
    lives(gateway);
}

/// Lines that wait in the gateway are written before it ends, also where writing would block.
#[test]
fn a_slow_reader_gets_the_last_line() {
    assert!((0..5).any(|_| gets_the_last_line()), "the machine is too slow for this test");
}

/// Whether the reader gets the last line. It may not if it takes longer than a second, for which the gateway waits.
fn gets_the_last_line() -> bool {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let mut waiting = 60 << 10; // most of the pipe
    while waiting > 0 {
        waiting -= writer.write(&[b'-'; 1 << 10]).unwrap();
    }
    let mut gateway = Setup::default().stderr(Stdio::from(writer)).start(FILE);
    refused_reloads(&gateway, 5);
    let watch = Stopwatch::start();
    gateway.signal("TERM");
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let took = watch.elapsed();
    assert_eq!(gateway.ended(deadline()).code(), Some(0));
    let is_whole = text.contains("unknown-4-") && text.contains("draining");
    assert!(is_whole || took >= Duration::from_secs(1), "{took:?}: {text}");
    is_whole
}

/// Other commands that cannot say what is wrong end with the code that says it.
#[test]
fn commands_exit_normally_when_their_output_is_lost() {
    for args in [["check", "nothing.yaml"], ["run", "--config=nothing.yaml"], ["replay", "nothing.log"]] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = crate::harness::program().args(args).stderr(full).status().unwrap();
        assert_eq!(ended.code(), Some(1), "{args:?}");
    }
}
