//! The store as it is written.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawText;
use crate::raw::scalars::{RawCount, RawSecret};
use crate::read::at::At;
use crate::read::mapping;

mapping! {
    /// Where counters live that several gateways share.
    "store"
    struct RawStore {
        /// A Redis: one server (url), a cluster, or a master that sentinels monitor.
        #[schemars(required)]
        redis: RawRedis,
    }
}

/// A mapping that says where a Redis is, with a timeout and fields of its own.
macro_rules! redis {
    ($path:literal struct $name:ident { $(#[doc = $timeout:literal])+ timeout, $($more:tt)* }) => {
        mapping! {
            /// A Redis; one of url, cluster and sentinel.
            $path
            struct $name {
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
                $(#[doc = $timeout])+
                #[schemars(with = "Option<hints::Duration>")]
                timeout: RawText,
                /// The prefix of all keys in Redis. Default: sluicegate.
                prefix: RawText,
                $($more)*
            }
        }
    };
}

redis! {
    "store.redis"
    struct RawRedis {
        /// The longest that a request waits for a decision. Default: 50ms.
        timeout,
        /// The minimum number of gateways that share the store: while it is unavailable, each admits at most its part
        /// of a limit. Default: 1.
        gateways: RawCount,
        /// The folder in which the last known number of gateways is kept across restarts. Default: $STATE_DIRECTORY
        /// (systemd), or the folder of this file.
        state_folder: RawText,
    }
}

redis! {
    "regions.home.redis"
    struct RawHomeRedis {
        /// The longest that the gateway waits for an answer. No request waits for it. Default: 1s.
        timeout,
    }
}

mapping! {
    /// The sentinels that monitor the server.
    "store.redis.sentinel"
    struct RawSentinel {
        /// The name of the master at the sentinels.
        #[schemars(required)]
        master: RawText,
        /// The sentinels: redis://HOST:26379 or rediss://HOST:26379.
        #[schemars(required, with = "Vec<hints::Redis>")]
        nodes: Vec<At<RawText>>,
        /// The user at the sentinels themselves.
        username: RawText,
        /// The password at the sentinels themselves.
        password: RawSecret,
    }
}

mapping! {
    /// Certificates and keys: PEM files.
    "store.redis.tls"
    struct RawRedisTls {
        /// The authorities that sign the server's certificate. Default: those of the system.
        ca: RawText,
        /// The gateway's client certificate, for a server that requires one.
        cert: RawText,
        /// Its private key.
        key: RawText,
    }
}
