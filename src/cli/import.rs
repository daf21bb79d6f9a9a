//! `sluicegate import`

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueHint;

use super::output::{FAILED, INVALID, fail, print, say};
use sluicegate_gateway::resources;
use sluicegate_import::{Files, Imported, Outcome, matches_glob, nginx};

#[derive(clap::Subcommand)]
#[command(
    after_help = "The result is written to standard output, or with -o to a file; the summary to standard error. docs/import.md says \
                  what is converted.\n\nExample:\n  sluicegate import nginx /etc/nginx -o gateway.yaml --report report.txt"
)]
pub(super) enum Command {
    /// Convert a configuration of nginx: a file with what it includes, or the output of nginx -T
    #[command(
        after_help = "Exit code: 0 if there is a result, 1 if not; with --strict, 1 also if a directive is unsupported.\n\n\
                      Examples:\n  sluicegate import nginx /etc/nginx/nginx.conf > gateway.yaml\n  \
                      sluicegate import nginx /etc/nginx -o gateway.yaml --report report.txt\n  \
                      nginx -T | sluicegate import nginx - -o gateway.yaml --report\n  \
                      sluicegate import nginx nginx.conf --strict --json > /dev/null"
    )]
    Nginx(Args),
}

#[derive(clap::Args)]
pub(super) struct Args {
    /// The first file, or a folder with nginx.conf in it; - for standard input
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    path: PathBuf,
    /// Write the gateway.yaml to a file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Replace the file of -o if there is one
    #[arg(long, requires = "output")]
    force: bool,
    /// Write what became of each directive to a file; without FILE, to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_hint = ValueHint::FilePath)]
    report: Option<PathBuf>,
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
    /// Fail if a directive is unsupported
    #[arg(long)]
    strict: bool,
}

/// The largest file that is read.
const LARGEST: u64 = 16 << 20;

/// The files of this machine.
struct Disk;

impl Files for Disk {
    fn read(&self, path: &str) -> Result<String, String> {
        let is_file = fs::metadata(path).map_err(|error| error.to_string())?.is_file();
        if !is_file {
            return Err("it is not a regular file".to_owned()); // it may have no end
        }
        let file = fs::File::open(path).map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > LARGEST {
            return Err(format!("it is larger than {} MiB", LARGEST >> 20));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        let mut found = vec![String::new()];
        for (index, part) in pattern.split('/').enumerate() {
            let separator = if index == 0 { "" } else { "/" };
            found = found.iter().flat_map(|folder| matching(&format!("{folder}{separator}"), part)).collect();
        }
        found.retain(|path| Path::new(path).is_file());
        found.sort();
        found
    }
}

/// The entries of a folder that match a name with wildcards; the name itself if it has none.
fn matching(folder: &str, name: &str) -> Vec<String> {
    if !name.contains(['*', '?', '[']) {
        return vec![format!("{folder}{name}")];
    }
    let at = if folder.is_empty() { "." } else { folder };
    let entries = fs::read_dir(at).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|entry| matches_glob(name, entry)).map(|entry| format!("{folder}{entry}")).collect()
}

pub(super) fn run(command: &Command) -> ExitCode {
    let Command::Nginx(args) = command;
    let imported = match read(&args.path) {
        Ok(imported) => imported,
        Err(message) => {
            say(message);
            return ExitCode::from(INVALID);
        }
    };
    finish(args, &imported)
}

fn read(path: &Path) -> Result<Imported, String> {
    if path.as_os_str() == "-" {
        let text =
            std::io::read_to_string(std::io::stdin()).map_err(|error| format!("cannot read: {error}\n"))?;
        return nginx::import_text(&Disk, "/etc/nginx/nginx.conf", &text);
    }
    let file = if path.is_dir() { path.join("nginx.conf") } else { path.to_owned() };
    let Some(name) = file.to_str() else {
        return Err(format!("{} is not a name in UTF-8\n", file.display()));
    };
    let text = Disk.read(name).map_err(|error| {
        let help = "name nginx.conf, the folder that it is in, or - for standard input";
        format!("sluicegate: cannot read {name}: {error}\n  help: {help}\n")
    })?;
    nginx::import_text(&Disk, name, &text)
}

/// Checks and writes a result, its report, and the summary.
fn finish(args: &Args, imported: &Imported) -> ExitCode {
    let Imported { yaml, report } = imported;
    let shown = args.output.as_deref().map_or("gateway.yaml".to_owned(), |path| path.display().to_string());
    if let Err(errors) = sluicegate_config::parse_without_files(yaml) {
        say(errors);
        return fail(
            FAILED,
            "the result is not a valid gateway.yaml; this is a fault of the importer, please report it",
        );
    }
    let folder = args.output.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let checked = resources::parse(yaml.clone(), &shown, folder);
    let written = match &args.output {
        Some(path) => write_file(path, yaml, args.force)
            .map_err(|error| format!("cannot write {}: {error}", path.display())),
        None => print(yaml).map_err(|error| format!("cannot write: {error}")),
    };
    if let Err(message) = written.and_then(|()| write_report(args, imported)) {
        return fail(FAILED, message);
    }
    say(format_args!("{}\n", report.summary()));
    let (errors, warnings) = (checked.report.errors.len(), checked.report.warnings.len());
    if errors > 0 {
        // The configuration itself is valid: these are files that it names.
        say(format_args!("{}{shown} needs these files before it can be used\n", checked.rendered));
    } else if warnings > 0 {
        say(format_args!(
            "sluicegate check --config {shown}: 0 errors, {warnings} warning{}\n",
            if warnings == 1 { "" } else { "s" }
        ));
    }
    match report.count(Outcome::Unsupported) {
        0 => ExitCode::SUCCESS,
        _ if args.strict => ExitCode::from(INVALID),
        _ if args.report.is_none() => {
            say(
                "--report says what became of each directive, and what to do instead of those that are unsupported\n",
            );
            ExitCode::SUCCESS
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes a file beside the one that it becomes, so that a gateway that watches it never reads a part.
fn write_file(path: &Path, text: &str, force: bool) -> std::io::Result<()> {
    match fs::metadata(path) {
        Ok(known) if !known.is_file() => return fs::write(path, text), // such as /dev/stdout
        Ok(_) if !force => {
            return Err(std::io::Error::other(
                "it exists, and a gateway that runs with it would use the result at once; --force replaces it",
            ));
        }
        _ => {}
    }
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()); // behind a link the file is replaced, not the link
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        let _ = fs::remove_file(&beside); // it may not even be there
    }
    written
}

fn write_report(args: &Args, imported: &Imported) -> Result<(), String> {
    let report = &imported.report;
    let target = args.report.as_deref().or(args.json.then_some(Path::new("-")));
    let Some(target) = target else { return Ok(()) };
    let text = match args.json {
        true => serde_json::to_string_pretty(report).map_err(|error| error.to_string())? + "\n",
        false => report.render(),
    };
    if target.as_os_str() == "-" {
        say(text);
        return Ok(());
    }
    fs::write(target, text).map_err(|error| format!("cannot write {}: {error}", target.display()))
}
