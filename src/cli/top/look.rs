//! What a gateway tells of its busiest keys.

use serde_json::Value;

/// What a gateway has told.
pub(super) struct Look {
    /// The last two minutes at least: `GET /live`.
    pub(super) live: Value,
    /// The keys of each limit: `GET /limits/{limit}/top`.
    pub(super) tops: Vec<Value>,
}

/// The counts and keys of a limit, as they are shown.
pub(super) fn rows(top: &Value) -> impl Iterator<Item = (String, String)> + '_ {
    top["keys"].as_array().into_iter().flatten().map(|one| {
        let count = one["count"].as_u64().unwrap_or_default();
        let count = match one["error"].as_u64().unwrap_or_default() {
            0 => count.to_string(),
            error => format!("{count} ±{error}"),
        };
        let owner = one["consumer"].as_str().map_or_else(String::new, |owner| format!(" ({owner})"));
        let key = format!("{}{owner}", one["key"].as_str().unwrap_or("(no key)"));
        // Keys are chosen by clients: nothing of them may control the terminal.
        (count, key.chars().flat_map(char::escape_debug).collect())
    })
}
