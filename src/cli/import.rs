//! `sluicegate import`: reads a source, converts it, checks and writes the result.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueHint;

use super::output::{FAILED, INVALID, fail, print, say};
use sluicegate_base::file_watch::{hex, sha256};
use sluicegate_gateway::resources;
use sluicegate_import::kong::{self, Consumer};
use sluicegate_import::{
    Files, Imported, Outcome, haproxy, kubernetes, matches_glob, nginx, ratelimit, traefik, yaml_files,
};

#[derive(clap::Subcommand)]
#[command(
    after_help = "The result is written to standard output, or with -o to a file; the summary to standard error. docs/import.md says \
                  what is converted.\n\nExample:\n  sluicegate import nginx /etc/nginx -o gateway.yaml --report report.txt"
)]
pub(super) enum Command {
    /// Convert a configuration of nginx: a file with what it includes, or the output of nginx -T
    #[command(
        after_help = "Exit code: 0 if there is a result, 1 if the source cannot be read or converted, 2 if the \
                      result cannot be written; with --strict, 1 also if a directive is unsupported.\n\n\
                      Examples:\n  sluicegate import nginx /etc/nginx/nginx.conf > gateway.yaml\n  \
                      sluicegate import nginx /etc/nginx -o gateway.yaml --report report.txt\n  \
                      nginx -T | sluicegate import nginx - -o gateway.yaml --report\n  \
                      sluicegate import nginx nginx.conf --strict --json > /dev/null"
    )]
    Nginx(Args),
    /// Convert a configuration of HAProxy
    #[command(
        after_help = "Variables of the environment in the file have the values that they have now.\n\n\
                      Exit code: 0 if there is a result, 1 if the source cannot be read or converted, 2 if the \
                      result cannot be written; with --strict, 1 also if a line is unsupported.\n\n\
                      Examples:\n  sluicegate import haproxy /etc/haproxy/haproxy.cfg > gateway.yaml\n  \
                      sluicegate import haproxy /etc/haproxy -o gateway.yaml --report report.txt\n  \
                      cat *.cfg | sluicegate import haproxy - -o gateway.yaml --report"
    )]
    Haproxy(Args),
    /// Convert a declarative configuration of Kong
    #[command(
        after_help = "With -o, the keys of consumers are written to consumers.yaml beside the result, as their SHA-256.\n\n\
                      Exit code: 0 if there is a result, 1 if the source cannot be read or converted or \
                      consumers.yaml cannot be written, 2 if the result cannot be written; with --strict, 1 also if a field is unsupported.\n\n\
                      Examples:\n  sluicegate import kong kong.yaml -o gateway.yaml --report report.txt\n  \
                      deck gateway dump -o - | sluicegate import kong - -o gateway.yaml --report"
    )]
    Kong(Args),
    /// Convert files of envoyproxy/ratelimit: descriptors become limits
    #[command(
        after_help = "Exit code: 0 if there is a result, 1 if the source cannot be read or converted, 2 if the \
                      result cannot be written; with --strict, 1 also if a field is unsupported.\n\nThe files do not say \
                      which part of a request a key such as user_id is. The report lists such keys; --key says it.\n\nExamples:\n  sluicegate \
                      import ratelimit config/ -o gateway.yaml --report report.txt\n  sluicegate import ratelimit config.yaml --key \
                      user_id=header:X-User-Id --key database=query:db > gateway.yaml"
    )]
    Ratelimit(RatelimitArgs),
    /// Convert manifests of Kubernetes: Ingress with annotations of ingress-nginx, HTTPRoute, Gateway
    #[command(
        after_help = "Exit code: 0 if there is a result, 1 if the source cannot be read or converted, 2 if the \
                      result cannot be written; with --strict, 1 also if a field is unsupported.\n\nExamples:\n  kubectl \
                      get ingress,httproute,gateway,service -A -o yaml | sluicegate import kubernetes - -o gateway.yaml --report\n  \
                      sluicegate import kubernetes manifests/ -o gateway.yaml --report report.txt"
    )]
    Kubernetes(Args),
    /// Convert the dynamic configuration of Traefik, with its entry points if the static one is there, too
    #[command(
        after_help = "Exit code: 0 if there is a result, 1 if the source cannot be read or converted, 2 if the \
                      result cannot be written; with --strict, 1 also if a field is unsupported.\n\nExamples:\n  \
                      sluicegate import traefik /etc/traefik -o gateway.yaml --report report.txt\n  cat traefik.yml dynamic.yml | \
                      sluicegate import traefik - > gateway.yaml"
    )]
    Traefik(Args),
}

#[derive(clap::Args)]
pub(super) struct RatelimitArgs {
    #[command(flatten)]
    args: Args,
    /// The key of limits for a key of descriptors: user_id=header:X-User-Id; may be repeated
    #[arg(long, value_name = "NAME=KEY", value_parser = meaning)]
    key: Vec<(String, String)>,
}

#[derive(clap::Args)]
pub(super) struct Args {
    /// The first file, or a folder with the files of the source; - for standard input
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
            return Err("it is not a regular file".to_owned()); // a device or pipe may never end
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

/// `NAME=KEY` of --key.
fn meaning(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, key)| !name.is_empty() && !key.is_empty());
    let (name, key) = parts.ok_or("expected NAME=KEY, such as user_id=header:X-User-Id")?;
    Ok((name.to_owned(), key.to_owned()))
}

