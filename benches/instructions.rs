//! Instructions that the gateway executes per request, counted by callgrind: `cargo test --bench instructions`.
//!
//! It measures `target/release/sluicegate`, which it builds first: the program that `cargo run --release` runs. The
//! `dist` profile of packages needs minutes for its link-time optimisation and a target directory of its own, and the
//! programs of the tests are not optimised: there, code costs instructions that an optimised program does not execute,
//! and a real loss is hidden among them. What a change adds to the release program it adds to the packages' too, within
//! a few percent of it.
//!
//! Fails if a request takes 2 % more or less than `benches/instructions.txt` says; with `UPDATE=1` it writes that file
//! instead. `SLUICEGATE_PROGRAM=PATH` measures another program, such as one of the `dist` profile. The count repeats
//! whatever else the machine does. It changes with the compiler, and a little with the processor, by whose features
//! libraries choose their code; those of the C library are fixed here.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)] // the harness reads clocks

#[path = "../tests/harness/mod.rs"]
mod harness;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use harness::steady::{Connection, KINDS, Kind, RULES, upstream};
use harness::{ReservedPort, patience};

/// Requests that are counted, and those before them that fill pools and caches.
const COUNTED: usize = 2_000;
const WARM_UP: usize = 200;
/// Seconds in which the gateway starts: programs start slowly under valgrind.
const START: u64 = 60;
/// Makes the C library choose the functions that every x86-64 processor can execute.
const BASELINE: &str =
    "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM,-AVX512F,-AVX512VL";
const PROGRAM: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/../release/sluicegate");

/// All instructions of a run with so many requests of each kind.
fn run(program: &str, requests: [usize; KINDS.len()]) -> u64 {
    let (edge, folder) = (ReservedPort::new(), tempfile::TempDir::new().unwrap());
    let upstream = upstream(|| {});
    let rules =
        RULES.replace("{edge}", &edge.address.to_string()).replace("{upstream}", &upstream.to_string());
    let config = folder.path().join("gateway.yaml");
    std::fs::write(&config, rules).unwrap();
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", program]);
    command.args(["run", "--workers", "1", "--config"]).arg(&config);
    command.env("GLIBC_TUNABLES", BASELINE).env_remove("RUST_LOG").stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(Stdio::piped()).spawn().expect("valgrind, of the package of that name");
    let mut client = Connection::connect(edge.address, patience(START));
    client.ask(Kind { status: "200", ..KINDS[1] }, 1); // the only one that is admitted
    for (kind, requests) in KINDS.into_iter().zip(requests) {
        client.ask(kind, requests);
    }
    drop(client);
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let log = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    let collected = log.lines().find_map(|line| line.split_once("Collected : "));
    collected.unwrap_or_else(|| panic!("callgrind counted nothing:\n{log}")).1.trim().parse().unwrap()
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = std::env::var("SLUICEGATE_PROGRAM").unwrap_or_else(|_| {
        let built = Command::new(env!("CARGO")).args(["build", "--release"]).current_dir(root).status();
        assert!(built.unwrap().success(), "the release program is built");
        PROGRAM.to_owned()
    });
    let run = |requests| run(&program, requests);
    let file = root.join("benches/instructions.txt");
    let fewest = run([WARM_UP; KINDS.len()]);
    let measured: Vec<u64> = (0..KINDS.len())
        .map(|at| {
            let mut requests = [WARM_UP; KINDS.len()];
            requests[at] += COUNTED;
            (run(requests) - fewest) / COUNTED as u64
        })
        .collect();
    let lines: Vec<String> =
        KINDS.iter().zip(&measured).map(|(kind, n)| format!("{} {n}\n", kind.name)).collect();
    print!("{}", lines.concat());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, lines.concat()).unwrap();
        return ExitCode::SUCCESS;
    }
    let budgets = std::fs::read_to_string(&file).unwrap();
    let mut kept = true;
    for (Kind { name: kind, .. }, measured) in KINDS.into_iter().zip(measured) {
        let of_kind =
            |line: &str| line.strip_prefix(kind).and_then(|number| number.trim().parse::<u64>().ok());
        let budget = budgets.lines().find_map(of_kind).unwrap();
        if measured.abs_diff(budget) * 50 > budget {
            eprintln!("a {kind} request takes {measured} instructions, and the budget is {budget}");
            kept = false;
        }
    }
    if !kept {
        eprintln!("if that is meant: UPDATE=1 cargo test --bench instructions");
    }
    ExitCode::from(u8::from(!kept))
}
