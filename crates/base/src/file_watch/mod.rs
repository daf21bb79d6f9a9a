//! Files that gateway.yaml names, such as consumers and address lists: reads them and detects changes.

mod events;

use std::fs::Metadata;
use std::io::{Error, ErrorKind};
use std::marker::PhantomData;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};

pub use self::events::watch;
use crate::file;

/// A SHA-256.
pub type Digest = [u8; 32];

/// The content of such a file.
pub trait Watched: Sized + Send + Sync + 'static {
    /// The largest file that is read, in bytes.
    const LARGEST: u64 = file::TABLE;

    /// Parses the text of `file`.
    ///
    /// # Errors
    /// All mistakes in the text.
    fn parse(text: &str, file: &str) -> Result<Self, Unusable>;

    /// The state of the file when this was read from it.
    fn source(&self) -> Option<&Source>;

    /// Sets the source.
    fn read_from(self, source: Source) -> Self;

    /// Whether both were read from the same text.
    fn is_same(&self, other: &Self) -> bool {
        let digests = self.source().zip(other.source()).map(|(one, other)| one.digest == other.digest);
        digests.unwrap_or(false)
    }

    /// Loads a file; returns `before` if the content is the same.
    ///
    /// # Errors
    /// If the file cannot be read, or all mistakes in it.
    fn load(path: &Path, before: Option<&Arc<Self>>) -> Result<Arc<Self>, Unusable> {
        let (text, source) = read(path, Self::LARGEST).map_err(|error| Unusable::unread(path, &error))?;
        let same = |old: &Source| old.stamp.mode == source.stamp.mode && old.digest == source.digest;
        if let Some(before) = before.filter(|before| before.source().is_some_and(same)) {
            return Ok(Arc::clone(before));
        }
        let read = Self::parse(&text, &path.display().to_string())?;
        Ok(Arc::new(read.read_from(source)))
    }
}

/// The state of a file when it was read.
#[derive(Clone, Debug)]
pub struct Source {
    stamp: Stamp,
    /// The digest of its text.
    digest: Digest,
}

/// Why such a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The error in one line.
    pub message: String,
    /// The mistakes with their lines.
    pub details: Vec<String>,
}

/// The mistakes in a file: the first ones, and the number of all.
#[derive(Debug, Default)]
pub struct Mistakes {
    first: Vec<(u32, String)>,
    count: usize,
}

/// Metadata of a file that changes whenever its content does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    inode: (u64, u64),
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
    mode: u32,
}

/// A file is read when it has not changed for this time.
const SETTLE: Duration = Duration::from_millis(100);
/// How often that is checked before the file is read anyway.
const SETTLE_CHECKS: usize = 50;
/// Checks after a change that compare the text even if the stamp is the same, because a write within one tick of the file
/// system's clock does not change the stamp.
const FULL_CHECKS: u8 = 5;
/// The number of mistakes that are reported.
const MAX_REPORTED: usize = 20;

impl Stamp {
    /// The stamp of a file with this metadata.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            inode: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            mode: metadata.mode(),
        }
    }
}

impl Source {
    /// Whether users other than the owner and the group of the file may read or change it.
    pub fn open_to_others(&self) -> bool {
        self.stamp.mode & 0o006 != 0
    }
}

impl Unusable {
    fn unread(path: &Path, error: &Error) -> Self {
        Self { message: format!("cannot read {}: {error}", path.display()), details: Vec::new() }
    }
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        self.details.iter().try_for_each(|detail| write!(f, "\n  {detail}"))
    }
}

impl Mistakes {
    /// Adds a mistake.
    pub fn add(&mut self, line: u32, message: impl Into<String>) {
        self.count += 1;
        self.first.push((line, message.into()));
        if self.first.len() > 4 * MAX_REPORTED {
            self.first.sort_by_key(|(line, _)| *line); // some are found at the end, for lines far above
            self.first.truncate(MAX_REPORTED);
        }
    }

    /// `read` if there is no mistake.
    pub fn or<T>(mut self, read: T, file: &str) -> Result<T, Unusable> {
        let message = match self.count {
            0 => return Ok(read),
            1 => format!("{file} has a mistake"),
            count => format!("{file} has {count} mistakes"),
        };
        self.first.sort_by_key(|(line, _)| *line);
        self.first.truncate(MAX_REPORTED);
        let mut details: Vec<String> =
            self.first.iter().map(|(line, message)| format!("{file}:{line}: {message}")).collect();
        if self.count > details.len() {
            details.push(format!("and {} more", self.count - details.len()));
        }
        Err(Unusable { message, details })
    }
}

