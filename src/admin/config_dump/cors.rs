//! Cross-origin resource sharing, as it is in force.

use serde_json::{Value, json};

use sluicegate_config::{CorsConfig, Origins};

/// Which pages may read answers.
pub(super) fn cors(cors: &CorsConfig) -> Value {
    let origins: Vec<String> = match &cors.origins {
        Origins::Any => vec!["*".to_owned()],
        Origins::Listed { exact, below } => {
            let below = below.iter().map(|below| format!("{}*{}", below.scheme, below.rest));
            exact.iter().cloned().chain(below).collect()
        }
    };
    json!({
        "origins": origins,
        "credentials": cors.credentials,
        "expose": cors.expose,
        "methods": cors.methods,
        "headers": cors.headers,
        "max_age": cors.max_age,
    })
}
