//! `sluicegate import`: reads a source, converts it, checks and writes the result.

mod args;
mod result;
mod source;

use std::process::ExitCode;

use sluicegate_import::{haproxy, kong, kubernetes, nginx, ratelimit, traefik};

use self::args::Args;
use self::result::finish;
use self::source::{Disk, first_file, with_files};
use super::output::{INVALID, say};

#[derive(clap::Subcommand)]
#[command(
    after_help = "The result is written to standard output, or with -o to a file; the summary to standard error. docs/import.md says \
                  what is converted.\n\nExample:\n  sluicegate import nginx /etc/nginx -o gateway.yaml --report report.txt"
)]
pub(super) enum Command {
    /// Convert a configuration of nginx: a file with what it includes, or the output of nginx -T
    #[command(
        override_usage = "sluicegate import nginx <PATH> [OPTIONS]",
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
        override_usage = "sluicegate import haproxy <PATH> [OPTIONS]",
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
        override_usage = "sluicegate import kong <PATH> [OPTIONS]",
        after_help = "With -o, the keys of consumers are written to consumers.yaml beside the result, as their SHA-256.\n\n\
                      Exit code: 0 if there is a result, 1 if the source cannot be read or converted, 2 if the \
                      result cannot be written; with --strict, 1 also if a field is unsupported.\n\n\
                      Examples:\n  sluicegate import kong kong.yaml -o gateway.yaml --report report.txt\n  \
                      deck gateway dump -o - | sluicegate import kong - -o gateway.yaml --report"
    )]
    Kong(Args),
    /// Convert files of envoyproxy/ratelimit: descriptors become limits
    #[command(
        override_usage = "sluicegate import ratelimit <PATH> [OPTIONS]",
        after_help = "Exit code: 0 if there is a result, 1 if the source cannot be read or converted, 2 if the \
                      result cannot be written; with --strict, 1 also if a field is unsupported.\n\nThe files do not say \
                      which part of a request a key such as user_id is. The report lists such keys; --key says it.\n\nExamples:\n  sluicegate \
                      import ratelimit config/ -o gateway.yaml --report report.txt\n  sluicegate import ratelimit config.yaml --key \
                      user_id=header:X-User-Id --key database=query:db > gateway.yaml"
    )]
    Ratelimit(RatelimitArgs),
    /// Convert manifests of Kubernetes: Ingress with annotations of ingress-nginx, HTTPRoute, Gateway
    #[command(
        override_usage = "sluicegate import kubernetes <PATH> [OPTIONS]",
        after_help = "Exit code: 0 if there is a result, 1 if the source cannot be read or converted, 2 if the \
                      result cannot be written; with --strict, 1 also if a field is unsupported.\n\nExamples:\n  kubectl \
                      get ingress,httproute,gateway,service -A -o yaml | sluicegate import kubernetes - -o gateway.yaml --report\n  \
                      sluicegate import kubernetes manifests/ -o gateway.yaml --report report.txt"
    )]
    Kubernetes(Args),
    /// Convert the dynamic configuration of Traefik, with its entry points if the static one is there, too
    #[command(
        override_usage = "sluicegate import traefik <PATH> [OPTIONS]",
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

/// `NAME=KEY` of --key.
fn meaning(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, key)| !name.is_empty() && !key.is_empty());
    let (name, key) = parts.ok_or("expected NAME=KEY, such as user_id=header:X-User-Id")?;
    Ok((name.to_owned(), key.to_owned()))
}

pub(super) fn run(command: &Command) -> ExitCode {
    let mut consumers = Vec::new();
    let (args, imported) = match command {
        Command::Nginx(args) => {
            let read = first_file(&args.path, "/etc/nginx/nginx.conf", "nginx.conf");
            (args, read.and_then(|(name, text)| nginx::import_text(&Disk, &name, &text)))
        }
        Command::Haproxy(args) => {
            let read = first_file(&args.path, "haproxy.cfg", "haproxy.cfg");
            let variables = |name: &str| std::env::var(name).ok();
            (args, read.and_then(|(name, text)| haproxy::import_text(&Disk, &name, &text, &variables)))
        }
        Command::Kong(args) => {
            let read = first_file(&args.path, "kong.yaml", "kong.yaml");
            let imported = read.and_then(|(name, text)| kong::import_text(&name, &text)).map(|found| {
                consumers = found.consumers;
                found.imported
            });
            (args, imported)
        }
        Command::Ratelimit(RatelimitArgs { args, key }) => {
            let meanings = key.iter().cloned().collect();
            (args, with_files(&args.path, |path, files| ratelimit::import(path, files, &meanings)))
        }
        Command::Kubernetes(args) => (args, with_files(&args.path, kubernetes::import)),
        Command::Traefik(args) => (args, with_files(&args.path, traefik::import)),
    };
    match imported {
        Ok(imported) => finish(args, &imported, &consumers),
        Err(message) => {
            say(message);
            ExitCode::from(INVALID)
        }
    }
}