/// The SHA-256 of some bytes.
pub fn sha256(bytes: &[u8]) -> Digest {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

/// A SHA-256 as 64 hexadecimal digits in lower case.
pub fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the text of a file.
fn read(path: &Path, largest: u64) -> Result<(String, Source), Error> {
    let (bytes, metadata) = file::read(path, largest)?;
    let text = sluicegate_config::utf8_text(bytes)?;
    let digest = sha256(text.as_bytes());
    Ok((text, Source { stamp: Stamp::of(&metadata), digest }))
}

/// The stamps of files, read on another thread, because a network file system may block.
async fn stamps(paths: &[PathBuf]) -> Result<Vec<Stamp>, Error> {
    let paths = paths.to_vec();
    let stamp = |path: &PathBuf| std::fs::metadata(path).map(|metadata| Stamp::of(&metadata));
    let read = crate::boxed_future::spawn_blocking(move || paths.iter().map(stamp).collect()).await;
    read.unwrap_or_else(|error| Err(Error::other(error)))
}

/// Waits until what `look` finds does not change any more, because files are being written; for 5 s at most. Returns what it found
/// last.
pub async fn settled<T: PartialEq>(mut last: T, mut look: impl AsyncFnMut() -> T) -> T {
    for _ in 0..SETTLE_CHECKS {
        tokio::time::sleep(SETTLE).await;
        let now = look().await;
        if now == last {
            break;
        }
        last = now;
    }
    last
}

/// Detects changes of one file since it was last read, valid or not.
#[derive(Debug)]
pub struct Watch<T> {
    path: PathBuf,
    stamp: Option<Vec<Stamp>>,
    digest: Option<Digest>,
    full_checks: u8,
    of: PhantomData<fn() -> T>,
}

impl<T: Watched> Watch<T> {
    /// Watches the file from which `known` was read.
    pub fn new(path: &Path, known: &T) -> Self {
        Self {
            path: path.to_owned(),
            stamp: known.source().map(|source| vec![source.stamp.clone()]),
            digest: known.source().map(|source| source.digest),
            full_checks: FULL_CHECKS,
            of: PhantomData,
        }
    }

    /// The content of the file if it has changed since the last call. A file that is missing counts as unchanged, because
    /// it is being replaced.
    pub async fn changed(&mut self) -> Option<Result<Arc<T>, Unusable>> {
        let path = std::slice::from_ref(&self.path);
        let mut stamp = match stamps(path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            stamp => stamp.ok(),
        };
        let is_settled = stamp != self.stamp;
        if is_settled {
            stamp = settled(stamp, async || stamps(path).await.ok()).await;
            self.full_checks = FULL_CHECKS;
        } else if self.full_checks == 0 {
            return None;
        } else {
            self.full_checks -= 1;
        }
        let (file, digest) = (self.path.clone(), self.digest);
        // On another thread: a million entries take a second, and the admin API has to answer meanwhile.
        let read = crate::boxed_future::spawn_blocking(move || read_changed(&file, digest)).await;
        if !is_settled && stamps(path).await.ok() != stamp {
            return None; // being written since the first look: the next call waits for the writer
        }
        self.stamp = stamp;
        let (digest, result) = read.ok().flatten()?;
        self.digest = digest;
        Some(result)
    }
}

/// Detects changes of small files that are read together.
#[derive(Debug)]
pub struct WatchGroup {
    paths: Vec<PathBuf>,
    stamps: Vec<Stamp>,
    full_checks: u8,
}

impl WatchGroup {
    /// Watches files that were just read.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self { paths, stamps: Vec::new(), full_checks: FULL_CHECKS }
    }

    /// Whether one of the files may have changed since the last call. While one is missing, it is being replaced.
    pub async fn may_have_changed(&mut self) -> bool {
        let Ok(now) = stamps(&self.paths).await else { return false };
        if self.stamps.is_empty() {
            self.stamps = now; // the first call
            return true;
        }
        if now == self.stamps {
            let is_full = self.full_checks > 0;
            self.full_checks = self.full_checks.saturating_sub(1);
            return is_full;
        }
        let paths = &self.paths;
        let Some(now) = settled(Some(now), async || stamps(paths).await.ok()).await else { return false };
        self.stamps = now;
        self.full_checks = FULL_CHECKS;
        true
    }

    /// Whether a file has changed since the last call of `may_have_changed`, which means that what was read meanwhile may be
    /// half written. The next call of `may_have_changed` waits for the writer.
    pub async fn has_changed_again(&self) -> bool {
        stamps(&self.paths).await.is_ok_and(|now| now != self.stamps)
    }
}

/// The digest of a text, and its content.
type Read<T> = (Option<Digest>, Result<Arc<T>, Unusable>);

/// The content of a file, unless its text has this digest.
fn read_changed<T: Watched>(path: &Path, before: Option<Digest>) -> Option<Read<T>> {
    let (text, source) = match read(path, T::LARGEST) {
        Ok(read) => read,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => return Some((None, Err(Unusable::unread(path, &error)))),
    };
    let digest = source.digest;
    if before == Some(digest) {
        return None;
    }
    let read = T::parse(&text, &path.display().to_string());
    Some((Some(digest), read.map(|read| Arc::new(read.read_from(source)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text; reading `begun` empties the file, as an editor does before it writes.
    #[derive(Debug)]
    struct Text(String, Option<Source>);

    impl Watched for Text {
        fn parse(text: &str, file: &str) -> Result<Self, Unusable> {
            if text == "begun" {
                std::fs::write(file, "").unwrap();
            }
            Ok(Self(text.to_owned(), None))
        }

        fn source(&self) -> Option<&Source> {
            self.1.as_ref()
        }

        fn read_from(self, source: Source) -> Self {
            Self(self.0, Some(source))
        }
    }

    /// A file that a writer empties while it is compared with what was read: the writer is waited for.
    #[tokio::test]
    async fn a_file_that_is_being_written_is_not_read() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "first").unwrap();
        let mut watch = Watch::new(&path, &*Text::load(&path, None).unwrap());
        std::fs::write(&path, "begun").unwrap();
        watch.stamp = stamps(std::slice::from_ref(&path)).await.ok(); // as if written within one tick of the clock
        assert!(watch.changed().await.is_none());
        let writer = tokio::spawn({
            let path = path.clone();
            async move { std::fs::write(path, "whole") }
        });
        let read = watch.changed().await.unwrap().unwrap();
        assert_eq!(read.0, "whole");
        writer.await.unwrap().unwrap();
    }
}
