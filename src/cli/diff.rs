//! `sluicegate diff`

use std::process::ExitCode;

use clap::ValueHint;
use serde_json::Value;
use sluicegate_limiter::Time;

use super::output::{FAILED, INVALID, fail, print, say};
use sluicegate_gateway::admin::effective_config;
use sluicegate_gateway::diff::Diff;
use sluicegate_gateway::resources::Source;
use sluicegate_gateway::snapshot::{Opened, SnapshotBuilder};

#[derive(clap::Args)]
#[command(
    after_help = "A limit keeps its counters while its name, key, algorithm and scope stay the same; other numbers rescale \
                  them. To compare a file with what a gateway has in force, use `sluicegate check --against-running`.\n\n\
                  Exit code: 0 if no counter is lost; 1 if some are, or a file has errors.\n\n\
                  Examples:\n  sluicegate diff gateway.yaml new.yaml\n  \
                  git show HEAD:gateway.yaml | sluicegate diff - gateway.yaml\n  \
                  sluicegate diff --json old.yaml new.yaml | jq '.limits[] | select(.fate == \"lost\")'"
)]
pub(super) struct Args {
    /// The configuration in force; - for standard input
    #[arg(value_name = "OLD", value_hint = ValueHint::FilePath)]
    old: Source,
    /// The configuration that would be loaded; - for standard input
    #[arg(value_name = "NEW", value_hint = ValueHint::FilePath)]
    new: Source,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> ExitCode {
    if args.old == Source::Stdin && args.new == Source::Stdin {
        return fail(INVALID, "standard input cannot be both configurations; name a file for one of them");
    }
    let (old, new) = match (effective(&args.old), effective(&args.new)) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(message), _) | (_, Err(message)) => return fail(INVALID, message),
    };
    show(&Diff::between(&old, &new, |_| None), args.json)
}

/// A configuration as a gateway that has it in force would show it. Errors of the file are printed.
pub(super) fn effective(source: &Source) -> Result<Value, String> {
    let loaded = source.load().map_err(|error| format!("cannot read {source}: {error}"))?;
    let Some(config) = loaded.config else {
        say(&loaded.rendered);
        return Err(format!("{source} has errors"));
    };
    Ok(effective_config(&SnapshotBuilder::default().build(config, Opened::default(), None, Time::EPOCH)))
}

/// Prints the differences. The exit code is 1 if counters are lost.
pub(super) fn show(diff: &Diff, json: bool) -> ExitCode {
    let text = match serde_json::to_string_pretty(diff) {
        Ok(text) if json => text + "\n",
        _ => format!("{}{}\n", diff.text(), diff.summary()),
    };
    if let Err(error) = print(&text) {
        return fail(FAILED, format!("cannot write: {error}"));
    }
    ExitCode::from(if diff.loses() { INVALID } else { 0 })
}
