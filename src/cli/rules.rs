//! `sluicegate rules`

mod import;

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use sluicegate_config::percent_encode;

use super::admin_client::{AdminClient, AdminOptions};
use super::output::{FAILED, INVALID, fail, print, print_and_exit, say};

#[derive(clap::Subcommand)]
#[command(
    after_help = "The gateway must have `rules` in its configuration, and an admin API. Changes need its token: \
                  --token, or the variable SLUICEGATE_ADMIN_TOKEN.\n\nExamples:\n  \
                  sluicegate rules set acme --limit per-key --key k1 --rate 500/min\n  \
                  sluicegate rules list --limit per-key\n  \
                  sluicegate rules export > rules.ndjson\n  \
                  sluicegate rules rm acme"
)]
pub(super) enum Command {
    /// List rules: id, limit, key, what they change, version
    #[command(
        after_help = "Examples:\n  sluicegate rules list\n  sluicegate rules list --limit per-key --key k1"
    )]
    List {
        /// Only those of this limit
        #[arg(long, value_name = "LIMIT")]
        limit: Option<String>,
        /// Only those with this key or pattern
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        #[command(flatten)]
        admin: AdminOptions,
    },
    /// Print a rule as JSON
    #[command(after_help = "Example:\n  sluicegate rules get acme")]
    Get {
        /// The id of the rule
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        admin: AdminOptions,
    },
    /// Create or replace a rule
    #[command(after_help = "Examples:\n  \
                            sluicegate rules set acme --limit per-key --key k1 --rate 500/min --burst 50\n  \
                            sluicegate rules set sale --limit per-key --key 'merchant-*' --rate 2k/s \
                            --until 2026-12-24T00:00:00Z --priority 10\n  \
                            sluicegate rules set probe --limit per-ip --key 10.0.0.0/8 --exempt --dry-run")]
    Set(Box<SetArgs>),
    /// Remove a rule
    #[command(after_help = "Examples:\n  sluicegate rules rm acme\n  sluicegate rules rm acme --dry-run")]
    #[command(visible_alias = "remove")]
    Rm {
        /// The id of the rule
        #[arg(value_name = "ID")]
        id: String,
        /// Only if the rule has this version, as `list` shows it
        #[arg(long, value_name = "VERSION")]
        if_match: Option<u64>,
        /// Only show what it would change
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        admin: AdminOptions,
    },
    /// Change some fields of a rule, and leave the others
    #[command(after_help = "A null removes a field (RFC 7396).\n\nExamples:\n  \
                            sluicegate rules patch acme '{\"rate\": \"900/min\", \"burst\": null}'\n  \
                            sluicegate rules patch acme '{\"exempt\": true}' --if-match 41")]
    Patch {
        /// The id of the rule
        #[arg(value_name = "ID")]
        id: String,
        /// The fields, as JSON
        #[arg(value_name = "JSON")]
        fields: String,
        /// Only if the rule has this version, as `list` shows it
        #[arg(long, value_name = "VERSION")]
        if_match: Option<u64>,
        /// Only show what it would change
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        admin: AdminOptions,
    },
    /// Create, replace and remove many rules, all or none: a JSON object per line
    #[command(after_help = "A line is a rule as `get` prints it, or {\"delete\": \"ID\"}.\n\nExamples:\n  \
                            sluicegate rules import rules.ndjson --dry-run\n  \
                            sluicegate rules import million.ndjson --batch 1000\n  \
                            sluicegate rules export | sluicegate rules import - --admin other:9090")]
    Import {
        /// The file; - for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Send batches of so many lines, each of which is all or none: for files of more than 10 MiB, and for rules in Redis,
        /// which does nothing else while it writes a batch
        #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u32).range(1..))]
        batch: Option<u32>,
        /// Only show whether it would work
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        admin: AdminOptions,
    },
    /// Print all rules, one JSON object per line
    #[command(after_help = "Example:\n  sluicegate rules export > rules.ndjson")]
    Export {
        #[command(flatten)]
        admin: AdminOptions,
    },
    /// Print changes as they are made, one JSON object per line
    #[command(after_help = "Example:\n  sluicegate rules watch --since 0")]
    Watch {
        /// Begin after this version; 0 for all that are kept [default: from now on]
        #[arg(long, value_name = "VERSION")]
        since: Option<u64>,
        #[command(flatten)]
        admin: AdminOptions,
    },
}

