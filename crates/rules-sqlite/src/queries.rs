//! What readers ask. Each question is answered from one state of the file.

use rusqlite::{Connection, OptionalExtension, Params, Row};
use sluicegate_rules::{Change, Changes, Head, Stored};

use crate::error::ReadError;
use crate::rows::{self, COLUMNS, stored};
use crate::schema::meta_number;

/// The rules of a limit for exactly these keys.
pub(crate) fn exact(connection: &Connection, limit: &str, keys: &[String]) -> Result<Vec<Stored>, ReadError> {
    let _one_state = connection.unchecked_transaction()?;
    let sql = format!("SELECT {COLUMNS} FROM rules WHERE key = ?1 AND lim = ?2 AND pattern = 0 ORDER BY id");
    let mut statement = connection.prepare(&sql)?;
    let mut found = Vec::new();
    for key in keys {
        let mut rows = statement.query([key.as_str(), limit])?;
        while let Some(row) = rows.next()? {
            found.push(stored(row)?);
        }
    }
    Ok(found)
}

/// All patterns, and the version of the store that has them.
pub(crate) fn patterns(connection: &Connection) -> Result<(u64, Vec<Stored>), ReadError> {
    let _one_state = connection.unchecked_transaction()?;
    let found = collect(connection, &format!("SELECT {COLUMNS} FROM rules WHERE pattern = 1"), (), stored)?;
    Ok((meta_number(connection, "version")?, found))
}

/// One rule.
pub(crate) fn get(connection: &Connection, id: &str) -> Result<Option<Stored>, ReadError> {
    let found = collect(connection, &format!("SELECT {COLUMNS} FROM rules WHERE id = ?1"), [id], stored)?;
    Ok(found.into_iter().next())
}

/// The next rules in the order of their names.
pub(crate) fn list(
    connection: &Connection,
    limit: Option<&str>,
    key: Option<&str>,
    after: Option<&str>,
    most: usize,
) -> Result<Vec<Stored>, ReadError> {
    let mut sql = format!("SELECT {COLUMNS} FROM rules WHERE id > ?1");
    let mut values = vec![after.unwrap_or("")];
    for (column, value) in [("lim", limit), ("key", key)] {
        if let Some(value) = value {
            values.push(value);
            sql += &format!(" AND {column} = ?{}", values.len());
        }
    }
    sql += &format!(" ORDER BY id LIMIT {}", number(most));
    collect(connection, &sql, rusqlite::params_from_iter(values), stored)
}

/// Where the store stands.
pub(crate) fn head(connection: &Connection) -> Result<Head, ReadError> {
    let sql = "SELECT epoch.value, CAST(version.value AS INTEGER) FROM meta AS epoch, meta AS version
               WHERE epoch.name = 'epoch' AND version.name = 'version'";
    let read =
        |row: &Row<'_>| Ok(Head { epoch: row.get(0)?, version: row.get::<_, i64>(1)?.cast_unsigned() });
    Ok(connection.query_row(sql, (), read)?)
}

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
    let sql = "SELECT version, seq, id, pattern, before, after, at, actor FROM changes
               WHERE version > ?1 AND version <= ?2 ORDER BY version, n";
    Ok(Changes::List(collect(connection, sql, [since.cast_signed(), last], change)?))
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
        let sql = "SELECT version FROM changes WHERE version > ?1 ORDER BY version LIMIT 1 OFFSET ?2";
        connection.query_row(sql, [since, number(offset)], |row| row.get::<_, i64>(0)).optional()
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
    use crate::{connection, schema};

    /// How SQLite would answer.
    fn plan(connection: &Connection, sql: &str) -> String {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.query_map((), |row| row.get::<_, String>(3)).unwrap();
        steps.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn questions_are_answered_from_indexes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.db");
        schema::create(&path).unwrap();
        let connection = connection::reading(&path).unwrap();
        for (sql, expected) in [
            (
                "key = 'k' AND lim = 'l' AND pattern = 0",
                "SEARCH rules USING INDEX rules_by_key (key=? AND lim=?)",
            ),
            ("pattern = 1", "SCAN rules USING INDEX rules_patterns"),
            (
                "id > 'i' AND lim = 'l' ORDER BY id",
                "SEARCH rules USING INDEX rules_by_limit (lim=? AND id>?)",
            ),
            (
                "id > 'i' AND key = 'k' ORDER BY id",
                "SEARCH rules USING INDEX rules_by_key (key=?); USE TEMP B-TREE FOR ORDER BY",
            ),
        ] {
            let found = plan(&connection, &format!("SELECT {COLUMNS} FROM rules WHERE {sql}"));
            assert_eq!(found, expected, "{sql}");
        }
        let changes = plan(&connection, "SELECT version FROM changes WHERE version > 1 ORDER BY version, n");
        assert!(changes.starts_with("SEARCH changes USING COVERING INDEX"), "{changes}");
        assert!(!changes.contains("TEMP"), "{changes}");
    }
}
