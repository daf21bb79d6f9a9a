//! The table `meta`: numbers by name.

use rusqlite::Connection;

/// A value of the table `meta`.
///
/// # Errors
/// If the value is missing, or no number.
pub fn meta_number(connection: &Connection, name: &str) -> rusqlite::Result<u64> {
    let number =
        connection.query_row("SELECT CAST(value AS INTEGER) FROM meta WHERE name = ?1", [name], |row| {
            row.get::<_, i64>(0)
        })?;
    Ok(number.cast_unsigned())
}

/// Sets a value of the table `meta`.
///
/// # Errors
/// If SQLite refuses.
pub fn set_meta(connection: &Connection, name: &str, value: u64) -> rusqlite::Result<()> {
    connection.execute("UPDATE meta SET value = ?2 WHERE name = ?1", (name, value.to_string()))?;
    Ok(())
}
