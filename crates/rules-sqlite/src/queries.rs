//! What readers ask. Each question is answered from one state of the file.

use rusqlite::{Connection, OptionalExtension, Params, Row};
use sluicegate_rules::{Change, Changes, Head, Stored};

use crate::error::ReadError;
use crate::rows::{self, COLUMNS, stored};
use sluicegate_sqlite_file::meta_number;

/// A rule, or why it cannot be read.
pub(crate) type ReadRule = Result<Stored, ReadError>;

/// The rules of a limit for exactly these keys, each as far as it can be read.
pub(crate) fn exact(
    connection: &Connection,
    limit: &str,
    keys: &[String],
) -> Result<Vec<ReadRule>, ReadError> {
    let _one_state = connection.unchecked_transaction()?;
    let mut statement = connection.prepare(&exact_sql())?;
    let mut found = Vec::new();
    for key in keys {
        let mut rows = statement.query([key.as_str(), limit])?;
        while let Some(row) = rows.next()? {
            found.push(as_far_as_readable(row)?);
        }
    }
    Ok(found)
}

/// All patterns, each as far as it can be read, and the version of the store that has them.
pub(crate) fn patterns(connection: &Connection) -> Result<(u64, Vec<ReadRule>), ReadError> {
    let _one_state = connection.unchecked_transaction()?;
    let found = collect(connection, &patterns_sql(), (), as_far_as_readable)?;
    Ok((meta_number(connection, "version")?, found))
}

/// One rule.
pub(crate) fn get(connection: &Connection, id: &str) -> Result<Option<Stored>, ReadError> {
    let found = collect(connection, &format!("SELECT {COLUMNS} FROM rules WHERE id = ?1"), [id], stored)?;
    Ok(found.into_iter().next())
}

/// The next rules in the order of their names, each as far as it can be read.
pub(crate) fn page(
    connection: &Connection,
    limit: Option<&str>,
    key: Option<&str>,
    after: Option<&str>,
    most: usize,
) -> Result<Vec<ReadRule>, ReadError> {
    let mut values = vec![after.unwrap_or("")];
    values.extend(limit);
    values.extend(key);
    let sql = list_sql(limit.is_some(), key.is_some(), most);
    collect(connection, &sql, rusqlite::params_from_iter(values), as_far_as_readable)
}

/// The rule of a row, or what is wrong with its content.
fn as_far_as_readable(row: &Row<'_>) -> Result<ReadRule, ReadError> {
    match stored(row) {
        Err(unreadable @ ReadError::Content { .. }) => Ok(Err(unreadable)),
        other => other.map(Ok),
    }
}

/// Where the store stands.
pub(crate) fn head(connection: &Connection) -> Result<Head, ReadError> {
    let sql = "SELECT epoch.value, CAST(version.value AS INTEGER) FROM meta AS epoch, meta AS version
               WHERE epoch.name = 'epoch' AND version.name = 'version'";
    let read =
        |row: &Row<'_>| Ok(Head { epoch: row.get(0)?, version: row.get::<_, i64>(1)?.cast_unsigned() });
    Ok(connection.query_row(sql, (), read)?)
}

// Indexes are named: SQLite, which knows nothing of the content, would rather read all rules of a limit than sort a few.

fn exact_sql() -> String {
    format!(
        "SELECT {COLUMNS} FROM rules INDEXED BY rules_by_key WHERE key = ?1 AND lim = ?2 AND pattern = 0 ORDER BY id"
    )
}

fn patterns_sql() -> String {
    format!("SELECT {COLUMNS} FROM rules INDEXED BY rules_patterns WHERE pattern = 1")
}

fn list_sql(limit: bool, key: bool, most: usize) -> String {
    let (index, conditions) = match (limit, key) {
        (false, false) => ("", ""),
        (true, false) => ("INDEXED BY rules_by_limit", "AND lim = ?2"),
        (false, true) => ("INDEXED BY rules_by_key", "AND key = ?2"),
        (true, true) => ("INDEXED BY rules_by_key", "AND lim = ?2 AND key = ?3"),
    };
    let most = number(most);
    format!("SELECT {COLUMNS} FROM rules {index} WHERE id > ?1 {conditions} ORDER BY id LIMIT {most}")
}

const CHANGES: &str = "SELECT version, seq, id, pattern, before, after, at, actor FROM changes
    WHERE version > ?1 AND version <= ?2 ORDER BY version, n";

const NTH_CHANGE: &str = "SELECT version FROM changes WHERE version > ?1 ORDER BY version LIMIT 1 OFFSET ?2";

