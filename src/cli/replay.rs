//! `sluicegate replay`

mod report;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use http::HeaderValue;
use indicatif::{ProgressBar, ProgressStyle};
use sluicegate_limiter::Time;

use self::report::{Totals, escaped, of_unmatched};
use super::{ConfigOption, FAILED, INVALID, fail, print, say};
use crate::access_log::Outcome;
use crate::replay::{LogFile, Replay, RowWriter, is_of_rule, parse};
use crate::resources::Source;
use crate::snapshot::{Snapshot, SnapshotBuilder};
use sluicegate_config::Config;
use sluicegate_config::host_name;

#[derive(clap::Args)]
#[command(
    after_help = "Reads JSON lines and the combined format of nginx and Apache; the format is detected.\n\n\
                        Examples:\n  sluicegate replay access.log\n  \
                        sluicegate replay access.log --host api.example.com\n  \
                        sluicegate replay access.log.2.gz access.log.1 --config new.yaml\n  \
                        zcat *.gz | sluicegate replay - --decisions out.jsonl\n\n\
                        Exit codes: 0 all logs were read; 1 a log is damaged or not a log (the lines that were read are \
                        reported), or an argument is wrong; 2 the output could not be written"
)]
pub(super) struct Args {
    /// Logs in the order of time, also .gz; - for standard input
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    rules: ConfigOption,
    /// The host of requests without a host in the log
    #[arg(long, value_name = "HOST", value_parser = host)]
    host: Option<HeaderValue>,
    /// The name of the listener that received the requests [default: the first in the file]
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// Write one JSON line per request
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
}

/// The name of standard input as a log.
const STDIN: &str = "-";

/// Messages about the logs.
#[derive(Default)]
struct Findings {
    warnings: Vec<String>,
    /// Errors, which are printed after the report and set the exit code.
    errors: Vec<String>,
}

/// The file of `--decisions`.
struct Decisions<'a> {
    path: &'a Path,
    out: BufWriter<File>,
    rows: RowWriter<'a>,
}

type Failure = (u8, String);

/// Parses the host of `--host`.
fn host(text: &str) -> Result<HeaderValue, String> {
    match (host_name(text.as_bytes()), HeaderValue::from_str(text)) {
        (Some(_), Ok(host)) => Ok(host),
        _ => Err("not a host; write a name such as api.example.com".into()),
    }
}

pub(super) fn run(args: &Args) -> ExitCode {
    let source = &args.rules.config;
    if *source == Source::Stdin && args.logs.iter().any(|log| log == Path::new(STDIN)) {
        let message =
            "standard input cannot be both the log and the configuration; name a file for one of them";
        return fail(INVALID, message);
    }
    let loaded = match source.load() {
        Ok(loaded) => loaded,
        Err(error) => return fail(INVALID, format!("cannot read {source}: {error}")),
    };
    say(&loaded.rendered);
    let Some(mut config) = loaded.config else {
        return fail(INVALID, format!("{source} has errors"));
    };
    for limit in &mut config.limits {
        // Only decisions need whole keys, because a replay uses no store.
        limit.whole_key = args.decisions.is_some();
    }
    let listener = match listener(args, &config) {
        Ok(listener) => listener,
        Err(message) => return fail(INVALID, message),
    };
    let snapshot = SnapshotBuilder::default().build(config, None, None, Time::EPOCH);
    match replay(args, &snapshot, listener) {
        Ok(findings) => {
            findings
                .warnings
                .iter()
                .for_each(|warning| say(format_args!("sluicegate: warning: {warning}\n")));
            findings.errors.iter().for_each(|error| say(format_args!("sluicegate: {error}\n")));
            if findings.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(INVALID) }
        }
        Err((code, message)) => fail(code, message),
    }
}

/// The index of the listener that received the requests.
fn listener(args: &Args, config: &Config) -> Result<usize, String> {
    let Some(name) = &args.listener else { return Ok(0) };
    let found = config.listeners.iter().position(|listener| listener.name == *name);
    found.ok_or_else(|| {
        let names: Vec<&str> = config.listeners.iter().map(|listener| listener.name.as_str()).collect();
        let file = &args.rules.config;
        format!("{file} has no listener called `{}`; it has {}", escaped(name), names.join(", "))
    })
}

