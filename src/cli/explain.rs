//! `sluicegate explain`

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;

use serde_json::Value;
use sluicegate_config::percent_encode;
use sluicegate_limiter::Time;

use super::admin_client::{AdminClient, AdminOptions};
use super::options::ConfigOption;
use super::output::{FAILED, INVALID, fail, print_and_exit, say};
use sluicegate_base::clock::Clock;
use sluicegate_gateway::explain::{Explanation, Question};
use sluicegate_gateway::snapshot::{Opened, SnapshotBuilder};

#[derive(clap::Args)]
#[command(
    after_help = "Nothing is consumed. Without --admin, the configuration is read from the file, all counters are at zero and \
                  nobody outside is asked; with --admin, a running gateway is asked, with its counters and rules. \
                  With --request, a gateway is asked in any case: by default that of the configuration.\n\n\
                  Exit code: 0 if the request is explained, whatever its outcome; 1 if an argument or the file is wrong, or the \
                  gateway cannot be reached.\n\n\
                  Examples:\n  sluicegate explain GET /v1/items -H 'X-Api-Key: k1' --from 203.0.113.9\n  \
                  sluicegate explain GET /v1/items --consumer acme --admin 127.0.0.1:9090\n  \
                  sluicegate explain POST https://api.example.com/login --admin 127.0.0.1:9090\n  \
                  sluicegate explain --request 8a7dd0c3d22b20fd    why was this one refused?"
)]
pub(super) struct Args {
    /// The method
    #[arg(value_name = "METHOD", required_unless_present = "request", requires = "url")]
    method: Option<String>,
    /// A URL, or a path with its query
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// A header of the request; can be repeated
    #[arg(short = 'H', long = "header", value_name = "'Name: value'")]
    headers: Vec<String>,
    /// The address that the connection comes from
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    from: IpAddr,
    /// The name of the listener that the request comes in on [default: the first in the file]
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// The consumer who sends it, by its name, an API key or the digest of one, in place of credentials in the headers: with
    /// the plan and rates of this consumer
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// The id of a request that was refused within the last hour: a running gateway is asked
    #[arg(long, value_name = "ID", conflicts_with_all = ["method", "headers", "consumer"])]
    request: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    rules: ConfigOption,
    /// Ask the gateway with this admin API: HOST:PORT, or http://HOST:PORT [default with --request: that of the configuration, or
    /// 127.0.0.1:9090]
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// The token of the admin API [default: the variable SLUICEGATE_ADMIN_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let explained = match (&args.admin, &args.request) {
        (None, None) => offline(args),
        (admin, _) => {
            asked(args, &AdminOptions::new(admin.clone(), args.token.clone(), || args.rules.source()))
        }
    };
    match explained {
        Ok(explanation) if args.json => match serde_json::to_string_pretty(&explanation) {
            Ok(text) => print_and_exit(&(text + "\n")),
            Err(error) => fail(FAILED, format!("cannot write: {error}")),
        },
        Ok(explanation) => print_and_exit(&explanation.text()),
        Err(message) => fail(INVALID, message),
    }
}

/// Explains by a file.
fn offline(args: &Args) -> Result<Explanation, String> {
    let question = Question {
        method: args.method.clone().unwrap_or_default(),
        url: args.url.clone().unwrap_or_default(),
        headers: args.headers.clone(),
        from: args.from,
        listener: args.listener.clone(),
        consumer: args.consumer.clone(),
    };
    let source = args.rules.source();
    let loaded = source.load().map_err(|error| format!("cannot read {source}: {error}"))?;
    let Some(config) = loaded.config else {
        say(&loaded.rendered);
        return Err(format!("{source} has errors"));
    };
    let clock = Clock::start();
    let snapshot = SnapshotBuilder::default().build(config, Opened::default(), None, Time::EPOCH);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(snapshot.explain(&question, None, clock.now()))
}

/// Asks a running gateway.
fn asked(args: &Args, admin: &AdminOptions) -> Result<Explanation, String> {
    let mut query = Vec::new();
    let mut add = |name: &str, value: &str| query.push(format!("{name}={}", percent_encode(value)));
    match &args.request {
        Some(id) => add("request", id),
        None => {
            add("method", args.method.as_deref().unwrap_or_default());
            add("url", args.url.as_deref().unwrap_or_default());
            args.headers.iter().for_each(|header| add("header", header));
            add("from", &args.from.to_string());
            args.listener.iter().for_each(|listener| add("listener", listener));
            args.consumer.iter().for_each(|consumer| add("consumer", consumer));
        }
    }
    let explanation: Value = AdminClient::new(admin)?.json(&format!("/explain?{}", query.join("&")))?;
    serde_json::from_value(explanation)
        .map_err(|error| format!("the gateway answers in another form: {error}"))
}
