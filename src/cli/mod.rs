//! The commands.

mod admin_client;
mod check;
mod completions;
mod consumers;
mod diff;
mod explain;
mod health;
mod import;
mod man;
mod options;
mod output;
mod queue;
mod replay;
mod rules;
mod run;
mod schema;
mod size;
mod top;

use self::output::{INVALID, fail};
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[derive(Parser)]
#[command(
    version,
    long_version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SLUICEGATE_BUILD"), ")"),
    about = "A rate-limiting edge gateway: exact limits in front of an existing HTTP API",
    after_help = "Examples:\n  sluicegate                         serve ./sluicegate.yaml or ./gateway.yaml\n  \
                  sluicegate run api.yaml            serve another file\n  \
                  sluicegate check                   validate the same file\n  \
                  sluicegate replay access.log       test rules on past traffic\n  \
                  sluicegate consumers add acme      create an API key\n\n\
                  Commands that read a configuration take ./sluicegate.yaml, else ./gateway.yaml, --config FILE, or \
                  --config - for standard input; run and check also take FILE alone. Relative paths in a configuration from standard input \
                  start at the current folder.",
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::Options,
}

#[derive(Subcommand)]
enum Command {
    /// Serve (the default)
    Run(run::Args),
    /// Validate a configuration: errors and warnings with lines and advice
    #[command(visible_aliases = ["test", "validate"], alias = "configtest")]
    Check(check::Args),
    /// Explain which route and limits a request meets, and what it would be answered
    Explain(explain::Args),
    /// Show what a reload would keep, rescale or lose
    Diff(diff::Args),
    /// Test rules on past traffic: replay access logs
    Replay(replay::Args),
    /// Create, replace, remove and list consumers and their API keys
    #[command(subcommand)]
    Consumers(consumers::Command),
    /// List queued requests, and queue failed ones again or drop them, over the admin API
    #[command(subcommand)]
    Queue(queue::Command),
    /// List, create and remove rules of single keys, over the admin API
    #[command(subcommand)]
    Rules(rules::Command),
    /// Show the busiest and the most refused keys, live
    Top(top::Args),
    /// Convert configurations of other programs to a gateway.yaml
    #[command(subcommand)]
    Import(import::Command),
    /// Estimate gateways, stores, memory and money for a given load
    Size(size::Args),
    /// Check whether a gateway is ready, for health checks of containers
    Health(health::Args),
    /// Print the JSON Schema of gateway.yaml, for editors
    #[command(after_help = "Example:\n  sluicegate schema > gateway.schema.json")]
    Schema,
    /// Print the completion script for a shell
    Completions(completions::Args),
    /// Print the manual pages of all commands, or write them to a folder
    Man(man::Args),
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            if let Some(meant) = foreign_command(std::env::args_os().skip(1)) {
                return fail(INVALID, meant);
            }
            let _ = error.print(); // an error of the terminal cannot be reported
            return ExitCode::from(if error.use_stderr() { INVALID } else { 0 });
        }
    };
    match cli.command {
        None => run::run(&cli.run, cli.run.source()),
        Some(Command::Run(args)) => args.run(),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Diff(args)) => diff::run(&args),
        Some(Command::Explain(args)) => explain::run(&args),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Consumers(command)) => consumers::run(&command),
        Some(Command::Queue(command)) => queue::run(&command),
        Some(Command::Rules(command)) => rules::run(&command),
        Some(Command::Top(args)) => top::run(&args),
        Some(Command::Import(command)) => import::run(&command),
        Some(Command::Size(args)) => size::run(&args),
        Some(Command::Health(args)) => health::run(&args),
        Some(Command::Schema) => schema::run(),
        Some(Command::Completions(args)) => completions::run(&args, &mut Cli::command()),
        Some(Command::Man(args)) => man::run(&args, Cli::command()),
    }
}

