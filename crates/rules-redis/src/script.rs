//! The scripts.

use std::sync::LazyLock;

use sluicegate_redis_link::Script;

macro_rules! scripts {
    ($($name:ident $file:literal),+ $(,)?) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!(concat!("lua/", $file))));)+
    };
}

scripts! {
    WRITE "write.lua",
    EXACT "exact.lua",
    PAGE "page.lua",
    LIMITS "limits.lua",
    PATTERNS "patterns.lua",
    CHANGES "changes.lua",
    HEAD "head.lua",
}
