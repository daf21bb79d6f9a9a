//! What is imported: files, the files of a folder, or standard input.

use std::fs;
use std::io::Read;
use std::path::Path;

use sluicegate_import::{Files, Imported, matches_glob, yaml_files};

/// The largest source that is read.
const LARGEST: u64 = 16 << 20;

/// The files of this machine.
pub(super) struct Disk;

impl Files for Disk {
    fn read(&self, path: &str) -> Result<String, String> {
        let is_file = fs::metadata(path).map_err(|error| error.to_string())?.is_file();
        if !is_file {
            return Err("it is not a regular file".to_owned()); // a device or pipe may never end
        }
        text(fs::File::open(path).map_err(|error| error.to_string())?)
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

/// Reads a file, the YAML files of a folder, or standard input, and converts them.
pub(super) fn with_files(
    path: &Path,
    import: impl FnOnce(&str, &[(String, String)]) -> Result<Imported, String>,
) -> Result<Imported, String> {
    let Some(shown) = path.to_str() else {
        return Err(format!("{} is not a name in UTF-8\n", path.display()));
    };
    if shown == "-" {
        return import("standard input", &[("stdin".to_owned(), piped()?)]);
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

/// All of standard input.
fn piped() -> Result<String, String> {
    let found =
        text(std::io::stdin()).map_err(|why| format!("sluicegate: cannot read standard input: {why}\n"))?;
    if found.trim().is_empty() {
        return Err(
            "sluicegate: standard input is empty\n  help: see what the command that writes it says\n"
                .to_owned(),
        );
    }
    Ok(found)
}

/// What a source has to its end.
fn text(source: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    source.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("it is larger than {} MiB", LARGEST >> 20));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The name and the text of a file, of the file `usual` in a folder, or of standard input, whose name is `shown`.
pub(super) fn first_file(path: &Path, shown: &str, usual: &str) -> Result<(String, String), String> {
    if path.as_os_str() == "-" {
        return Ok((shown.to_owned(), piped()?));
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
