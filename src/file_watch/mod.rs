//! Large files beside gateway.yaml, of consumers or addresses: reading them, and telling when they have changed.

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
pub(crate) type Digest = [u8; 32];

/// What is read from such a file.
pub trait Watched: Sized + Send + Sync + 'static {
    /// The largest file that is read.
    const LARGEST: u64 = file::TABLE;

    /// What a text says, which stands in `file`.
    ///
    /// # Errors
    /// All that is wrong with it.
    fn parse(text: &str, file: &str) -> Result<Self, Unusable>;

    /// The file as it was when this was read from it.
    fn source(&self) -> Option<&Source>;

    /// The same, as read from this.
    fn read_from(self, source: Source) -> Self;

    /// Whether both were read from the same text.
    fn is_same(&self, other: &Self) -> bool {
        let digests = self.source().zip(other.source()).map(|(one, other)| one.digest == other.digest);
        digests.unwrap_or(false)
    }

    /// What a file holds; `before` if that is the same.
    ///
    /// # Errors
    /// When it cannot be read, or all that is wrong with it.
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

/// A file as it was when it was read.
#[derive(Clone, Debug)]
pub struct Source {
    stamp: Stamp,
    /// Of its text.
    digest: Digest,
}

/// Why such a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// What is wrong.
    pub message: String,
    /// Each mistake with its line.
    pub details: Vec<String>,
}

/// What is wrong with a file: the first mistakes, and how many there are.
#[derive(Debug, Default)]
pub(crate) struct Mistakes {
    first: Vec<(u32, String)>,
    count: usize,
}

/// What a file system tells of a file; as long as it stays the same, so does the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    place: (u64, u64),
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
    mode: u32,
}

/// A file that is being written is read when it has stood still for so long.
const STILL: Duration = Duration::from_millis(100);
/// How often that is waited for.
const PATIENCE: usize = 50;
/// Looks after a change in which the text is compared even if the stamp is the same: what is written within one tick
/// of the file system's clock leaves it so.
const CLOSE_LOOKS: u8 = 5;
/// Mistakes that are told.
const TOLD: usize = 20;

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            place: (metadata.dev(), metadata.ino()),
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
    /// Notes one.
    pub(crate) fn add(&mut self, line: u32, message: impl Into<String>) {
        self.count += 1;
        self.first.push((line, message.into()));
        if self.first.len() > 4 * TOLD {
            self.first.sort_by_key(|(line, _)| *line); // some are found at the end, for lines far above
            self.first.truncate(TOLD);
        }
    }

    /// `read` if there are none.
    pub(crate) fn or<T>(mut self, read: T, file: &str) -> Result<T, Unusable> {
        let message = match self.count {
            0 => return Ok(read),
            1 => format!("{file} has a mistake"),
            count => format!("{file} has {count} mistakes"),
        };
        self.first.sort_by_key(|(line, _)| *line);
        self.first.truncate(TOLD);
        let mut details: Vec<String> =
            self.first.iter().map(|(line, message)| format!("{file}:{line}: {message}")).collect();
        if self.count > details.len() {
            details.push(format!("and {} more", self.count - details.len()));
        }
        Err(Unusable { message, details })
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, bytes).as_ref());
    out
}

/// The text of a file.
fn read(path: &Path, largest: u64) -> Result<(String, Source), Error> {
    let (bytes, metadata) = file::read(path, largest)?;
    let text = sluicegate_config::utf8_text(bytes)?;
    let digest = sha256(text.as_bytes());
    Ok((text, Source { stamp: Stamp::of(&metadata), digest }))
}

/// What the file system tells of some files, asked on a thread of its own: a network file system may not answer.
async fn stamps(paths: &[PathBuf]) -> Result<Vec<Stamp>, Error> {
    let paths = paths.to_vec();
    let stamp = |path: &PathBuf| std::fs::metadata(path).map(|metadata| Stamp::of(&metadata));
    let asked = tokio::task::spawn_blocking(move || paths.iter().map(stamp).collect()).await;
    asked.unwrap_or_else(|error| Err(Error::other(error)))
}

/// Knows which state of a file was looked at last, good or bad.
#[derive(Debug)]
pub struct Watch<T> {
    path: PathBuf,
    stamp: Option<Vec<Stamp>>,
    digest: Option<Digest>,
    close_looks: u8,
    of: PhantomData<fn() -> T>,
}

impl<T: Watched> Watch<T> {
    /// A watch over the file that `known` was read from.
    pub fn new(path: &Path, known: &T) -> Self {
        Self {
            path: path.to_owned(),
            stamp: known.source().map(|source| vec![source.stamp.clone()]),
            digest: known.source().map(|source| source.digest),
            close_looks: CLOSE_LOOKS,
            of: PhantomData,
        }
    }

    /// What the file holds now, if that is something else than at the last look. A file that is gone is being
    /// replaced, and changes nothing.
    pub async fn look(&mut self) -> Option<Result<Arc<T>, Unusable>> {
        let path = std::slice::from_ref(&self.path);
        let mut stamp = match stamps(path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            stamp => stamp.ok(),
        };
        if stamp == self.stamp {
            if self.close_looks == 0 {
                return None;
            }
            self.close_looks -= 1;
        } else {
            for _ in 0..PATIENCE {
                tokio::time::sleep(STILL).await;
                let now = stamps(path).await.ok();
                if now == stamp {
                    break;
                }
                stamp = now;
            }
            self.close_looks = CLOSE_LOOKS;
        }
        self.stamp = stamp;
        let (path, digest) = (self.path.clone(), self.digest);
        // A million entries take a moment, in which the admin API goes on answering.
        let read = tokio::task::spawn_blocking(move || read_changed(&path, digest)).await;
        let (digest, result) = read.ok().flatten()?;
        self.digest = digest;
        Some(result)
    }
}

/// Small files that belong together: tells when they are to be read anew.
#[derive(Debug)]
pub struct Several {
    paths: Vec<PathBuf>,
    stamps: Vec<Stamp>,
    close_looks: u8,
}

impl Several {
    /// A watch over files that were just read.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self { paths, stamps: Vec::new(), close_looks: CLOSE_LOOKS }
    }

    /// Whether one of them may be another than at the last look. While one is gone it is being replaced.
    pub async fn may_have_changed(&mut self) -> bool {
        let Ok(mut now) = stamps(&self.paths).await else { return false };
        if self.stamps.is_empty() {
            self.stamps = now; // the first look
            return true;
        }
        if now == self.stamps {
            let close = self.close_looks > 0;
            self.close_looks = self.close_looks.saturating_sub(1);
            return close;
        }
        for _ in 0..PATIENCE {
            tokio::time::sleep(STILL).await;
            let Ok(later) = stamps(&self.paths).await else { return false };
            if later == now {
                break;
            }
            now = later;
        }
        self.stamps = now;
        self.close_looks = CLOSE_LOOKS;
        true
    }
}

/// A text's digest, and what it says.
type Read<T> = (Option<Digest>, Result<Arc<T>, Unusable>);

/// What a file holds, unless that is the text of this digest.
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
