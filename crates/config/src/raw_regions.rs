//! `regions` as it is written.

use super::at::At;
#[cfg(feature = "schema")]
use super::hints;
use super::raw::RawText;
use super::raw_store::{RawRedisTls, RawSentinel};
use super::read::{Named, mapping};
use super::shorthand::{RawCount, RawSecret};

mapping! {
    /// Several regions, each with a store and gateways of its own, that divide the shared limits among them.
    "regions"
    struct RawRegions {
        /// The region of this gateway, one of `floors`; such as ${REGION}, so that all gateways have the same file.
        #[schemars(required)]
        name: RawText,
        /// The part of each shared limit that a region always has: {frankfurt: 50%, sydney: 30%}, together 100% at most.
        #[schemars(required)]
        floors: Named<At<RawText>>,
        /// The store that lends the rest of the rates to the regions that need it. Not asked by requests.
        home: RawHome,
    }
}

mapping! {
    /// The store that lends parts of rates to regions. One for all of them; it may be that of a region.
    "regions.home"
    struct RawHome {
        /// A Redis: one server (url), a cluster, or a master that sentinels monitor.
        #[schemars(required)]
        redis: RawHomeRedis,
    }
}

mapping! {
    /// A Redis; one of url, cluster and sentinel.
    "regions.home.redis"
    struct RawHomeRedis {
        /// redis://HOST:6379/0, rediss:// for TLS, redis+unix:///PATH?db=0 for a socket.
        #[schemars(with = "Option<hints::Redis>")]
        url: RawText,
        /// Some nodes of a cluster: redis://HOST:PORT or rediss://HOST:PORT. The others are discovered.
        #[schemars(with = "Option<Vec<hints::Redis>>")]
        cluster: Vec<At<RawText>>,
        /// The sentinels that monitor the server.
        sentinel: RawSentinel,
        /// The user, if it is not in the URL.
        username: RawText,
        /// The password, if it is not in the URL.
        password: RawSecret,
        /// The number of the database, if it is not in the URL. Default: 0.
        database: RawCount,
        /// Certificates, for rediss:// only.
        tls: RawRedisTls,
        /// The longest that the gateway waits for an answer. No request waits for it. Default: 1s.
        #[schemars(with = "Option<hints::Duration>")]
        timeout: RawText,
        /// The prefix of all keys in Redis. Default: sluicegate.
        prefix: RawText,
    }
}