fn replay(args: &Args, snapshot: &Snapshot, listener: usize) -> Result<Findings, Failure> {
    for log in &args.logs {
        check_readable(log).map_err(|error| unread(log, &error))?;
    }
    let mut decisions = match &args.decisions {
        Some(path) => {
            let out = BufWriter::new(File::create(path).map_err(|error| unwritten(path, &error))?);
            Some(Decisions { path, out, rows: RowWriter::new(&snapshot.config) })
        }
        None => None,
    };
    let mut replay = Replay::new(snapshot, listener);
    let (mut totals, mut findings) = (Totals::default(), Findings::default());
    let progress = progress(&args.logs);
    for log in &args.logs {
        replay_log(args, log, &progress, &mut replay, &mut totals, &mut decisions, &mut findings)?;
    }
    if let Some(decisions) = &mut decisions {
        decisions.out.flush().map_err(|error| unwritten(decisions.path, &error))?;
    }
    progress.finish_and_clear();
    print(&totals.text(&replay)).map_err(|error| (FAILED, format!("cannot write: {error}")))?;
    if totals.unmatched * 2 > totals.decided() {
        findings.warnings.push(of_unmatched(&totals, &replay.unmatched, &snapshot.config, listener));
    }
    Ok(findings)
}

/// Replays one log until its end or until it is damaged.
fn replay_log(
    args: &Args,
    log: &Path,
    progress: &ProgressBar,
    replay: &mut Replay<'_>,
    totals: &mut Totals,
    decisions: &mut Option<Decisions<'_>>,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let name = log.display().to_string();
    let file = (args.logs.len() > 1).then_some(name.as_str());
    let mut lines = match open(log, progress) {
        Ok(lines) => lines,
        Err(error) => {
            findings.errors.push(unread(log, &error).1);
            return Ok(());
        }
    };
    let mut line = Vec::new();
    let (mut good, mut first_bad) = (false, None);
    loop {
        match lines.read_line(&mut line) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                findings.errors.push(damage(&name, &lines, &error));
                return Ok(());
            }
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let request = match parse(&line, args.host.as_ref()) {
            Ok(request) => request,
            Err(_) if is_of_rule(&line) => continue,
            Err(error) => {
                let error = format!("{name}:{}: {}", lines.number(), escaped(&error.to_string()));
                first_bad.get_or_insert_with(|| error.clone());
                totals.unreadable(error);
                continue;
            }
        };
        good = true;
        let row = replay.decide(&request);
        match row.outcome {
            Outcome::Admitted => totals.admitted += 1,
            Outcome::Refused => totals.refused += 1,
            Outcome::Unmatched => totals.unmatched += 1,
        }
        totals.delayed += u64::from(!row.delay.is_zero());
        if let Some(Decisions { path, out, rows }) = decisions {
            let row = rows.json(&row, &request, lines.number(), file);
            writeln!(out, "{row}").map_err(|error| unwritten(path, &error))?;
        }
    }
    if let (false, Some(first)) = (good, first_bad) {
        findings
            .errors
            .push(format!("{name} is no log: no line of it could be read, the first because of\n  {first}"));
    }
    if let Some(padding) = lines.padding() {
        let (at, length) = (padding.at, padding.length);
        findings.warnings.push(format!(
            "{name}: {length} zero bytes follow the compressed data, from byte {at} on; all lines were read"
        ));
    }
    Ok(())
}

/// The message about a damaged log.
fn damage(name: &str, lines: &LogFile, error: &io::Error) -> String {
    let number = lines.number();
    let place = match lines.offset() {
        Some(offset) => {
            format!("{name} is damaged at byte {offset} of the compressed file, behind line {number}")
        }
        None => format!("cannot read {name} behind line {number}"),
    };
    format!("{place}: {error}; the report covers the lines before")
}

fn unread(log: &Path, error: &io::Error) -> Failure {
    (INVALID, format!("cannot read {}: {error}", log.display()))
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    (FAILED, format!("cannot write {}: {error}", path.display()))
}

/// Checks that a log can be opened, so that a wrong name is an error before a long replay and not after it.
fn check_readable(log: &Path) -> io::Result<()> {
    if log == Path::new(STDIN) {
        return Ok(());
    }
    let kind = std::fs::metadata(log)?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if kind.is_file() {
        File::open(log)?; // a named pipe could not be opened a second time
    }
    Ok(())
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

fn open(log: &Path, progress: &ProgressBar) -> io::Result<LogFile> {
    let source: Box<dyn Read> = if log == Path::new(STDIN) {
        Box::new(io::stdin())
    } else {
        Box::new(progress.wrap_read(File::open(log)?))
    };
    LogFile::new(source)
}
