//! Reads logs ahead on other threads: one decompresses and parses a file while the requests before it are decided.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use indicatif::ProgressBar;

use crate::replay::{Known, LineParser, LogFile, Padding, Request};

/// The name of standard input as a log.
pub(super) const STDIN: &str = "-";
/// The lines of a batch, and the batches that wait.
const BATCH: usize = 2_048;
const WAITING: usize = 8;

/// What a thread has read of a file.
enum Part {
    /// Lines with their numbers: requests, or why they cannot be read.
    Lines(Vec<(u64, Result<Request, String>)>),
    /// The end of the file.
    End(End),
}

/// How a file ended.
#[derive(Default)]
pub(super) struct End {
    /// Why it could not be opened.
    pub(super) unopened: Option<io::Error>,
    /// Why it could not be read to its end, the number of the last line, and the byte of a compressed file.
    pub(super) damage: Option<(io::Error, u64, Option<u64>)>,
    /// What follows the compressed data.
    pub(super) padding: Option<Padding>,
}

/// Reads the files one after another. `line` is called for each line with the index of its file, `end` at the end of each file.
///
/// # Errors
/// Those of `line`.
pub(super) fn read<E>(
    logs: &[PathBuf],
    known: &Known,
    progress: &ProgressBar,
    mut line: impl FnMut(usize, u64, Result<Request, String>) -> Result<(), E>,
    mut end: impl FnMut(usize, End),
) -> Result<(), E> {
    let ahead = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let mut readers: Vec<Receiver<Part>> = Vec::new();
        for index in 0..logs.len() {
            while readers.len() < logs.len().min(index + ahead) {
                let (sender, receiver) = sync_channel(WAITING);
                let (log, parser, progress) =
                    (&logs[readers.len()], LineParser::new(known.clone()), progress.clone());
                scope.spawn(move || read_file(log, parser, &progress, &sender));
                readers.push(receiver);
            }
            while let Ok(part) = readers[index].recv() {
                match part {
                    Part::Lines(lines) => {
                        for (number, request) in lines {
                            if let Err(error) = line(index, number, request) {
                                readers.clear(); // which ends the threads
                                return Err(error);
                            }
                        }
                    }
                    Part::End(ended) => end(index, ended),
                }
            }
        }
        Ok(())
    })
}

/// Reads one file. Nobody receives if the replay was given up.
fn read_file(log: &Path, mut parser: LineParser, progress: &ProgressBar, sender: &SyncSender<Part>) {
    let mut lines = match open(log, progress) {
        Ok(lines) => lines,
        Err(error) => {
            let _ = sender.send(Part::End(End { unopened: Some(error), ..End::default() }));
            return;
        }
    };
    let (mut line, mut batch) = (Vec::new(), Vec::with_capacity(BATCH));
    let damage = loop {
        match lines.read_line(&mut line) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(error) => break Some((error, lines.number(), lines.offset())),
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match parser.parse(&line).transpose() {
            None => continue, // it is not about a request
            Some(parsed) => batch.push((lines.number(), parsed.map_err(|error| error.to_string()))),
        }
        if batch.len() == BATCH {
            let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
            if sender.send(Part::Lines(full)).is_err() {
                return;
            }
        }
    };
    let _ = sender.send(Part::Lines(batch));
    let _ = sender.send(Part::End(End { unopened: None, damage, padding: lines.padding() }));
}

pub(super) fn open(log: &Path, progress: &ProgressBar) -> io::Result<LogFile> {
    let source: Box<dyn Read> = if log == Path::new(STDIN) {
        Box::new(io::stdin())
    } else {
        Box::new(progress.wrap_read(File::open(log)?))
    };
    LogFile::new(source)
}