#[derive(clap::Args)]
pub(super) struct SetArgs {
    /// The id of the rule, which you choose
    #[arg(value_name = "ID")]
    id: String,
    /// The limit
    #[arg(long, value_name = "LIMIT")]
    limit: String,
    /// The key or a pattern: k1, merchant-*, 203.0.113.0/24
    #[arg(long, value_name = "KEY")]
    key: String,
    /// The rate, such as 500/min
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// The size of the bucket
    #[arg(long, value_name = "N")]
    burst: Option<u64>,
    /// The number of requests in flight
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// enforce, shadow or off
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// The limit does not apply to the key
    #[arg(long)]
    exempt: bool,
    /// The highest priority applies
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// From when on, such as 2026-12-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Until when
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Why it exists
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    /// Only if the rule has this version, as its ETag says
    #[arg(long, value_name = "VERSION")]
    if_match: Option<u64>,
    /// Only show what it would change
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    admin: AdminOptions,
}

pub(super) fn run(command: &Command) -> ExitCode {
    let (Command::List { admin, .. }
    | Command::Get { admin, .. }
    | Command::Rm { admin, .. }
    | Command::Patch { admin, .. }
    | Command::Import { admin, .. }
    | Command::Export { admin }
    | Command::Watch { admin, .. }) = command
    else {
        let Command::Set(set) = command else { return ExitCode::FAILURE };
        return with(&set.admin, |client| self::set(client, set));
    };
    with(admin, |client| match command {
        Command::List { limit, key, .. } => list(client, limit.as_deref(), key.as_deref()),
        Command::Get { id, .. } => {
            let reply = client.get(&format!("/rules/{}", percent_encode(id)))?;
            Ok(print_and_exit(&reply.success()?))
        }
        Command::Rm { id, if_match, dry_run, .. } => {
            let path = import::dry(&format!("/rules/{}", percent_encode(id)), *dry_run);
            let reply = client.send("DELETE", &path, condition(*if_match).as_deref(), "")?;
            Ok(print_and_exit(&reply.success()?))
        }
        Command::Patch { id, fields, if_match, dry_run, .. } => {
            let path = import::dry(&format!("/rules/{}", percent_encode(id)), *dry_run);
            let reply = client.send("PATCH", &path, condition(*if_match).as_deref(), fields)?;
            Ok(print_and_exit(&reply.success()?))
        }
        Command::Import { file, batch, dry_run, .. } => {
            import::import(client, file, batch.map(|batch| batch as usize), *dry_run)
        }
        Command::Export { .. } => export(client),
        Command::Watch { since, .. } => watch(client, *since),
        Command::Set(set) => self::set(client, set),
    })
}

/// Runs a command with a connection to the admin API.
fn with(options: &AdminOptions, run: impl FnOnce(&mut AdminClient) -> Result<ExitCode, String>) -> ExitCode {
    let done = AdminClient::new(options).and_then(|mut client| run(&mut client));
    done.unwrap_or_else(|message| fail(INVALID, message))
}

fn set(client: &mut AdminClient, set: &SetArgs) -> Result<ExitCode, String> {
    let mut rule = Map::new();
    rule.insert("id".to_owned(), json!(set.id));
    rule.insert("limit".to_owned(), json!(set.limit));
    rule.insert("key".to_owned(), json!(set.key));
    for (name, value) in [
        ("rate", json!(set.rate)),
        ("burst", json!(set.burst)),
        ("max", json!(set.max)),
        ("mode", json!(set.mode)),
        ("exempt", set.exempt.then_some(true).into()),
        ("from", json!(set.from)),
        ("until", json!(set.until)),
    ] {
        if !value.is_null() {
            rule.insert(name.to_owned(), value);
        }
    }
    rule.insert("priority".to_owned(), json!(set.priority));
    rule.insert("note".to_owned(), json!(set.note));
    let condition = condition(set.if_match);
    let path = import::dry(&format!("/rules/{}", percent_encode(&set.id)), set.dry_run);
    let reply = client.send("PUT", &path, condition.as_deref(), &Value::Object(rule).to_string())?;
    Ok(print_and_exit(&reply.success()?))
}

