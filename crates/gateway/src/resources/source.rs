//! Where a configuration is read from: a file, or standard input.

use std::ffi::OsString;
use std::fmt;
use std::io::{Error, stdin};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::{Loaded, LoadedConfig, parse_after};
use sluicegate_base::file;

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
    fn folder(&self) -> &Path {
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
    pub fn load_after(&self, before: Option<&LoadedConfig>) -> Result<Loaded, Error> {
        let text = match self {
            Self::File(path) => file::read_text(path, file::CONFIG)?,
            Self::Stdin => self.text()?,
        };
        Ok(parse_after(text, &self.to_string(), self.folder(), before))
    }

    fn text(&self) -> Result<String, Error> {
        match self {
            Self::File(path) => file::read_any_text(path, file::CONFIG),
            Self::Stdin => sluicegate_config::utf8_text(file::bounded(stdin().lock(), 0, file::CONFIG)?),
        }
    }
}

/// The file of consumers that a configuration names, whether or not it can be read, and the plans that they can be on;
/// none if they can be on any.
///
/// # Errors
/// When the configuration cannot be read as far as that.
pub fn consumers_file(source: &Source) -> Result<Option<(PathBuf, Vec<String>)>, String> {
    let text = source.text().map_err(|error| format!("cannot read {source}: {error}"))?;
    sluicegate_config::consumers_file(&text, source.folder())
        .map_err(|report| report.render(&source.to_string(), &text).trim_end().to_owned())
}

/// The address at which the admin API of a gateway with this configuration is reached from its machine, whether or not the
/// rest can be read; `None` if there is none.
pub fn admin_address(source: &Source) -> Option<String> {
    let address = sluicegate_config::admin_address(&source.text().ok()?)?;
    let socket: SocketAddr = address.trim().parse().ok()?;
    let here = match socket.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    (socket.port() != 0).then(|| SocketAddr::new(here, socket.port()).to_string())
}
