//! `sluicegate rules import`

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::admin_client::AdminClient;
use crate::cli::output::{INVALID, fail, print_and_exit};

/// Sends a file, in one batch or in several of `batch` lines each.
pub(super) fn import(
    client: &mut AdminClient,
    file: &Path,
    batch: Option<usize>,
    dry_run: bool,
) -> Result<ExitCode, String> {
    let unreadable = |error: io::Error| format!("cannot read {}: {error}", file.display());
    let progress = ProgressBar::hidden();
    let mut lines: Box<dyn BufRead> = if file.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(file).map_err(unreadable)?;
        if let (Ok(known), true) = (file.metadata(), io::stderr().is_terminal()) {
            progress.set_length(known.len());
            progress.set_draw_target(indicatif::ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {eta}");
            progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
        Box::new(BufReader::new(progress.wrap_read(file)))
    };
    let path = dry("/rules:batch", dry_run);
    let (mut piece, mut read, mut changed) = (String::new(), 0, 0);
    let stopped = |read: usize, error: &str| match read {
        0 => error.to_owned(),
        _ if dry_run => error.to_owned(),
        _ => format!("{error}\nlines 1 to {read} are written, and none after them"),
    };
    loop {
        piece.clear();
        let mut count = 0;
        while batch.is_none_or(|most| count < most) && lines.read_line(&mut piece).map_err(unreadable)? > 0 {
            count += 1;
        }
        if count == 0 && read > 0 {
            break;
        }
        let reply = client.send("POST", &path, None, &piece).map_err(|error| stopped(read, &error))?;
        if let Some(errors) = reply.errors(read) {
            return Ok(fail(INVALID, stopped(read, &errors)));
        }
        let body = reply.success().map_err(|error| stopped(read, &error))?;
        changed += body.lines().filter(|line| !line.contains("\"changed\":false")).count();
        read += count;
        if batch.is_none_or(|most| count < most) {
            break;
        }
    }
    progress.finish_and_clear();
    let verb = if dry_run { "would be changed; nothing was written" } else { "changed" };
    Ok(print_and_exit(&format!("{changed} rules {verb}\n")))
}

/// The path of a change, which with `dry_run` is only validated.
pub(super) fn dry(path: &str, dry_run: bool) -> String {
    if dry_run { format!("{path}?dry_run=1") } else { path.to_owned() }
}
