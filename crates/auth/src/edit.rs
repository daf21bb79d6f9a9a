//! Changes to the file of consumers: keys and consumers that come and go. Whoever reads the file meanwhile sees the old text
//! or the new one, and everything else in it stays as it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, fchown};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::consumers::{Consumers, known_plan};
use super::read::{check_name, check_plan, is_blank, read};
use super::rekey::{with_key, with_only_key, without_key};
use sluicegate_base::file;
use sluicegate_base::file_watch::{Mistakes, Unusable, Watched, hex, sha256};

/// What `consumers list` tells of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its plan.
    pub plan: Option<String>,
    /// The fingerprints of its keys.
    pub keys: Vec<String>,
    lines: (u32, u32),
    /// Where the keys are in the text.
    places: Vec<Range<usize>>,
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
/// Digits of a key's SHA-256 that are shown of it, as in replays.
const SHOWN: usize = 16;
/// The fewest that name a key.
const FEWEST: usize = 8;
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
    let key = new_key()?;
    change(path, true, |text| {
        // One that was just made says nothing yet.
        if !is_blank(text) && listed(text, path)?.iter().any(|consumer| consumer.name == name) {
            return Err(EditError::Refused(format!("{} has a consumer `{name}` already", path.display())));
        }
        Ok(with_entry(text, is_json_lines(text, path), name, plan, &key))
    })?;
    Ok(key)
}

/// Removes a consumer and its keys.
///
/// # Errors
/// When there is none of that name, when the file has mistakes, or when it cannot be written.
pub fn remove(path: &Path, name: &str) -> Result<(), EditError> {
    change(path, false, |text| {
        let Listed { lines: (from, to), .. } = find(text, path, name)?;
        let lines = (1_u32..).zip(text.split_inclusive('\n'));
        let left = lines.filter(|(number, _)| !(from..=to).contains(number)).map(|(_, line)| line);
        let mut left: String = left.collect();
        if is_blank(&left) {
            let end = if left.is_empty() || left.ends_with('\n') { "" } else { "\n" };
            left += &format!("{end}[]\n"); // that nobody is left is meant
        }
        Ok(left)
    })
}

/// Gives a consumer a key beside those that it has. Returns the key, which stands nowhere else.
///
/// # Errors
/// When there is none of that name, when the file has mistakes, or when it cannot be written.
pub fn add_key(path: &Path, name: &str) -> Result<String, EditError> {
    let key = new_key()?;
    change(path, false, |text| {
        let consumer = find(text, path, name)?;
        with_key(text, &consumer.places, &digest_of(&key)).ok_or_else(|| not_so_written(path, name))
    })?;
    Ok(key)
}

/// Gives a consumer one key in the place of all that it has. Returns the key, which stands nowhere else, and how many
/// there were.
///
/// # Errors
/// When there is none of that name, when the file has mistakes, or when it cannot be written.
pub fn rotate(path: &Path, name: &str) -> Result<(String, usize), EditError> {
    let key = new_key()?;
    let mut before = 0;
    change(path, false, |text| {
        let consumer = find(text, path, name)?;
        before = consumer.places.len();
        with_only_key(text, &consumer.places, &digest_of(&key)).ok_or_else(|| not_so_written(path, name))
    })?;
    Ok((key, before))
}

/// Removes the key of a consumer whose fingerprint begins with `wanted`. Its last key stays.
///
/// # Errors
/// When there is no such key or more than one, when it is the last one, when the file has mistakes, or when it cannot be
/// written.
pub fn remove_key(path: &Path, name: &str, wanted: &str) -> Result<(), EditError> {
    let refused = |why: String| EditError::Refused(why);
    let digits = wanted.strip_prefix("sha256:").unwrap_or(wanted).to_ascii_lowercase();
    if digits.len() < FEWEST || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        // What was given may be a key itself, so it is not told.
        return Err(refused(format!(
            "a key is named by the first digits of its SHA-256, {FEWEST} or more, as `sluicegate consumers list` shows"
        )));
    }
    change(path, false, |text| {
        let consumer = find(text, path, name)?;
        let is_meant = |at: &&Range<usize>| digits_of(text, at).starts_with(&digits);
        let mut found = consumer.places.iter().filter(is_meant);
        match (found.next(), found.next()) {
            (None, _) => Err(refused(format!("`{name}` has no key sha256:{digits}"))),
            (Some(_), Some(_)) => {
                Err(refused(format!("`{name}` has several keys sha256:{digits}…; give more digits")))
            }
            (Some(_), None) if consumer.places.len() == 1 => Err(refused(format!(
                "it is the only key of `{name}`; `consumers rotate` replaces it, `consumers remove` removes the consumer"
            ))),
            (Some(key), None) => without_key(text, key).ok_or_else(|| not_so_written(path, name)),
        }
    })
}

fn new_key() -> Result<String, EditError> {
    let mut secret = [0; SECRET];
    aws_lc_rs::rand::fill(&mut secret).map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(secret)))
}