/// What is meant by the arguments of another program that cannot be understood: of HAProxy, nginx, or a service.
fn foreign_command(arguments: impl Iterator<Item = OsString>) -> Option<String> {
    let arguments: Vec<OsString> = arguments.collect();
    let words: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    match words.as_slice() {
        ["-c", "-f", file, ..] | ["-f", file, "-c", ..] => {
            Some(format!("to validate a configuration: sluicegate check {file}"))
        }
        ["-f", file, ..] => Some(format!("to serve a configuration: sluicegate run {file}")),
        ["reload", ..] | ["-s", "reload" | "reopen", ..] => Some(
            "a changed file comes into force by itself, and with `kill -HUP`; `kill -USR1` opens the access log again"
                .to_owned(),
        ),
        ["stop" | "quit", ..] | ["-s", "stop" | "quit", ..] => {
            Some("`kill -TERM` lets requests in flight end and stops the gateway".to_owned())
        }
        ["status" | "stats", ..] => {
            Some("sluicegate health, sluicegate top, or `curl http://ADMIN/status`".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands in a page: lines of blocks of code that begin with `sluicegate`, and code within texts.
    fn commands(page: &str) -> Vec<String> {
        let mut found = Vec::new();
        let (mut lines, mut texts) = (String::new(), String::new());
        for (index, part) in page.split("```").enumerate() {
            match (index % 2, part.split('\n').next().unwrap_or_default()) {
                (0, _) => texts += part,
                (_, "sh" | "console" | "text" | "") => lines += &part.replace("\\\n", " "),
                _ => {}
            }
        }
        for line in lines.lines() {
            let line = line.trim().trim_start_matches("$ ").trim_start_matches("sudo ");
            let line = line.trim_start_matches("target/release/").trim_start_matches("exec ");
            if line.starts_with("sluicegate ") {
                found.push(line.split(['#', '|', '>', '<', '&', ';']).next().unwrap_or_default().to_owned());
            }
        }
        let inline = texts.replace('\n', " ");
        let code = inline.split('`').skip(1).step_by(2).filter(|code| code.starts_with("sluicegate "));
        found.extend(code.map(|code| code.split(['|', '>', '&', ';']).next().unwrap_or_default().to_owned()));
        found
    }

    /// The arguments of a command line; quotes hold spaces together.
    fn arguments(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quote = None;
        for c in line.trim().chars() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '\'' | '"') => quote = Some(c),
                (None, ' ') => words.push(String::new()),
                // A name in capitals or with an ellipsis stands for a value, and a number is as good as any.
                (_, c) => words.last_mut().unwrap().push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    /// What the documents tell to type can be typed. Only what cannot be understood is looked for: a command may lack an
    /// argument where a text only names it.
    #[test]
    fn documented_commands_are_understood() {
        use clap::error::{ContextKind, ContextValue};

        use clap::error::ErrorKind::{
            DisplayHelpOnMissingArgumentOrSubcommand, InvalidSubcommand, InvalidValue,
            MissingRequiredArgument, ValueValidation,
        };
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
        let pages = pages.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
        let (mut seen, mut wrong) = (0, String::new());
        for page in pages.chain([root.join("README.md")]) {
            for line in commands(&std::fs::read_to_string(&page).unwrap()) {
                seen += 1;
                let Err(error) = Cli::command().try_get_matches_from(arguments(&line)) else { continue };
                let is_empty = matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty());
                let named = is_empty || line.chars().any(char::is_uppercase) || line.contains('…');
                let fits = match error.kind() {
                    MissingRequiredArgument | DisplayHelpOnMissingArgumentOrSubcommand => true,
                    InvalidValue | ValueValidation => named,
                    InvalidSubcommand => false,
                    _ => !error.use_stderr(),
                };
                if !fits {
                    wrong += &format!("{}: {line}\n{error}\n", page.display());
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
        assert!(seen > 60, "{seen}");
    }

    /// Links within and between the pages lead somewhere.
    #[test]
    fn links_of_the_documents_lead_somewhere() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = |page: &std::path::Path| std::fs::read_to_string(page).ok();
        let anchors = |text: &str| -> Vec<String> {
            let headings =
                text.split("```").step_by(2).flat_map(str::lines).filter(|line| line.starts_with('#'));
            let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            let anchor = |line: &str| -> String {
                let plain = line.trim_start_matches('#').trim().to_lowercase();
                plain.chars().filter(|c| kept(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
            };
            headings.map(anchor).collect()
        };
        let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
        let mut wrong = Vec::new();
        for page in pages.chain([root.join("README.md"), root.join("ARCHITECTURE.md")]) {
            let Some(own) = text(&page).filter(|_| page.extension().is_some_and(|e| e == "md")) else {
                continue;
            };
            for link in own.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                if link.contains("://") || link.contains(' ') {
                    continue;
                }
                let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
                let there = anchor.is_empty() && target.exists();
                let named =
                    || text(&target).is_some_and(|text| anchors(&text).iter().any(|one| one == anchor));
                if !there && !named() {
                    wrong.push(format!("{}: {link}", page.display()));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// The lists of contents name all sections of the page and all pages.
    #[test]
    fn contents_are_complete() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = |page: &str| std::fs::read_to_string(root.join(page)).unwrap();
        for page in ["docs/configuration.md", "docs/operations.md"] {
            let text = text(page);
            let (contents, rest) = text.split_once("\n## ").unwrap();
            let sections = rest.split("```").step_by(2).flat_map(str::lines);
            for heading in sections.filter_map(|line| line.strip_prefix("## ")) {
                let link = format!("(#{})", heading.to_lowercase().replace(' ', "-"));
                assert!(contents.contains(&link), "{page} does not list `{heading}`");
            }
        }
        let readme = text("README.md");
        for entry in std::fs::read_dir(root.join("docs")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_of_book = ["README.md", "SUMMARY.md"].contains(&name.as_str());
            assert!(
                is_of_book || !name.ends_with(".md") || readme.contains(&format!("docs/{name}")),
                "README.md does not link docs/{name}"
            );
        }
    }

    #[test]
    fn arguments_of_other_programs_are_answered() {
        let answer = |line: &str| {
            let words = line.split(' ').map(OsString::from);
            Cli::command()
                .try_get_matches_from(std::iter::once(OsString::from("sluicegate")).chain(words.clone()))
                .is_err()
                .then(|| foreign_command(words).unwrap_or_else(|| panic!("{line} is not answered")))
        };
        for (line, meant) in [
            ("-t", None),
            ("-t -c other.yaml", None),
            ("-c other.yaml", None),
            ("check -c other.yaml", None),
            ("test other.yaml", None),
            ("validate -c other.yaml", None),
            ("configtest", None),
            ("-c -f other.yaml", Some("sluicegate check other.yaml")),
            ("-f other.yaml", Some("sluicegate run other.yaml")),
            ("-s reload", Some("comes into force by itself")),
            ("reload", Some("comes into force by itself")),
            ("stop", Some("kill -TERM")),
            ("status", Some("sluicegate health")),
        ] {
            let found = answer(line);
            assert!(
                found.as_deref().unwrap_or_default().contains(meant.unwrap_or_default()),
                "{line}: {found:?}"
            );
            assert_eq!(found.is_some(), meant.is_some(), "{line}: {found:?}");
        }
    }

    /// Every command has a description and an example in its help and its manual page.
    #[test]
    fn every_command_shows_examples() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{}: {help}", command.get_name());
            assert!(command.get_about().is_some(), "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        Cli::command().debug_assert();
        check(&Cli::command());
    }
}
