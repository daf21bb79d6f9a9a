//! What an import writes: the gateway.yaml, the file of consumers, the report.

use std::fs;
use std::io::{Error, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use sluicegate_base::file_watch::{hex, sha256};
use sluicegate_gateway::resources;
use sluicegate_import::kong::Consumer;
use sluicegate_import::{Imported, Outcome};

use super::args::Args;
use crate::cli::output::{FAILED, INVALID, fail, print, say};

/// Checks and writes a result, its consumers, its report, and the summary.
pub(super) fn finish(args: &Args, imported: &Imported, consumers: &[Consumer]) -> ExitCode {
    let Imported { yaml, report } = imported;
    let shown = args.output.as_deref().map_or("gateway.yaml".to_owned(), |path| path.display().to_string());
    if let Err(errors) = sluicegate_config::parse_without_files(yaml) {
        say(errors);
        return fail(
            FAILED,
            "the result is not a valid gateway.yaml; this is a bug of the importer, please report it",
        );
    }
    let folder = args.output.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let checked = resources::parse(yaml.clone(), &shown, folder);
    if let Err(message) = write(args, imported, consumers) {
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
            say("--report shows what became of each directive, and what to do about unsupported ones\n");
            ExitCode::SUCCESS
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes all files of a result, or none if one of them is there already.
fn write(args: &Args, imported: &Imported, consumers: &[Consumer]) -> Result<(), String> {
    let beside = args.output.as_ref().filter(|_| !consumers.is_empty());
    let beside = beside.map(|output| output.with_file_name("consumers.yaml"));
    let report = args.report.as_deref().filter(|path| path.as_os_str() != "-");
    let cannot = |path: &Path, why: &dyn std::fmt::Display| format!("cannot write {}: {why}", path.display());
    if let Some(path) = beside.as_deref().filter(|path| path.exists()) {
        return Err(cannot(path, &"it exists\n  help: move it, and import again"));
    }
    for path in args.output.as_deref().into_iter().chain(report) {
        if !args.force && path.is_file() {
            let why =
                "it exists, and a program that uses it would read the new one at once; --force replaces it";
            return Err(cannot(path, &why));
        }
    }
    match &args.output {
        Some(path) => write_file(path, &imported.yaml).map_err(|error| cannot(path, &error))?,
        None => print(&imported.yaml).map_err(|error| format!("cannot write: {error}"))?,
    }
    match beside {
        Some(path) => write_consumers(&path, consumers).map_err(|error| cannot(&path, &error))?,
        None if consumers.is_empty() => {}
        None => {
            let are = if consumers.len() == 1 { "consumer is" } else { "consumers are" };
            say(format_args!(
                "{} {are} not written; -o FILE writes them to consumers.yaml beside FILE\n",
                consumers.len()
            ));
        }
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&imported.report).map_err(|error| error.to_string())? + "\n",
        false => imported.report.render(),
    };
    match report {
        Some(path) => write_file(path, &text).map_err(|error| cannot(path, &error))?,
        None if args.report.is_some() || args.json => say(text),
        None => {}
    }
    Ok(())
}

/// Replaces a file in one step, so that a gateway that watches it never reads a part of it.
fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    if fs::metadata(path).is_ok_and(|known| !known.is_file()) {
        return fs::write(path, text); // such as /dev/stdout
    }
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()); // replaces the target of a symbolic link, not the link
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        let _ = fs::remove_file(&beside); // it may not exist
    }
    written
}

/// Writes consumers.yaml. An existing file is not replaced.
fn write_consumers(path: &Path, consumers: &[Consumer]) -> Result<(), Error> {
    let mut text = String::new();
    for consumer in consumers {
        let keys: Vec<_> = consumer
            .keys
            .iter()
            .map(|key| format!("    - sha256:{}\n", hex(&sha256(key.as_bytes()))))
            .collect();
        text += &format!("- name: {}\n  keys:\n{}", serde_json::json!(consumer.name), keys.concat());
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o640).open(path)?;
    file.write_all(text.as_bytes())
}
