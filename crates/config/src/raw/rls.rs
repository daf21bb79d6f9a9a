//! The services for other proxies that have limits of their own, as they are written.

use crate::raw::RawText;
use crate::raw::scalars::RawCount;
use crate::read::at::At;
use crate::read::{OneOrMany, mapping};

mapping! {
    /// Limits for other proxies, which ask by Envoy's rate limit service: listeners with `serve: rls`.
    "rls"
    struct RawRls {
        /// Files of envoyproxy/ratelimit, which are read unmodified: paths, or patterns such as ratelimit/*.yaml.
        #[schemars(required)]
        files: OneOrMany<At<RawText>>,
        /// What is done with the hits of a refused request: charge (default, as envoyproxy/ratelimit does: each descriptor counts
        /// for itself, and hits above a limit count, too) or keep (all descriptors are one decision: a refusal charges none).
        #[schemars(extend("enum" = ["charge", "keep"]))]
        over_limit: RawText,
        /// The algorithm of the limits of these files. Default: fixed_window, as in envoyproxy/ratelimit.
        #[schemars(extend("enum" = ["fixed_window", "token_bucket", "sliding_window"]))]
        algorithm: RawText,
        /// Where they are counted: shared (with all gateways of the store) or local. Default: shared if there is a store.
        #[schemars(extend("enum" = ["shared", "local"]))]
        scope: RawText,
        /// How shared limits are counted: auto, exact or leased, as for other limits.
        #[schemars(extend("enum" = ["auto", "exact", "leased"]))]
        sync: RawText,
        /// What happens while the store fails: local (default), open or closed, as for other limits.
        #[schemars(extend("enum" = ["local", "open", "closed"]))]
        on_store_failure: RawText,
        /// The maximum number of keys of each limit. Default: 1M.
        max_keys: RawCount,
    }
}

mapping! {
    /// Limits for other proxies, which ask as they ask limitador: listeners with `serve: limitador`.
    "limitador"
    struct RawLimitador {
        /// Limits files of limitador: paths, or patterns such as limits/*.yaml.
        #[schemars(required)]
        files: OneOrMany<At<RawText>>,
        /// Whether answers over gRPC have rate limit headers for the client: none (default) or draft_version_03. Over HTTP each
        /// request says it.
        #[schemars(extend("enum" = ["none", "draft_version_03"]))]
        response_headers: RawText,
        /// The algorithm of the limits of these files. Default: fixed_window, as in limitador.
        #[schemars(extend("enum" = ["fixed_window", "token_bucket", "sliding_window"]))]
        algorithm: RawText,
        /// Where they are counted: shared (with all gateways of the store) or local. Default: shared if there is a store.
        #[schemars(extend("enum" = ["shared", "local"]))]
        scope: RawText,
        /// How shared limits are counted: auto, exact or leased, as for other limits.
        #[schemars(extend("enum" = ["auto", "exact", "leased"]))]
        sync: RawText,
        /// What happens while the store fails: local (default), open or closed, as for other limits.
        #[schemars(extend("enum" = ["local", "open", "closed"]))]
        on_store_failure: RawText,
        /// The maximum number of keys of each limit. Default: 1M.
        max_keys: RawCount,
    }
}
