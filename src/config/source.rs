//! Where a configuration is read from: a file, or standard input.

use std::ffi::OsString;
use std::fmt;
use std::io::{Error, stdin};
use std::path::{Path, PathBuf};

use super::model::Config;
use super::{Loaded, parse_after};
use crate::file;

/// Where a configuration is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// Standard input, which can be read once.
    Stdin,
}

/// The argument that means standard input. A file of this name is `./-`.
const STDIN: &str = "-";

impl From<OsString> for Source {
    fn from(argument: OsString) -> Self {
        if argument == STDIN { Self::Stdin } else { Self::File(argument.into()) }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Stdin => f.write_str("<stdin>"),
        }
    }
}

impl Source {
    /// The folder in which the files that the configuration names are looked for.
    pub(super) fn folder(&self) -> &Path {
        match self {
            Self::File(path) => path.parent().unwrap_or(Path::new("")),
            Self::Stdin => Path::new(""),
        }
    }

    /// Reads the configuration for a command that reads it once. The file may be a pipe.
    ///
    /// # Errors
    /// When it cannot be read. Mistakes in it are in the report.
    pub fn load(&self) -> Result<Loaded, Error> {
        let text = self.text()?;
        Ok(parse_after(text, &self.to_string(), self.folder(), None))
    }

    /// Reads the configuration of a gateway: standard input, or a regular file. The large files that it names are not
    /// parsed again if they are the same as in `before`.
    ///
    /// # Errors
    /// When it cannot be read. Mistakes in it are in the report.
    pub fn load_after(&self, before: Option<&Config>) -> Result<Loaded, Error> {
        let text = match self {
            Self::File(path) => file::read_text(path, file::CONFIG)?,
            Self::Stdin => self.text()?,
        };
        Ok(parse_after(text, &self.to_string(), self.folder(), before))
    }

    pub(super) fn text(&self) -> Result<String, Error> {
        match self {
            Self::File(path) => file::read_any_text(path, file::CONFIG),
            Self::Stdin => file::text(file::bounded(stdin().lock(), 0, file::CONFIG)?),
        }
    }
}