/// A key as the file has it.
fn digest_of(key: &str) -> String {
    format!("sha256:{}", hex(&sha256(key.as_bytes())))
}

/// The digits of the SHA-256 that is at `at`.
fn digits_of(text: &str, at: &Range<usize>) -> String {
    text[at.clone()].trim_start_matches("sha256:").to_ascii_lowercase()
}

fn find(text: &str, path: &Path, name: &str) -> Result<Listed, EditError> {
    let found = listed(text, path)?.into_iter().find(|consumer| consumer.name == name);
    found.ok_or_else(|| EditError::Refused(format!("{} has no consumer `{name}`", path.display())))
}

fn not_so_written(path: &Path, name: &str) -> EditError {
    let path = path.display();
    EditError::Refused(format!(
        "{path} has keys of `{name}` in more than one field; write them as one list, `keys: […]`"
    ))
}

fn listed(text: &str, path: &Path) -> Result<Vec<Listed>, EditError> {
    Consumers::parse(text, &path.display().to_string())?;
    let mut all = Vec::new();
    read(text, &mut Mistakes::default(), |entry, _| {
        let place = |key: &str| {
            let start = key.as_ptr().addr() - text.as_ptr().addr(); // it is a piece of the text
            start..start + key.len()
        };
        let places: Vec<_> = entry.keys.iter().map(|key| place(key.text)).collect();
        all.push(Listed {
            name: entry.name.into_owned(),
            plan: entry.plan.map(Into::into),
            keys: places.iter().map(|at| format!("sha256:{}", &digits_of(text, at)[..SHOWN])).collect(),
            lines: entry.lines,
            places,
        });
    });
    Ok(all)
}

/// Whether a file is JSON Lines: by its first entry, or by its name while it has none.
fn is_json_lines(text: &str, path: &Path) -> bool {
    let said = |line: &&str| !is_blank(line) && line.trim() != "[]";
    match text.trim_start_matches('\u{feff}').lines().find(said) {
        Some(line) => line.trim_start().starts_with('{'),
        None => path.extension().is_some_and(|extension| extension == "jsonl" || extension == "ndjson"),
    }
}

/// `text` with one more entry at its end, written like the others.
fn with_entry(text: &str, json_lines: bool, name: &str, plan: Option<&str>, key: &str) -> String {
    // An empty list in brackets is none any more.
    let mut out: String = text.split_inclusive('\n').filter(|line| line.trim() != "[]").collect();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    if json_lines {
        // Names and plans have no characters that are escaped.
        let plan = plan.map(|plan| format!(",\"plan\":\"{plan}\"")).unwrap_or_default();
        out += &format!("{{\"name\":\"{name}\",\"key\":\"{}\"{plan}}}\n", digest_of(key));
        return out;
    }
    let is_entry = |line: &&str| line.trim_start().starts_with("- ") || line.trim() == "-";
    let indent = text.lines().find(is_entry).map_or(0, |line| line.len() - line.trim_start().len());
    let indent = " ".repeat(indent);
    out += &format!("{indent}- name: {}\n{indent}  key: {}\n", quoted(name), digest_of(key));
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
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    if fs::symlink_metadata(path)?.is_symlink() && !path.exists() {
                        let path = path.display();
                        return Err(EditError::Refused(format!(
                            "{path} is a link, and there is no file behind it"
                        )));
                    }
                    continue; // somebody else has just made it
                }
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
        let entry = |text: &str| with_entry(text, false, "acme", Some("pro"), "k");
        let lines = |text: &str| entry(text).lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines("# all\n[]")[..2], ["# all", "- name: acme"]);
        assert!(entry("  - name: a").starts_with("  - name: a\n  - name: acme\n    key: sha256:"));
        assert!(entry("").ends_with("\n  plan: pro\n"));
        for name in ["acme", "-a", "@a", "null", "a:", "0", ":a"] {
            for json_lines in [false, true] {
                let text = with_entry("", json_lines, name, None, "k");
                assert_eq!(listed(&text, Path::new("")).unwrap()[0].name, name, "{text}");
            }
        }
        let text = with_entry("{\"name\":\"a\",\"key\":\"k\"}", true, "b", Some("pro"), "k");
        assert!(text.lines().nth(1).unwrap().starts_with("{\"name\":\"b\",\"key\":\"sha256:"), "{text}");
        assert!(text.ends_with(",\"plan\":\"pro\"}\n"), "{text}");
        for (text, path, wanted) in [
            ("", "c.jsonl", true),
            ("# all\n[]\n", "c.ndjson", true),
            ("", "c.yaml", false),
            ("# all\n{\"name\":\"a\"}\n", "c.yaml", true),
            ("- {name: a}\n", "c.jsonl", false),
        ] {
            assert_eq!(is_json_lines(text, Path::new(path)), wanted, "{text}");
        }
    }
}
