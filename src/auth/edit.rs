//! Changes to the file of consumers: a new key, one consumer less. Whoever reads the file meanwhile sees the old text
//! or the new one, and everything else in it stays as it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, fchown};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::consumers::{Consumers, known_plan};
use super::read::{check_name, check_plan, read};
use crate::file;
use crate::watched::{Mistakes, Unusable, Watched, sha256};

/// What `consumers list` tells of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its plan.
    pub plan: Option<String>,
    /// How many keys it has.
    pub keys: usize,
    lines: (u32, u32),
}

/// Why a file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// What is asked cannot be done to this file.
    #[error("{0}")]
    Refused(String),
    /// The machine does not let us.
    #[error("cannot change the file: {0}")]
    Failed(#[from] io::Error),
}

/// Random bytes of a key. Nobody guesses one of 2²⁵⁶.
const SECRET: usize = 32;
/// What keys begin with, so that people and scanners for leaked secrets know one when they see it.
const PREFIX: &str = "sk_";
/// A new file: the digests are nobody else's business.
const MODE: u32 = 0o640;

impl From<Unusable> for EditError {
    fn from(unusable: Unusable) -> Self {
        Self::Refused(unusable.to_string())
    }
}

/// The consumers of a file, in its order.
///
/// # Errors
/// When it cannot be read or has mistakes.
pub fn list(path: &Path) -> Result<Vec<Listed>, EditError> {
    let text = file::read_text(path, file::TABLE)
        .map_err(|error| EditError::Refused(format!("cannot read {}: {error}", path.display())))?;
    listed(&text, path)
}

/// Adds a consumer with a new key, and makes the file if there is none. Returns the key, which stands nowhere else. Its
/// plan is one of `plans`, if there are any.
///
/// # Errors
/// When the name is taken or cannot be one, when there is no such plan, when the file has mistakes, or when it cannot be written.
pub fn add(path: &Path, name: &str, plan: Option<&str>, plans: &[String]) -> Result<String, EditError> {
    check_name(name).and_then(|()| plan.map_or(Ok(()), check_plan)).map_err(EditError::Refused)?;
    if let Some(plan) = plan.filter(|_| !plans.is_empty()) {
        known_plan(plan, "", plans).map_err(EditError::Refused)?;
    }
    let mut secret = [0; SECRET];
    aws_lc_rs::rand::fill(&mut secret).map_err(|_| io::Error::other("the system gives no random bytes"))?;
    let key = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(secret));
    change(path, true, |text| {
        if listed(text, path)?.iter().any(|consumer| consumer.name == name) {
            return Err(EditError::Refused(format!("{} has a consumer `{name}` already", path.display())));
        }
        Ok(with_entry(text, name, plan, &key))
    })?;
    Ok(key)
}

/// Removes a consumer and its keys.
///
/// # Errors
/// When there is none of that name, when the file has mistakes, or when it cannot be written.
pub fn remove(path: &Path, name: &str) -> Result<(), EditError> {
    change(path, false, |text| {
        let found = listed(text, path)?.into_iter().find(|consumer| consumer.name == name);
        let Some(Listed { lines: (from, to), .. }) = found else {
            return Err(EditError::Refused(format!("{} has no consumer `{name}`", path.display())));
        };
        let lines = (1_u32..).zip(text.split_inclusive('\n'));
        Ok(lines.filter(|(number, _)| !(from..=to).contains(number)).map(|(_, line)| line).collect())
    })
}

fn listed(text: &str, path: &Path) -> Result<Vec<Listed>, EditError> {
    Consumers::parse(text, &path.display().to_string())?;
    let mut all = Vec::new();
    read(text, &mut Mistakes::default(), |entry, _| {
        all.push(Listed {
            name: entry.name.into_owned(),
            plan: entry.plan.map(Into::into),
            keys: entry.keys.len(),
            lines: entry.lines,
        });
    });
    Ok(all)
}

/// `text` with one more entry at its end, indented like the others.
fn with_entry(text: &str, name: &str, plan: Option<&str>, key: &str) -> String {
    // An empty list in brackets is none any more.
    let mut out: String = text.split_inclusive('\n').filter(|line| line.trim() != "[]").collect();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    let is_entry = |line: &&str| line.trim_start().starts_with("- ") || line.trim() == "-";
    let indent = text.lines().find(is_entry).map_or(0, |line| line.len() - line.trim_start().len());
    let indent = " ".repeat(indent);
    let digest: String = sha256(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    out += &format!("{indent}- name: {}\n{indent}  key: sha256:{digest}\n", quoted(name));
    if let Some(plan) = plan {
        out += &format!("{indent}  plan: {}\n", quoted(plan));
    }
    out
}

/// A name as YAML takes it for one.
fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !name.ends_with(':')
        && !name.eq_ignore_ascii_case("null");
    if plain { name.to_owned() } else { format!("\"{name}\"") }
}

/// Replaces the text of a file by another, while nobody else of us does.
fn change(
    path: &Path,
    create: bool,
    change: impl FnOnce(&str) -> Result<String, EditError>,
) -> Result<(), EditError> {
    let _lock = lock(path, create)?;
    let path = fs::canonicalize(path)?; // behind a symbolic link the file is replaced, not the link
    let text = file::read_text(&path, file::TABLE)
        .map_err(|error| EditError::Refused(format!("cannot read {}: {error}", path.display())))?;
    let new = change(&text)?;
    Consumers::parse(&new, &path.display().to_string())?; // whatever it was, we do not write a bad file
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let written = write(&beside, &new, &fs::metadata(&path)?).and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        let _ = fs::remove_file(&beside); // it may not even be there
    }
    Ok(written?)
}

/// The file, locked against others who change it. They rename another over it, and then the lock is on the old one.
fn lock(path: &Path, create: bool) -> Result<File, EditError> {
    loop {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound && create => match new(path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                made => made?,
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(EditError::Refused(format!("there is no file {}", path.display())));
            }
            opened => opened?,
        };
        file.lock()?;
        let (locked, there) = (file.metadata()?, fs::metadata(path));
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (locked.dev(), locked.ino())) {
            return Ok(file);
        }
    }
}

/// Makes an empty file that the group of its folder may read: the gateway runs under another user than whoever adds
/// consumers, and the umask is that of the latter.
fn new(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Only root and members of that group may give it away; the file of anybody else stays in the group that it has.
    let _ = fchown(&file, None, Some(fs::metadata(folder)?.gid()));
    file.set_permissions(fs::Permissions::from_mode(MODE))?;
    Ok(file)
}

/// Writes a file with the mode and the owner of another, to the disk.
fn write(path: &Path, text: &str, like: &fs::Metadata) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
        chown(path, Some(like.uid()), Some(like.gid()))?;
    }
    file.set_permissions(fs::Permissions::from_mode(like.mode() & 0o7777))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_written_like_those_that_stand_there() {
        let entry = |text: &str| with_entry(text, "acme", Some("pro"), "k");
        let lines = |text: &str| entry(text).lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines("# all\n[]")[..2], ["# all", "- name: acme"]);
        assert!(entry("  - name: a").starts_with("  - name: a\n  - name: acme\n    key: sha256:"));
        assert!(entry("").ends_with("\n  plan: pro\n"));
        for name in ["acme", "-a", "@a", "null", "a:", "0", ":a"] {
            let text = with_entry("", name, None, "k");
            assert_eq!(listed(&text, Path::new("")).unwrap()[0].name, name, "{text}");
        }
    }
}
