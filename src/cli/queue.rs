//! `sluicegate queue`

use std::process::ExitCode;

use serde_json::{Value, json};
use sluicegate_config::percent_encode;

use super::admin_client::{AdminClient, AdminOptions};
use super::output::{INVALID, fail, print, print_and_exit, say};

#[derive(clap::Subcommand)]
#[command(
    after_help = "The gateway must have an admin API, and limits with `queue`. Changes need its token: --token, or the variable \
                  SLUICEGATE_ADMIN_TOKEN.\n\nExamples:\n  \
                  sluicegate queue list\n  \
                  sluicegate queue list orders --failed\n  \
                  sluicegate queue retry orders --all\n  \
                  sluicegate queue drop orders 0123456789abcdef0123456789abcdef"
)]
pub(super) enum Command {
    /// List the queues, or the requests of one: id, state, consumer, when it was accepted, attempts, reason
    #[command(after_help = "Examples:\n  sluicegate queue list\n  sluicegate queue list orders\n  \
                            sluicegate queue list orders --failed --json")]
    List {
        /// The limit whose queue it is [default: the queues with their figures]
        #[arg(value_name = "LIMIT")]
        limit: Option<String>,
        /// Only requests that have failed
        #[arg(long, requires = "limit")]
        failed: bool,
        /// Print JSON objects, one per line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        admin: AdminOptions,
    },
    /// Print a request as JSON; with a token, also the answer of the upstream
    #[command(after_help = "Example:\n  sluicegate queue get orders 0123456789abcdef0123456789abcdef")]
    Get {
        /// The limit whose queue it is
        #[arg(value_name = "LIMIT")]
        limit: String,
        /// The id of the request
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        admin: AdminOptions,
    },
    /// Queue failed requests again, for `max_attempts` new attempts
    #[command(after_help = "Examples:\n  sluicegate queue retry orders --all\n  \
                            sluicegate queue retry orders 0123456789abcdef0123456789abcdef")]
    Retry(Change),
    /// Remove failed requests, or cancel one that waits
    #[command(after_help = "Examples:\n  sluicegate queue drop orders --all\n  \
                            sluicegate queue drop orders 0123456789abcdef0123456789abcdef")]
    Drop(Change),
}

#[derive(clap::Args)]
pub(super) struct Change {
    /// The limit whose queue it is
    #[arg(value_name = "LIMIT")]
    limit: String,
    /// The id of the request
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    id: Option<String>,
    /// All that have failed
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    admin: AdminOptions,
}

pub(super) fn run(command: &Command) -> ExitCode {
    let admin = match command {
        Command::List { admin, .. } | Command::Get { admin, .. } => admin,
        Command::Retry(change) | Command::Drop(change) => &change.admin,
    };
    let done = AdminClient::new(admin).and_then(|mut client| match command {
        Command::List { limit: None, json, .. } => queues(&mut client, *json),
        Command::List { limit: Some(limit), failed, json, .. } => {
            requests(&mut client, limit, *failed, *json)
        }
        Command::Get { limit, id, .. } => {
            let path = format!("/queues/{}/requests/{}", percent_encode(limit), percent_encode(id));
            Ok(print_and_exit(&client.get(&path)?.success()?))
        }
        Command::Retry(change) => self::change(&mut client, change, "retry"),
        Command::Drop(change) => self::change(&mut client, change, "drop"),
    });
    done.unwrap_or_else(|message| fail(INVALID, message))
}

fn change(client: &mut AdminClient, change: &Change, what: &str) -> Result<ExitCode, String> {
    let body = match &change.id {
        Some(id) => json!({ "id": id }),
        None => json!({ "all": true }),
    };
    let path = format!("/queues/{}/{what}", percent_encode(&change.limit));
    let reply = client.send("POST", &path, None, &body.to_string())?.success()?;
    let changed: Value = serde_json::from_str(&reply).unwrap_or_default();
    let count = changed["changed"].as_u64().unwrap_or(0);
    let done = if what == "retry" { "queued again" } else { "dropped" };
    let noun = if count == 1 { "request" } else { "requests" };
    Ok(print_and_exit(&format!("{count} {noun} {done}\n")))
}

/// The queues with their figures.
fn queues(client: &mut AdminClient, json: bool) -> Result<ExitCode, String> {
    let queues = client.json("/queues")?;
    let queues = queues.as_array().map(Vec::as_slice).unwrap_or_default();
    if queues.is_empty() {
        say("no limit has a queue\n");
    }
    let number = |queue: &Value, name: &str| queue[name].as_u64().unwrap_or(0);
    for queue in queues {
        let line = match json {
            true => format!("{queue}\n"),
            false => {
                let oldest = queue["oldest_accepted_at"].as_str();
                let oldest = oldest.map_or(String::new(), |at| format!(", the oldest of {at}"));
                let paused = queue["paused_until"].as_str();
                let paused = paused.map_or(String::new(), |at| format!(", paused until {at}"));
                format!(
                    "{}\t{} of {} requests, {} bytes, {} failed{oldest}{paused}\n",
                    queue["limit"].as_str().unwrap_or_default(),
                    number(queue, "length"),
                    number(queue, "max_length"),
                    number(queue, "bytes"),
                    number(queue, "dead_letters"),
                )
            }
        };
        print(&line).map_err(|error| error.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The requests of a queue, page by page.
fn requests(client: &mut AdminClient, limit: &str, failed: bool, json: bool) -> Result<ExitCode, String> {
    let state = if failed { "failed" } else { "queued" };
    let (mut after, mut count) = (0, 0_u64);
    loop {
        let limit = percent_encode(limit);
        let page = client.json(&format!("/queues/{limit}/requests?state={state}&most=1000&after={after}"))?;
        for request in page["requests"].as_array().into_iter().flatten() {
            count += 1;
            let line = if json { format!("{request}\n") } else { line(request) };
            print(&line).map_err(|error| error.to_string())?;
        }
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    if count == 0 {
        say("there are no such requests\n");
    }
    Ok(ExitCode::SUCCESS)
}

/// A request in a line.
fn line(request: &Value) -> String {
    let text = |name: &str| request[name].as_str().unwrap_or_default();
    let attempts = request["attempts"].as_u64().unwrap_or(0);
    let reason = request["reason"].as_str().map_or(String::new(), |reason| format!("\t{reason}"));
    format!(
        "{}\t{}\t{}\t{}\t{attempts} attempts{reason}\n",
        text("id"),
        text("state"),
        text("consumer"),
        text("accepted_at")
    )
}
