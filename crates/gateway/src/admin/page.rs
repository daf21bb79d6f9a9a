//! The page for people, and what it may do.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::pages::DOM;
use sluicegate_base::file_watch::sha256;

/// The style and the scripts, which the page contains, so that it is one answer.
const STYLE: &str = include_str!("page/style.css");
const SCRIPTS: [&str; 8] = [
    DOM,
    include_str!("page/view.js"),
    include_str!("page/table.js"),
    include_str!("page/chart.js"),
    include_str!("page/servers.js"),
    include_str!("page/queues.js"),
    include_str!("page/live.js"),
    include_str!("page/forms.js"),
];

/// The page.
pub(super) static PAGE: LazyLock<String> = LazyLock::new(|| {
    include_str!("page/index.html").replace("/*style*/", STYLE).replace("/*script*/", &SCRIPTS.concat())
});

/// What the page may do: run its own script and style, and ask this API. No other page shows it in a frame.
pub(super) static PAGE_POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| STANDARD.encode(sha256(text.as_bytes()));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(&SCRIPTS.concat()),
        hash(STYLE)
    )
});