/// The condition that a rule has this version.
fn condition(version: Option<u64>) -> Option<String> {
    version.map(|version| format!("\"{version}\""))
}

/// All rules, page by page.
///
/// # Errors
/// If there is no answer, or, after all others, if rules cannot be read.
fn pages(
    client: &mut AdminClient,
    filter: &str,
    mut each: impl FnMut(&Value, &Value) -> Result<(), String>,
) -> Result<(), String> {
    let (mut after, mut unreadable) = (String::new(), Vec::new());
    loop {
        let reply = client.get(&format!("/rules?most=1000{filter}{after}"))?;
        let page: Value = serde_json::from_str(&reply.success()?)
            .map_err(|error| format!("the answer cannot be read: {error}"))?;
        for (index, rule) in page["rules"].as_array().into_iter().flatten().enumerate() {
            each(rule, &page["versions"][index])?;
        }
        let details = page["unreadable"].as_array().into_iter().flatten();
        unreadable.extend(details.filter_map(|one| one["detail"].as_str().map(str::to_owned)));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", percent_encode(next)),
            None if unreadable.is_empty() => return Ok(()),
            None => return Err(unreadable.join("\n")),
        }
    }
}

fn list(client: &mut AdminClient, limit: Option<&str>, key: Option<&str>) -> Result<ExitCode, String> {
    let mut filter = String::new();
    for (name, value) in [("limit", limit), ("key", key)] {
        if let Some(value) = value {
            filter = format!("{filter}&{name}={}", percent_encode(value));
        }
    }
    let mut count = 0_u64;
    pages(client, &filter, |rule, version| {
        count += 1;
        printed(&line(rule, version))
    })?;
    if count == 0 {
        say("there are no such rules\n");
    }
    Ok(ExitCode::SUCCESS)
}

/// A rule and its version in a line.
fn line(rule: &Value, version: &Value) -> String {
    let text = |name: &str| rule[name].as_str().unwrap_or_default().to_owned();
    let mut changes = Vec::new();
    for name in ["rate", "burst", "max", "mode", "priority", "from", "until"] {
        match &rule[name] {
            Value::String(value) => changes.push(format!("{name} {value}")),
            Value::Number(value) if name != "priority" || value.as_i64() != Some(0) => {
                changes.push(format!("{name} {value}"));
            }
            _ => {}
        }
    }
    if rule["exempt"] == true {
        changes.push("exempt".to_owned());
    }
    let version = version.as_u64().map_or(String::new(), |version| format!("\tversion {version}"));
    format!("{}\t{}\t{}\t{}{version}\n", text("id"), text("limit"), text("key"), changes.join(", "))
}

fn export(client: &mut AdminClient) -> Result<ExitCode, String> {
    pages(client, "", |rule, _| printed(&format!("{rule}\n")))?;
    Ok(ExitCode::SUCCESS)
}

fn watch(client: &mut AdminClient, since: Option<u64>) -> Result<ExitCode, String> {
    let mut since = match since {
        Some(since) => since,
        None => client.version()?,
    };
    loop {
        let reply = client.get(&format!("/rules:changes?since={since}&wait=25"))?;
        if reply.status == 410 {
            return Ok(fail(
                FAILED,
                format!("the changes since version {since} are not kept any more; begin with `rules export`"),
            ));
        }
        let text = reply.success()?;
        printed(&text)?;
        let last = text.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
        since = last.and_then(|line| line["version"].as_u64()).unwrap_or(since);
    }
}

fn printed(text: &str) -> Result<(), String> {
    print(text).map_err(|error| format!("cannot write: {error}"))
}
