//! The scripts.

use std::sync::LazyLock;

use sluicegate_redis_link::Script;

macro_rules! scripts {
    ($($name:ident $file:literal),+ $(,)?) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| script(include_str!(concat!("lua/", $file))));)+
    };
}

scripts! {
    ACCEPT "accept.lua",
    BACKLOG "backlog.lua",
    CANCEL "cancel.lua",
    CLAIM "claim.lua",
    DEAD "dead.lua",
    END "end.lua",
    EXPIRE "expire.lua",
    FIGURES "figures.lua",
    LIST "list.lua",
    RENEW "renew.lua",
    WAKE "wake.lua",
}

fn script(own: &str) -> Script {
    let common = include_str!("lua/common.lua").to_owned();
    #[cfg(test)]
    let common = crate::tests::with_chosen_clock(common);
    // Each is made once.
    Script::new(Box::leak(format!("{common}{own}").into_boxed_str()))
}
