//! `sluicegate top`

mod look;
mod screen;

use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use sluicegate_config::percent_encode;

use self::look::{Look, rows};
use super::admin_client::{AdminClient, AdminOptions};
use super::output::{FAILED, INVALID, fail, print_and_exit};

#[derive(clap::Args)]
#[command(
    after_help = "Counts are those of the last hour: of all gateways for shared limits, otherwise of one. They are exact \
                  while a limit has few keys; otherwise a key \
                  has count - error requests at least, and count + error at most. Secrets in keys are shown as digests, unless \
                  the configuration has `admin: {show_keys: true}`, with the consumers of API keys. Of a limit with `fair`, which has one \
                  key, those are counted that `fair.by` names.\n\n\
                  Keys: q quits, Tab changes between refused and all requests, the arrows choose a limit, p pauses.\n\n\
                  Examples:\n  sluicegate top\n  sluicegate top --admin 10.0.0.7:9090 --limit per-key\n  \
                  sluicegate top --limit per-key --key acme\n  \
                  sluicegate top --once --json --by requests | jq -r '.keys[].key'"
)]
pub(super) struct Args {
    #[command(flatten)]
    admin: AdminOptions,
    /// Only this limit
    #[arg(long, value_name = "LIMIT")]
    limit: Option<String>,
    /// Only this key of the limit: as requests have it, as it is shown, or the name of its consumer
    #[arg(long, value_name = "KEY", requires = "limit")]
    key: Option<String>,
    /// What keys are ranked by
    #[arg(long, value_name = "WHAT", default_value = "refused", value_parser = ["refused", "requests"])]
    by: String,
    /// Print once and end
    #[arg(long)]
    once: bool,
    /// Print JSON: a line for each limit (with --once)
    #[arg(long, requires = "once")]
    json: bool,
    /// The time between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let mut client = match AdminClient::new(&args.admin) {
        Ok(client) => client,
        Err(message) => return fail(INVALID, message),
    };
    let first = match look(&mut client, args, &args.by, 0) {
        Ok(first) => first,
        Err(message) => return fail(INVALID, message),
    };
    if args.once {
        let lines = first.tops.iter().map(|top| if args.json { format!("{top}\n") } else { table(top) });
        return print_and_exit(&lines.collect::<String>());
    }
    let again = |by: &str, since| look(&mut client, args, by, since);
    match screen::show(first, &args.by, Duration::from_secs(args.every), again) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, format!("cannot use the terminal: {error}; without one, use --once")),
    }
}

/// Asks the gateway for the keys of one limit, or of all, and for what it did since a second of its clock.
fn look(client: &mut AdminClient, args: &Args, by: &str, since: u64) -> Result<Look, String> {
    let names = match &args.limit {
        Some(limit) => vec![limit.clone()],
        None => {
            let limits = client.json("/limits")?;
            let all = limits.as_array().into_iter().flatten();
            all.filter_map(|limit| limit["name"].as_str()).map(str::to_owned).collect()
        }
    };
    let key = args.key.as_ref().map_or_else(String::new, |key| format!("&key={}", percent_encode(key)));
    let mut tops = Vec::new();
    for name in names {
        tops.push(client.json(&format!("/limits/{}/top?by={by}{key}", percent_encode(&name)))?);
    }
    Ok(Look { live: client.json(&format!("/live?since={since}"))?, tops })
}

/// The keys of a limit as text.
fn table(top: &Value) -> String {
    let name = top["limit"].as_str().unwrap_or_default();
    let shared = top["fair_by"].as_str().map_or_else(String::new, |by| format!(", shared by {by}"));
    let mut out = format!("{name}, by {}{shared}\n", top["by"].as_str().unwrap_or_default());
    for (count, key) in rows(top) {
        out += &format!("{count:>16}  {key}\n");
    }
    out
}
