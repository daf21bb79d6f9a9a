//! Reads files that a configuration names. No file can block a thread or exhaust the memory: a named pipe, a device or a
//! file that is too large is an error.

use std::fs::{File, Metadata};
use std::io::{Error, ErrorKind, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use sluicegate_config::utf8_text;

/// The largest gateway.yaml.
pub const CONFIG: u64 = 64 << 20;
/// The largest file of consumers or addresses.
pub const TABLE: u64 = 1 << 30;
/// The largest file of a secret, of keys or of certificates.
pub const SMALL: u64 = 1 << 20;

/// The content and the metadata of a regular file of at most `largest` bytes.
pub fn read(path: &Path, largest: u64) -> Result<(Vec<u8>, Metadata), Error> {
    check(&std::fs::metadata(path)?, largest)?; // before it is opened: opening a device can have side effects
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    check(&metadata, largest)?;
    Ok((bounded(file, metadata.len(), largest)?, metadata))
}

/// The text of a regular file of at most `largest` bytes.
pub fn read_text(path: &Path, largest: u64) -> Result<String, Error> {
    utf8_text(read(path, largest)?.0)
}

/// The text of any readable file, such as a pipe: for commands, which read it once and may wait for it.
pub fn read_any_text(path: &Path, largest: u64) -> Result<String, Error> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    utf8_text(bounded(file, size.min(largest), largest)?)
}

fn check(metadata: &Metadata, largest: u64) -> Result<(), Error> {
    if metadata.is_dir() {
        return Err(rustix::io::Errno::ISDIR.into());
    }
    if !metadata.is_file() {
        let why = "it is not a regular file; name a regular file or a link to one";
        return Err(Error::new(ErrorKind::InvalidInput, why));
    }
    if metadata.len() > largest { Err(too_large(largest)) } else { Ok(()) }
}

/// Reads to the end, at most `largest` bytes, because a file may grow while it is read.
pub fn bounded(file: impl Read, size: u64, largest: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(largest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > largest { Err(too_large(largest)) } else { Ok(bytes) }
}

fn too_large(largest: u64) -> Error {
    let size = match largest >> 20 {
        mebibytes if mebibytes % 1024 == 0 => format!("{} GiB", mebibytes / 1024),
        mebibytes => format!("{mebibytes} MiB"),
    };
    Error::new(ErrorKind::FileTooLarge, format!("it is larger than {size}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_up_to_the_maximum_are_read() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(read(&path, 1 << 20).unwrap().0.len(), 1 << 20);
        std::fs::write(&path, vec![b'x'; (1 << 20) + 1]).unwrap();
        assert_eq!(read(&path, 1 << 20).unwrap_err().to_string(), "it is larger than 1 MiB");
        for (device, why) in [("/dev/zero", "not a regular file"), ("/", "Is a directory")] {
            assert!(read(Path::new(device), SMALL).unwrap_err().to_string().contains(why), "{device}");
        }
        assert_eq!(read_any_text(Path::new("/dev/null"), SMALL).unwrap(), "");
        assert!(read_any_text(Path::new("/dev/zero"), SMALL).is_err());
    }
}
