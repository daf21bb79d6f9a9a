//! Kinds of files.

/// The table that every file has.
pub(crate) const META: &str = "
    CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    INSERT INTO meta (name, value) VALUES ('clean', '1');   -- 0 while a process may write
";

/// What a file holds: the words of its errors, its tables, and how it is told from other files.
#[derive(Debug)]
pub struct Kind {
    /// What it holds, in the plural: `rules`.
    pub content: &'static str,
    /// What to do if another gateway uses the file, besides stopping it or naming another file.
    pub sharing: &'static str,
    /// The name of the thread that writes, of at most 15 bytes.
    pub thread: &'static str,
    /// `application_id` in the header tells the file from databases of other programs.
    pub application_id: i64,
    /// The form of the tables and of what is in them, from 1: `user_version` in the header. A release reads files of its form
    /// and of lower ones.
    pub form: i64,
    /// The statements that create the tables, besides `meta`.
    pub tables: &'static str,
    /// Queries that a file must answer; they run when it is opened, so that a table that is missing is found then.
    pub probes: &'static [&'static str],
    /// The values that `meta` must have besides `clean`.
    pub numbers: &'static [&'static str],
    /// Whether all of a file is read before it is used that was not closed in order. SQLite itself repairs what a crash has
    /// left; this finds what the disk has lost.
    pub is_read_after_crash: bool,
}