/// What changed since a version.
pub(crate) fn changes(connection: &Connection, since: u64, most: usize) -> Result<Changes, ReadError> {
    let _one_state = connection.unchecked_transaction()?;
    let version = meta_number(connection, "version")?;
    if since > version || since < meta_number(connection, "trimmed")? {
        return Ok(Changes::Trimmed);
    }
    let Some(last) = last_version(connection, since, most)? else {
        return Ok(Changes::List(Vec::new()));
    };
    Ok(Changes::List(collect(connection, CHANGES, [since.cast_signed(), last], change)?))
}

/// The limits that have rules: one look into the index for each, however many rules it has.
pub(crate) fn limits(connection: &Connection) -> Result<Vec<String>, ReadError> {
    let _one_state = connection.unchecked_transaction()?;
    let mut statement = connection.prepare("SELECT min(lim) FROM rules WHERE lim > ?1")?;
    let mut limits: Vec<String> = Vec::new();
    loop {
        let last = limits.last().map_or("", String::as_str);
        match statement.query_row([last], |row| row.get::<_, Option<String>>(0))? {
            Some(next) => limits.push(next),
            None => return Ok(limits),
        }
    }
}

/// How many rules there are.
pub(crate) fn count(connection: &Connection) -> Result<u64, ReadError> {
    let count: i64 = connection.query_row("SELECT count(*) FROM rules", (), |row| row.get(0))?;
    Ok(count.cast_unsigned())
}

/// The last version whose changes are among the next `most`; if the next version has more changes, that one.
fn last_version(connection: &Connection, since: u64, most: usize) -> Result<Option<i64>, ReadError> {
    let since = since.cast_signed();
    let at = |offset: usize| {
        connection.query_row(NTH_CHANGE, [since, number(offset)], |row| row.get::<_, i64>(0)).optional()
    };
    let Some(first) = at(0)? else { return Ok(None) };
    // The version of the first change that does not fit is left out as a whole.
    Ok(Some(at(most)?.map_or(i64::MAX, |beyond| first.max(beyond - 1))))
}

fn change(row: &Row<'_>) -> Result<Change, ReadError> {
    let id: String = row.get(2)?;
    let rule = |column: usize| {
        let body: Option<String> = row.get(column)?;
        body.map(|body| rows::rule(&id, &body)).transpose()
    };
    Ok(Change {
        version: row.get::<_, i64>(0)?.cast_unsigned(),
        seq: row.get::<_, i64>(1)?.cast_unsigned(),
        pattern: row.get(3)?,
        before: rule(4)?,
        after: rule(5)?,
        at: row.get::<_, i64>(6)?.cast_unsigned(),
        actor: row.get(7)?,
    })
}

/// All rows of a query.
fn collect<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&Row<'_>) -> Result<T, ReadError>,
) -> Result<Vec<T>, ReadError> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

fn number(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How SQLite would answer.
    fn plan(connection: &Connection, sql: &str) -> String {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let (mut rows, mut steps) = (statement.raw_query(), Vec::<String>::new());
        while let Some(row) = rows.next().unwrap() {
            steps.push(row.get(3).unwrap());
        }
        steps.join("; ")
    }

    #[test]
    fn questions_are_answered_from_indexes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.db");
        drop(crate::RuleFile::open(&path).unwrap());
        let connection = Connection::open(&path).unwrap();
        for (sql, expected) in [
            (
                exact_sql(),
                "SEARCH rules USING INDEX rules_by_key (key=? AND lim=?); USE TEMP B-TREE FOR ORDER BY",
            ),
            (patterns_sql(), "SCAN rules USING INDEX rules_patterns"),
            (list_sql(false, false, 10), "SEARCH rules USING INDEX sqlite_autoindex_rules_1 (id>?)"),
            (list_sql(true, false, 10), "SEARCH rules USING INDEX rules_by_limit (lim=? AND id>?)"),
            (
                list_sql(false, true, 10),
                "SEARCH rules USING INDEX rules_by_key (key=?); USE TEMP B-TREE FOR ORDER BY",
            ),
            (
                list_sql(true, true, 10),
                "SEARCH rules USING INDEX rules_by_key (key=? AND lim=?); USE TEMP B-TREE FOR ORDER BY",
            ),
            (CHANGES.to_owned(), "SEARCH changes USING INDEX changes_by_version (version>? AND version<?)"),
            (NTH_CHANGE.to_owned(), "SEARCH changes USING COVERING INDEX changes_by_version (version>?)"),
        ] {
            assert_eq!(plan(&connection, &sql), expected, "{sql}");
        }
    }
}
