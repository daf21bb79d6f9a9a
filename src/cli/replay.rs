//! `sluicegate replay`

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};
use sluicegate_limiter::Time;

use super::{COULD_NOT, USERS_MISTAKE, fail, print};
use crate::config;
use crate::replay::{Outcome, Replay, parse};
use crate::snapshot::{Lineage, Snapshot};

#[derive(clap::Args)]
#[command(
    after_help = "Reads JSON lines and the combined format of nginx and Apache, told apart by themselves.\n\n\
                        Examples:\n  sluicegate replay access.log\n  \
                        sluicegate replay access.log.2.gz access.log.1 --config new.yaml\n  \
                        zcat *.gz | sluicegate replay - --decisions out.jsonl"
)]
pub(super) struct Args {
    /// Logs, in the order of time; .gz too; - for standard input
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// The rules
    #[arg(long, value_name = "FILE", default_value = "gateway.yaml")]
    config: PathBuf,
    /// Write one JSON line per request
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
}

/// Lines that are named when they cannot be read.
const NAMED: usize = 5;
/// A longer line is no line of a log.
const LONGEST_LINE: u64 = 1 << 20;

/// What was counted.
#[derive(Default)]
struct Totals {
    admitted: u64,
    refused: u64,
    unmatched: u64,
    delayed: u64,
    unreadable: u64,
    named: Vec<String>,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let loaded = match config::load(&args.config) {
        Ok(loaded) => loaded,
        Err(error) => return fail(USERS_MISTAKE, format!("cannot read {}: {error}", args.config.display())),
    };
    eprint!("{}", loaded.rendered);
    let Some(config) = loaded.config else {
        return fail(USERS_MISTAKE, format!("{} has errors", args.config.display()));
    };
    let snapshot = Lineage::default().next(config, None, Time::EPOCH);
    match replay(args, &snapshot) {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, message)) => fail(code, message),
    }
}

fn replay(args: &Args, snapshot: &Snapshot) -> Result<(), (u8, String)> {
    let could_not =
        |what: &Path, error: io::Error| (COULD_NOT, format!("cannot write {}: {error}", what.display()));
    let mut decisions = match &args.decisions {
        Some(path) => {
            Some((path, BufWriter::new(File::create(path).map_err(|error| could_not(path, error))?)))
        }
        None => None,
    };
    let mut replay = Replay::new(snapshot);
    let mut totals = Totals::default();
    let progress = progress(&args.logs);
    for log in &args.logs {
        let unread = |error: io::Error| (USERS_MISTAKE, format!("cannot read {}: {error}", log.display()));
        let mut lines = open(log, &progress).map_err(unread)?;
        let name = log.display().to_string();
        let file = (args.logs.len() > 1).then_some(name.as_str());
        let mut number = 0;
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(unread)? == 0 {
                break;
            }
            if line.len() as u64 == LONGEST_LINE && !line.ends_with(b"\n") {
                lines.skip_until(b'\n').map_err(unread)?; // the rest belongs to this line, which is none
            }
            number += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let request = match parse(&line) {
                Ok(request) => request,
                Err(error) => {
                    totals.unreadable(format!("{name}:{number}: {error}"));
                    continue;
                }
            };
            let row = replay.decide(&request);
            match row.outcome {
                Outcome::Admitted => totals.admitted += 1,
                Outcome::Refused => totals.refused += 1,
                Outcome::Unmatched => totals.unmatched += 1,
            }
            totals.delayed += u64::from(!row.delay.is_zero());
            if let Some((path, out)) = &mut decisions {
                writeln!(out, "{}", row.to_json(number, file)).map_err(|error| could_not(path, error))?;
            }
        }
    }
    if let Some((path, mut out)) = decisions {
        out.flush().map_err(|error| could_not(path, error))?;
    }
    progress.finish_and_clear();
    print(&totals.text(&replay)).map_err(|error| (COULD_NOT, format!("cannot write: {error}")))
}

fn progress(logs: &[PathBuf]) -> ProgressBar {
    let sizes: Option<u64> = logs.iter().map(|log| std::fs::metadata(log).ok().map(|meta| meta.len())).sum();
    let (Some(size), true) = (sizes, io::stderr().is_terminal()) else { return ProgressBar::hidden() };
    let template = "{wide_bar} {bytes}/{total_bytes} {eta}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(size).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The lines of a log, unpacked if they are packed.
fn open(log: &Path, progress: &ProgressBar) -> io::Result<Box<dyn BufRead>> {
    let source: Box<dyn Read> = if log == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(progress.wrap_read(File::open(log)?))
    };
    let mut source = BufReader::with_capacity(64 << 10, source);
    if source.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(BufReader::with_capacity(64 << 10, MultiGzDecoder::new(source))));
    }
    Ok(Box::new(source))
}

/// `format!` with a line feed.
macro_rules! line {
    ($($argument:tt)*) => { format!($($argument)*) + "\n" };
}

impl Totals {
    fn unreadable(&mut self, line: String) {
        self.unreadable += 1;
        if self.named.len() < NAMED {
            self.named.push(line);
        }
    }

    fn text(&self, replay: &Replay<'_>) -> String {
        let mut out = String::new();
        let decided = self.admitted + self.refused + self.unmatched;
        let share = |n: u64| if decided == 0 { 0.0 } else { n as f64 * 100.0 / decided as f64 };
        out += &line!("{decided} {}", if decided == 1 { "request" } else { "requests" });
        out += &line!("{:>12} admitted   {:5.1} %", self.admitted, share(self.admitted));
        out += &line!("{:>12} refused    {:5.1} %", self.refused, share(self.refused));
        out += &line!("{:>12} unmatched  {:5.1} %", self.unmatched, share(self.unmatched));
        if self.delayed > 0 {
            out += &line!("{:>12} of those admitted would have been held for a while", self.delayed);
        }
        if !replay.limits.is_empty() {
            out += &line!("\n{:<24} {:>12} {:>12} {:>14}", "limit", "admitted", "refused", "shadow refused");
            for (name, count) in &replay.limits {
                let tried = count.candidate_refused;
                let tried =
                    if tried > 0 { format!("   its candidate would refuse {tried}") } else { String::new() };
                out += &line!(
                    "{name:<24} {:>12} {:>12} {:>14}{tried}",
                    count.admitted,
                    count.refused,
                    count.shadow_refused
                );
            }
        }
        if replay.without_duration > 0 {
            out += &line!(
                "\n{} requests hold a place of a concurrency limit but say no `duration`: \
                 they counted as if they had ended at once",
                replay.without_duration
            );
        }
        if self.unreadable > 0 {
            let lines = if self.unreadable == 1 { "line" } else { "lines" };
            out += &line!("\n{} {lines} could not be read and skipped:", self.unreadable);
            for line in &self.named {
                out += &line!("  {line}");
            }
            if self.unreadable > self.named.len() as u64 {
                out += &line!("  …");
            }
        }
        out
    }
}
