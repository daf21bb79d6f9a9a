//! Instructions of the program per request, counted by callgrind: `cargo bench --bench instructions`.
//!
//! Fails if a request takes 2 % more or less than `benches/instructions.txt` says; with `UPDATE=1` it writes that file
//! instead. The count repeats whatever else the machine does. It changes with the compiler, and a little with the
//! processor: libraries choose code by what valgrind says it can. The choices of the C library are fixed here.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)] // it reads clocks

#[path = "../tests/harness/mod.rs"]
mod harness;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use harness::Reserved;
use harness::steady::{Link, RULES, upstream};

/// Requests that are counted, and those before them that fill every pool.
const COUNTED: usize = 2_000;
const BEFORE: usize = 200;
/// Programs start slowly under valgrind.
const PATIENCE: Duration = Duration::from_secs(60);
/// The functions for all processors of its kind, of those that the C library chooses from.
const PLAIN: &str =
    "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM,-AVX512F,-AVX512VL";
const KINDS: [(&str, &str, &str); 2] = [("forwarded", "/v1/items", "200"), ("refused", "/v0/items", "429")];

/// All instructions of a run with so many requests of each kind.
fn run(requests: [usize; 2]) -> u64 {
    let (edge, folder) = (Reserved::new(), tempfile::TempDir::new().unwrap());
    let upstream = upstream(|| {});
    let rules =
        RULES.replace("{edge}", &edge.address.to_string()).replace("{upstream}", &upstream.to_string());
    let config = folder.path().join("gateway.yaml");
    std::fs::write(&config, rules).unwrap();
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", env!("CARGO_BIN_EXE_sluicegate")]);
    command.args(["run", "--workers", "1", "--config"]).arg(&config);
    command.env("GLIBC_TUNABLES", PLAIN).env_remove("RUST_LOG").stdin(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().expect("valgrind, of the package of that name");
    let mut client = Link::connect(edge.address, PATIENCE);
    client.ask("/v0/items", 1, "200");
    for ((_, target, status), requests) in KINDS.into_iter().zip(requests) {
        client.ask(target, requests, status);
    }
    drop(client);
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let told = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    let collected = told.lines().find_map(|line| line.split_once("Collected : "));
    collected.unwrap_or_else(|| panic!("callgrind counted nothing:\n{told}")).1.trim().parse().unwrap()
}

fn main() -> ExitCode {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.txt");
    let fewest = run([BEFORE, BEFORE]);
    let more = [run([BEFORE + COUNTED, BEFORE]), run([BEFORE, BEFORE + COUNTED])];
    let measured = more.map(|more| (more - fewest) / COUNTED as u64);
    let lines: Vec<String> =
        KINDS.iter().zip(measured).map(|((kind, ..), n)| format!("{kind} {n}\n")).collect();
    print!("{}", lines.concat());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, lines.concat()).unwrap();
        return ExitCode::SUCCESS;
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    let mut kept = true;
    for ((kind, ..), measured) in KINDS.into_iter().zip(measured) {
        let of_kind =
            |line: &str| line.strip_prefix(kind).and_then(|number| number.trim().parse::<u64>().ok());
        let expected = expected.lines().find_map(of_kind).unwrap();
        if measured.abs_diff(expected) * 50 > expected {
            eprintln!("a {kind} request takes {measured} instructions, and {expected} are expected");
            kept = false;
        }
    }
    if !kept {
        eprintln!("if that is meant: UPDATE=1 cargo bench --bench instructions");
    }
    ExitCode::from(u8::from(!kept))
}