pub(super) fn run(command: &Command) -> ExitCode {
    let (args, imported) = match command {
        Command::Nginx(args) => (args, read_nginx(&args.path)),
        Command::Haproxy(args) => (args, read_haproxy(&args.path)),
        Command::Kong(args) => (args, read_kong(args)),
        Command::Ratelimit(RatelimitArgs { args, key }) => {
            let meanings = key.iter().cloned().collect();
            (args, with_files(&args.path, |path, files| ratelimit::import(path, files, &meanings)))
        }
        Command::Kubernetes(args) => (args, with_files(&args.path, kubernetes::import)),
        Command::Traefik(args) => (args, with_files(&args.path, traefik::import)),
    };
    let imported = match imported {
        Ok(imported) => imported,
        Err(message) => {
            say(message);
            return ExitCode::from(INVALID);
        }
    };
    finish(args, &imported)
}

fn read_nginx(path: &Path) -> Result<Imported, String> {
    let (name, text) = first_file(path, "/etc/nginx/nginx.conf", "nginx.conf")?;
    nginx::import_text(&Disk, &name, &text)
}

fn read_haproxy(path: &Path) -> Result<Imported, String> {
    let (name, text) = first_file(path, "haproxy.cfg", "haproxy.cfg")?;
    haproxy::import_text(&Disk, &name, &text, &|name| std::env::var(name).ok())
}

fn read_kong(args: &Args) -> Result<Imported, String> {
    let (name, text) = first_file(&args.path, "kong.yaml", "kong.yaml")?;
    let found = kong::import_text(&name, &text)?;
    if !found.consumers.is_empty() {
        write_consumers(args, &found.consumers)?;
    }
    Ok(found.imported)
}

/// Writes consumers.yaml beside the result. An existing file is not replaced.
fn write_consumers(args: &Args, consumers: &[Consumer]) -> Result<(), String> {
    let Some(output) = &args.output else {
        let are = if consumers.len() == 1 { "consumer is" } else { "consumers are" };
        say(format_args!(
            "{} {are} not written; -o FILE writes them to consumers.yaml beside FILE\n",
            consumers.len()
        ));
        return Ok(());
    };
    let path = output.with_file_name("consumers.yaml");
    let mut text = String::new();
    for consumer in consumers {
        let keys: Vec<_> = consumer
            .keys
            .iter()
            .map(|key| format!("    - sha256:{}\n", hex(&sha256(key.as_bytes()))))
            .collect();
        text += &format!("- name: {}\n  keys:\n{}", serde_json::json!(consumer.name), keys.concat());
    }
    let mut options = fs::OpenOptions::new();
    let written = options
        .write(true)
        .create_new(true)
        .mode(0o640)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        format!(
            "sluicegate: cannot write {}: {error}\n  help: move the file that is there, and import again\n",
            path.display()
        )
    })
}

/// Reads a file, the YAML files of a folder, or standard input, and converts them.
fn with_files(
    path: &Path,
    import: impl FnOnce(&str, &[(String, String)]) -> Result<Imported, String>,
) -> Result<Imported, String> {
    let Some(shown) = path.to_str() else {
        return Err(format!("{} is not a name in UTF-8\n", path.display()));
    };
    if shown == "-" {
        let text =
            std::io::read_to_string(std::io::stdin()).map_err(|error| format!("cannot read: {error}\n"))?;
        return import("standard input", &[("stdin".to_owned(), text)]);
    }
    let names = if path.is_dir() { yaml_files(&Disk, shown) } else { vec![shown.to_owned()] };
    let mut files = Vec::new();
    for name in names {
        let text = Disk.read(&name).map_err(|error| {
            let help = "name a file in YAML, a folder with such files, or - for standard input";
            format!("sluicegate: cannot read {name}: {error}\n  help: {help}\n")
        })?;
        files.push((name, text));
    }
    import(shown, &files)
}

/// The name and the text of a file, of the file `usual` in a folder, or of standard input, whose name is `piped`.
fn first_file(path: &Path, piped: &str, usual: &str) -> Result<(String, String), String> {
    if path.as_os_str() == "-" {
        let text =
            std::io::read_to_string(std::io::stdin()).map_err(|error| format!("cannot read: {error}\n"))?;
        return Ok((piped.to_owned(), text));
    }
    let file = if path.is_dir() { path.join(usual) } else { path.to_owned() };
    let Some(name) = file.to_str() else {
        return Err(format!("{} is not a name in UTF-8\n", file.display()));
    };
    let text = Disk.read(name).map_err(|error| {
        let help = format!("name {usual}, the folder that it is in, or - for standard input");
        format!("sluicegate: cannot read {name}: {error}\n  help: {help}\n")
    })?;
    Ok((name.to_owned(), text))
}

/// Checks and writes a result, its report, and the summary.
fn finish(args: &Args, imported: &Imported) -> ExitCode {
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
            say("--report shows what became of each directive, and what to do about unsupported ones\n");
            ExitCode::SUCCESS
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Replaces a file in one step, so that a gateway that watches it never reads a part of it.
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
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()); // replaces the target of a symbolic link, not the link
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        let _ = fs::remove_file(&beside); // it may not exist
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
