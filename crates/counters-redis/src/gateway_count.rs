//! The number of gateways that share a store, in a file: a gateway that starts while the store is down must not act as if it
//! were alone.

use std::io;
use std::path::{Path, PathBuf};

use crate::Settings;

/// The name of the file, in the configured folder.
const FILE: &str = "sluicegate-gateways";
/// A larger number means that the file is damaged.
const MOST: u32 = 1_000_000;
/// Bytes of the file at most: a prefix and a number.
const LONGEST: u64 = 256;

/// The last count of the gateways that use this store; 1 if none is known.
pub(super) fn read(config: &Settings) -> u32 {
    let path = path(config);
    let small = std::fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() <= LONGEST);
    let text = small.then(|| std::fs::read_to_string(&path).ok()).flatten().unwrap_or_default();
    let known = text.trim_end().rsplit_once(' ').filter(|(prefix, _)| *prefix == config.prefix);
    let count = known.and_then(|(_, count)| count.parse().ok());
    count.filter(|count| (1..=MOST).contains(count)).unwrap_or(1)
}

/// Writes the number. The file is replaced atomically.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write(config: &Settings, gateways: u32) -> io::Result<()> {
    let path = path(config);
    let new = path.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&new, format!("{} {gateways}\n", config.prefix))?;
    std::fs::rename(&new, &path).inspect_err(|_| _ = std::fs::remove_file(&new))
}

/// The path of the file.
pub(super) fn path(config: &Settings) -> PathBuf {
    Path::new(&config.state_folder).join(FILE)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Address, Deployment};

    #[test]
    fn a_count_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
        let mut config = Settings {
            servers: Deployment::Single(address),
            username: None,
            password: None,
            database: 0,
            tls: None,
            timeout: Duration::from_millis(50),
            is_home: false,
            prefix: "one store".to_owned(),
            gateways: 1,
            state_folder: folder.path().to_path_buf(),
        };
        assert_eq!(read(&config), 1, "there is none");
        write(&config, 4).expect("a file");
        assert_eq!(read(&config), 4);
        config.prefix = "another".to_owned();
        assert_eq!(read(&config), 1, "the file belongs to another store");
        for damaged in ["", "another", "another 0", "another 99999999999", "another -4", "\u{1f4a5}"] {
            std::fs::write(path(&config), damaged).expect("a file");
            assert_eq!(read(&config), 1, "{damaged:?}");
        }
    }
}
