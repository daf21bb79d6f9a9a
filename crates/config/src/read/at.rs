//! Values of the configuration together with where they stand in its text.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::read::report::{Place, Problem, Report};

/// A value and where it stands. Two are equal if their values are: a line more above them changes nothing.
#[derive(Clone, Debug)]
pub struct At<T> {
    /// Where it stands.
    pub at: Place,
    /// The value.
    pub value: T,
}

/// A file that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRef {
    /// The path as the gateway opens it.
    pub path: PathBuf,
    /// The path as the configuration writes it.
    pub written: At<String>,
}

/// A small file that the configuration names, with its content: PEM or a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct FileContent {
    /// The file.
    pub file: FileRef,
    /// What it held when the configuration was read.
    pub bytes: Vec<u8>,
}

/// The folder that relative paths of a configuration start from, and the function that reads a small file.
#[derive(Clone, Copy)]
pub struct Folder<'a> {
    /// The folder.
    pub path: &'a Path,
    /// Reads a file of at most a mebibyte.
    pub read: &'a dyn Fn(&Path) -> io::Result<Vec<u8>>,
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for At<T> {}

impl<T: Serialize> Serialize for At<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

/// The path as the gateway opens it.
impl Serialize for FileRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.display())
    }
}

impl<T> At<T> {
    /// A problem with this value.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.at, message)
    }
}

impl At<String> {
    /// A piece of the text with its own place, where the text stands in the file as it is or in plain quotes.
    pub(crate) fn piece(&self, start: usize, piece: &str) -> Self {
        let count = |text: &str| text.chars().count() as u64;
        let at = match self.at.length.checked_sub(count(&self.value)) {
            Some(quotes @ (0 | 2)) => {
                let column = self.at.column + quotes / 2 + count(&self.value[..start]);
                Place::new(self.at.line, column, count(piece))
            }
            _ => self.at,
        };
        Self { at, value: piece.to_owned() }
    }
}

impl FileRef {
    /// The path as the gateway opens it, for messages.
    pub fn display(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// A problem with this file.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        self.written.problem(message)
    }
}

/// The content may be a private key.
impl std::fmt::Debug for FileContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileContent").field("file", &self.file.path).finish_non_exhaustive()
    }
}

impl Folder<'_> {
    /// `path` as seen from the folder.
    pub(crate) fn join(self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    /// The file that a text names.
    pub(crate) fn file(self, written: &At<String>) -> FileRef {
        FileRef { path: self.join(&written.value), written: written.clone() }
    }

    /// The file that a text names, with its content; `None` if it cannot be read, which is reported.
    pub(crate) fn content(self, written: &At<String>, report: &mut Report) -> Option<FileContent> {
        let file = self.file(written);
        match (self.read)(&file.path) {
            Ok(bytes) => Some(FileContent { file, bytes }),
            Err(error) => {
                report.error(file.problem(format!("cannot read {}: {error}", file.path.display())));
                None
            }
        }
    }
}

/// The text that a file holds.
///
/// # Errors
/// When it is not UTF-8: the line is named.
pub fn utf8_text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count();
        io::Error::new(io::ErrorKind::InvalidData, format!("line {line} is not UTF-8"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_names_its_line() {
        assert_eq!(utf8_text(b"a: 1\nb: \xff\n".to_vec()).unwrap_err().to_string(), "line 2 is not UTF-8");
        assert_eq!(utf8_text(b"a: 1\n".to_vec()).unwrap(), "a: 1\n");
    }
}
