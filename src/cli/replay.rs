//! `sluicegate replay`

mod logs;
mod order;
mod report;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{ValueEnum, ValueHint};
use http::HeaderValue;
use indicatif::{ProgressBar, ProgressStyle};
use sluicegate_limiter::{Span, Time};

use self::logs::{End, STDIN};
use self::report::{Totals, escaped, of_unmatched};
use super::options::ConfigOption;
use super::output::{FAILED, INVALID, fail, print, say};
use crate::replay::{
    Against, ArrivalSettings, Arrivals, DurationField, Input, Item, Known, Members, Replay, Request, Row,
    RowWriter, Times,
};
use sluicegate_config::Config;
use sluicegate_config::host_name;
use sluicegate_gateway::resources::{LoadedConfig, Source};
use sluicegate_gateway::snapshot::{Opened, Snapshot, SnapshotBuilder};
use sluicegate_observe::access_log::Outcome;

#[derive(clap::Args)]
#[command(
    after_help = "The format of each line is recognized: the formats of sluicegate (JSON, short, combined), combined and \
                  vhost_combined of nginx and Apache, ingress-nginx, nginx in JSON, Traefik (CLF and JSON), Caddy, Envoy and \
                  Istio, HAProxy (option httplog), AWS ALB and ELB, CloudFront, Kong; also inside the logs of docker, of \
                  Kubernetes' nodes and of syslog. JSON lines of any other kind are read with --map. Several files are read in \
                  the order of their times.\n\n\
                  Many servers write a line when a request ends: with a duration behind the other fields its arrival is \
                  restored, and whole seconds are spread. A number is a duration if it has a fraction (seconds) or a unit \
                  (12ms); for others say --duration-field.\n\n\
                  Examples:\n  sluicegate replay access.log\n  \
                  sluicegate replay access.log --host api.example.com --report report.html\n  \
                  sluicegate replay access.log.2.gz access.log.1 --config new.yaml --against gateway.yaml\n  \
                  sluicegate replay access.log --compare-algorithms --report report.html\n  \
                  sluicegate replay /var/log/nginx/access.log* --suggest\n  \
                  sluicegate replay apache.log --duration-field 1us\n  \
                  sluicegate replay app.jsonl --map time=ts,client_ip=req.ip,path=req.url,duration=took:ms\n  \
                  zcat *.gz | sluicegate replay - --decisions out.jsonl\n\n\
                  Exit codes: 0 all logs were read; 1 a log is damaged or not a log (the lines that were read are \
                  reported), or an argument is wrong; 2 the output could not be written"
)]
pub(super) struct Args {
    /// Logs, also .gz; - for standard input
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
    /// Compare with what this configuration decides: who is newly refused, who is freed
    #[arg(long, value_name = "OLD", value_hint = ValueHint::FilePath)]
    against: Option<Source>,
    /// Decide by every algorithm at the same rate, beside an exact sliding log
    #[arg(long)]
    compare_algorithms: bool,
    /// Write a report as one HTML page, which needs no network
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Suggest rates that would have refused 0.1 %, 1 % and 5 % of the keys (as --report and --json do)
    #[arg(long)]
    suggest: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// What the times of the logs are: auto takes JSON lines as arrivals, and the combined format with durations as ends
    #[arg(long, value_name = "WHAT", default_value = "auto", value_parser = ["auto", "arrival", "end"])]
    times: String,
    /// Spread requests of the combined format over their second
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    spread: Switch,
    /// The members of JSON lines that are not called as ours, such as time=ts,client_ip=request.client_ip,path=request.uri;
    /// duration=took:ms names a unit, and points lead into objects
    #[arg(long, value_name = "NAME=MEMBER,…")]
    map: Option<Members>,
    /// The field behind the user agent of combined lines that is the duration, and its unit: 1us is Apache's %D there
    #[arg(long, value_name = "N[s|ms|us]")]
    duration_field: Option<DurationField>,
    /// How much earlier than its line a request may have arrived
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    reorder: u64,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Switch {
    On,
    Off,
}

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

/// What decides about each request, and notes what was decided.
struct Judge<'a> {
    /// The logs in the order in which they are read.
    logs: &'a [PathBuf],
    replay: Replay<'a>,
    old: Option<(Replay<'a>, Against)>,
    totals: Totals,
    decisions: Option<Decisions<'a>>,
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
    let source = args.rules.source();
    let from_stdin =
        [Some(source), args.against.as_ref()].into_iter().flatten().filter(|s| **s == Source::Stdin);
    let from_stdin = from_stdin.count() + args.logs.iter().filter(|log| *log == Path::new(STDIN)).count();
    if from_stdin > 1 {
        let message =
            "standard input cannot be both the log and the configuration; name a file for one of them";
        return fail(INVALID, message);
    }
    let read = load(source).and_then(|config| {
        let listener = listener(args, &config)?;
        Ok((config, listener, args.against.as_ref().map(load).transpose()?))
    });
    let (config, listener, old) = match read {
        Ok(read) => read,
        Err(message) => return fail(INVALID, message),
    };
    let build = |config| SnapshotBuilder::default().build(config, Opened::default(), None, Time::EPOCH);
    let (snapshot, old) = (build(config), old.map(build));
    match replay(args, &snapshot, old.as_ref(), listener) {
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

fn load(source: &Source) -> Result<LoadedConfig, String> {
    let loaded = source.load().map_err(|error| format!("cannot read {source}: {error}"))?;
    say(&loaded.rendered);
    loaded.config.ok_or_else(|| format!("{source} has errors"))
}

/// The index of the listener that received the requests.
fn listener(args: &Args, config: &Config) -> Result<usize, String> {
    let Some(name) = &args.listener else { return Ok(0) };
    let found = config.listeners.iter().position(|listener| listener.name == *name);
    found.ok_or_else(|| {
        let names: Vec<&str> = config.listeners.iter().map(|listener| listener.name.as_str()).collect();
        let file = args.rules.source();
        format!("{file} has no listener called `{}`; it has {}", escaped(name), names.join(", "))
    })
}

fn replay(
    args: &Args,
    snapshot: &Snapshot,
    old: Option<&Snapshot>,
    listener: usize,
) -> Result<Findings, Failure> {
    for log in &args.logs {
        check_readable(log).map_err(|error| unread(log, &error))?;
    }
    check_outputs(args)?;
    let known = Known {
        host: args.host.clone(),
        members: args.map.clone().map(Arc::new),
        duration: args.duration_field,
    };
    let logs = order::by_time(&args.logs, &known);
    let decisions = match &args.decisions {
        Some(path) => {
            let out = BufWriter::new(File::create(path).map_err(|error| unwritten(path, &error))?);
            Some(Decisions { path, out, rows: RowWriter::new(&snapshot.config) })
        }
        None => None,
    };
    let report = args.report.as_ref().map(|path| match File::create(path) {
        Ok(file) => Ok((path, file)),
        Err(error) => Err(unwritten(path, &error)),
    });
    let report = report.transpose()?;
    let of_old = |old: &Snapshot| listener.min(old.config.listeners.len().saturating_sub(1));
    let mut judge = Judge {
        logs: &logs,
        replay: Replay::new(snapshot, listener)
            .with_statistics(args.json || args.suggest || args.report.is_some())
            .comparing(args.compare_algorithms),
        old: old.map(|old| (Replay::new(old, of_old(old)), Against::default())),
        totals: Totals::default(),
        decisions,
    };
    let window = Span::from_secs(args.reorder);
    let settings = ArrivalSettings {
        times: Times::ALL.iter().copied().find(|times| times.name() == args.times).unwrap_or(Times::Auto),
        spread: args.spread == Switch::On,
        window,
    };
    let mut arrivals = Arrivals::new(settings);
    let mut findings = Findings::default();
    read_logs(&mut judge, &mut arrivals, &mut findings, (&known, window))?;
    arrivals.finish(&mut |item| judge.decide(&item))?;
    let Judge { replay, old, totals, mut decisions, .. } = judge;
    if let Some(why) = replay.trust.impossible(window) {
        return Err((INVALID, why));
    }
    if let Some(decisions) = &mut decisions {
        decisions.out.flush().map_err(|error| unwritten(decisions.path, &error))?;
    }
    let tries = progress_of_tries();
    let suggestions = crate::replay::suggestions(&replay, &|| tries.inc(1));
    tries.finish_and_clear();
    let against = old.as_ref().map(|(_, against)| against);
    let input = Input {
        replay: &replay,
        config: args.rules.source().to_string(),
        logs: logs.iter().map(|log| log.display().to_string()).collect(),
        lines: totals.lines,
        unreadable: totals.unreadable,
        outcomes: [totals.admitted, totals.refused, totals.unmatched],
        delayed: totals.delayed,
        queued: totals.queued,
        assumptions: arrivals.assumptions(),
        suggestions,
        trust: {
            let limits: Vec<_> = replay.limits().into_iter().map(|(_, name, count)| (name, count)).collect();
            let reordered = order::order_note(&args.logs, &logs);
            replay.trust.findings(&limits, (totals.unmatched, totals.unreadable), reordered.as_deref())
        },
        against: args.against.as_ref().map(ToString::to_string).zip(against),
    };
    let text = match args.json {
        true => format!("{:#}\n", input.json()),
        false => totals.text(&input),
    };
    print(&text).map_err(|error| (FAILED, format!("cannot write: {error}")))?;
    if let Some((path, mut file)) = report {
        file.write_all(input.html().as_bytes()).map_err(|error| unwritten(path, &error))?;
    }
    if totals.unmatched * 2 > totals.decided() {
        findings.warnings.push(of_unmatched(&totals, &replay.unmatched, &snapshot.config, listener));
    }
    Ok(findings)
}

/// Reads all logs and passes their requests to `arrivals`, and what has arrived to `judge`.
fn read_logs(
    judge: &mut Judge<'_>,
    arrivals: &mut Arrivals,
    findings: &mut Findings,
    (known, window): (&Known, Span),
) -> Result<(), Failure> {
    let logs = judge.logs;
    let name = |file: usize| logs[file].display().to_string();
    // Whether any line of a file could be read, and why the first one that could not be.
    let mut read: Vec<(bool, Option<String>)> = vec![(false, None); logs.len()];
    let progress = progress(logs);
    let mut spans = order::Spans::default();
    let line = |file: usize, line: u64, request: Result<Request, String>| {
        judge.totals.lines += 1;
        if judge.totals.lines.is_multiple_of(50_000) {
            let rate = judge.totals.lines as f64 / progress.elapsed().as_secs_f64().max(0.001);
            progress.set_message(format!("{:.0} k lines/s", rate / 1e3));
        }
        match request {
            Ok(request) => {
                read[file].0 = true;
                if let Some(before) = spans.overlap(file, request.time, window) {
                    return Err((
                        INVALID,
                        order::overlapping(&name(before.file), &name(file), (before.latest, request.time)),
                    ));
                }
                judge.replay.trust.line(&request, window);
                arrivals.push(Item { request, line, file }, &mut |item| judge.decide(&item))
            }
            Err(error) => {
                let error = format!("{}:{line}: {}", name(file), escaped(&error));
                read[file].1.get_or_insert_with(|| error.clone());
                judge.totals.unreadable(error);
                Ok(())
            }
        }
    };
    let mut ends = Vec::new();
    logs::read(logs, known, &progress, line, |file, end| ends.push((file, end)))?;
    progress.finish_and_clear();
    for (file, End { unopened, damage, padding }) in ends {
        let name = name(file);
        if let Some(error) = unopened {
            findings.errors.push(unread(&logs[file], &error).1);
        }
        if let Some((error, number, offset)) = damage {
            let place = match offset {
                Some(offset) => {
                    format!("{name} is damaged at byte {offset} of the compressed file, behind line {number}")
                }
                None => format!("cannot read {name} behind line {number}"),
            };
            findings.errors.push(format!("{place}: {error}; the report covers the lines before"));
        } else if let (false, Some(first)) = &read[file] {
            findings.errors.push(format!(
                "{name} is not a log that can be read: none of its lines could be, the first because of\n  {first}"
            ));
        }
        if let Some(padding) = padding {
            let (at, length) = (padding.at, padding.length);
            findings.warnings.push(format!(
                "{name}: {length} zero bytes follow the compressed data, from byte {at} on; all lines were read"
            ));
        }
    }
    Ok(())
}

impl Judge<'_> {
    fn decide(&mut self, item: &Item) -> Result<(), Failure> {
        let Item { request, line, file } = item;
        let row = self.replay.decide(request);
        match row.outcome {
            Outcome::Admitted => self.totals.admitted += 1,
            Outcome::Refused => self.totals.refused += 1,
            Outcome::Queued => self.totals.queued += 1,
            Outcome::Unmatched => self.totals.unmatched += 1,
        }
        self.totals.delayed += u64::from(!row.delay.is_zero());
        let mut before: Option<Row<'_>> = None;
        if let Some((old, against)) = &mut self.old {
            let was = old.decide(request);
            against.add(&was, &row, request.time);
            before = Some(was);
        }
        if let Some(Decisions { path, out, rows }) = &mut self.decisions {
            let name = self.logs[*file].display().to_string();
            let file = (self.logs.len() > 1).then_some(name.as_str());
            let row = rows.json(&row, request, (*line, file), before.map(|row| row.outcome));
            writeln!(out, "{row}").map_err(|error| unwritten(path, &error))?;
        }
        Ok(())
    }
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

/// Checks that no output is a file that is read, which it would overwrite.
fn check_outputs(args: &Args) -> Result<(), Failure> {
    let configs = [Some(args.rules.source()), args.against.as_ref()].into_iter().flatten();
    let configs = configs.filter_map(|source| match source {
        Source::File(path) => Some(path),
        Source::Stdin => None,
    });
    let identity = |path: &PathBuf| {
        let known = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((known.dev(), known.ino()))
    };
    let inputs: Vec<_> = args.logs.iter().chain(configs).filter_map(identity).collect();
    let outputs = [("--decisions", &args.decisions), ("--report", &args.report)];
    for (name, path) in outputs {
        let Some(path) = path else { continue };
        if identity(path).is_some_and(|output| inputs.contains(&output)) {
            let message =
                format!("{name} would overwrite {}, which is read; name another file", path.display());
            return Err((INVALID, message));
        }
    }
    if args.decisions.is_some() && args.decisions == args.report {
        return Err((INVALID, "--decisions and --report are the same file; name two".to_owned()));
    }
    Ok(())
}

fn progress(logs: &[PathBuf]) -> ProgressBar {
    let sizes: Option<u64> = logs.iter().map(|log| std::fs::metadata(log).ok().map(|meta| meta.len())).sum();
    let (Some(size), true) = (sizes, io::stderr().is_terminal()) else { return ProgressBar::hidden() };
    let template = "{wide_bar} {bytes}/{total_bytes} {msg}, {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(size).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Counts the rates that are tried for suggestions.
fn progress_of_tries() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} trying rates: {pos}");
    let bar =
        ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
