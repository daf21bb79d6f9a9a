//! The file of consumers on disk: reading it, and telling when it has changed.

use std::io::{Error, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::consumers::{Consumers, Unusable, sha256};
use super::read::Digest;

/// What a file system tells of a file; as long as it stays the same, so does the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    place: (u64, u64),
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
    pub(super) mode: u32,
}

/// The largest file that is read.
const LARGEST: u64 = 1 << 30;
/// A file that is being written is read when it has stood still for so long.
const STILL: Duration = Duration::from_millis(100);
/// How often that is waited for.
const PATIENCE: usize = 50;
/// Looks after a change in which the text is compared even if the stamp is the same: what is written within one tick
/// of the file system's clock leaves it so.
const CLOSE_LOOKS: u8 = 5;

impl Stamp {
    fn of(path: &Path) -> Result<Self, Error> {
        let of = std::fs::metadata(path)?;
        Ok(Self {
            place: (of.dev(), of.ino()),
            size: of.size(),
            written: (of.mtime(), of.mtime_nsec()),
            changed: (of.ctime(), of.ctime_nsec()),
            mode: of.mode(),
        })
    }
}

impl Consumers {
    /// The consumers in a file; those of `before` if its text is the same.
    ///
    /// # Errors
    /// When it cannot be read, or all that is wrong with it.
    pub fn load(path: &Path, before: Option<&Arc<Self>>) -> Result<Arc<Self>, Unusable> {
        let file = path.display().to_string();
        let (text, stamp) = text(path).map_err(|error| Unusable::unread(path, &error))?;
        if let Some(before) = before.filter(|before| {
            before.stamp.as_ref().is_some_and(|old| old.mode == stamp.mode)
                && before.digest == sha256(text.as_bytes())
        }) {
            return Ok(Arc::clone(before));
        }
        Self::parse(&text, &file).map(|consumers| Arc::new(consumers.stamped(stamp)))
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

pub(super) fn text(path: &Path) -> Result<(String, Stamp), Error> {
    let stamp = Stamp::of(path)?;
    if stamp.size > LARGEST {
        return Err(Error::new(ErrorKind::FileTooLarge, "it is larger than 1 GiB"));
    }
    let text = String::from_utf8(std::fs::read(path)?);
    Ok((text.map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))?, stamp))
}

/// Knows which state of a file was looked at last, good or bad.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    stamp: Option<Stamp>,
    digest: Option<Digest>,
    close_looks: u8,
}

impl Watch {
    /// A watch over the file that `consumers` were read from.
    pub fn new(path: &Path, consumers: &Consumers) -> Self {
        Self {
            path: path.to_owned(),
            stamp: consumers.stamp.clone(),
            digest: Some(consumers.digest),
            close_looks: CLOSE_LOOKS,
        }
    }

    /// What the file holds now, if that is something else than at the last look. A file that is gone is being
    /// replaced, and changes nothing.
    pub async fn look(&mut self) -> Option<Result<Arc<Consumers>, Unusable>> {
        let mut stamp = match Stamp::of(&self.path) {
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
                let now = Stamp::of(&self.path).ok();
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

/// A text's digest, and what it says.
type Read = (Option<Digest>, Result<Arc<Consumers>, Unusable>);

/// What a file holds, unless that is the text of this digest.
fn read_changed(path: &Path, before: Option<Digest>) -> Option<Read> {
    let (text, stamp) = match text(path) {
        Ok(read) => read,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => return Some((None, Err(Unusable::unread(path, &error)))),
    };
    let digest = sha256(text.as_bytes());
    if before == Some(digest) {
        return None;
    }
    let consumers = Consumers::parse(&text, &path.display().to_string());
    Some((Some(digest), consumers.map(|consumers| Arc::new(consumers.stamped(stamp)))))
}
