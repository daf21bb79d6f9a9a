//! `queue` of a limit, as it is written.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawCount;
use crate::raw::scalars::RawText;
use crate::read::at::At;
use crate::read::mapping;

mapping! {
    /// A queue that several gateways share, in the Redis of `store`.
    "queue.redis"
    struct RawQueueRedis {
        /// The name of the queue there. Default: that of the limit.
        stream: RawText,
    }
}

mapping! {
    /// Where requests above the limit are kept until the limit admits them.
    "queue"
    struct RawQueue {
        /// The file of the queue, which the gateway creates (SQLite). It belongs to one gateway; limits may share it.
        #[schemars(with = "Option<hints::File>")]
        file: RawText,
        /// Keeps the queue in the Redis of `store`, for all gateways that share it: {stream: orders}.
        redis: RawQueueRedis,
        /// The most requests in the queue, failed ones included. A full queue refuses. Default: 100k.
        #[schemars(extend("minimum" = 1, "maximum" = 100_000_000))]
        max_length: RawCount,
        /// The most bytes of the requests in the queue. Default: 1GiB.
        #[schemars(with = "Option<hints::Size>")]
        max_bytes: RawText,
        /// The largest body of a request that is queued; a request with a larger one is refused. Default: 64KiB.
        #[schemars(with = "Option<hints::Size>")]
        max_body: RawText,
        /// How long a request may wait, failed attempts included. Then it is not delivered any more. Default: 1h.
        #[schemars(with = "Option<hints::Duration>")]
        ttl: RawText,
        /// How often a request is sent before it counts as failed. Default: 5.
        #[schemars(extend("minimum" = 1, "maximum" = 100))]
        max_attempts: RawCount,
        /// The most requests of the queue that are being sent at a time. Default: 16.
        #[schemars(extend("minimum" = 1, "maximum" = 1_000))]
        concurrency: RawCount,
        /// How long the outcome of a request can be read. Default: 1h.
        #[schemars(with = "Option<hints::Duration>")]
        keep: RawText,
        /// key: requests of a key are delivered in the order in which they were accepted; none (default).
        #[schemars(extend("enum" = ["none", "key"]))]
        order: RawText,
        /// What becomes of a request when the queue is full: refuse (429), the default.
        #[schemars(extend("enum" = ["refuse"]))]
        on_full: RawText,
        /// Whether the credentials of requests are stored, encrypted, and sent to the upstream. Default: false.
        keep_credentials: bool,
        /// The file of the key that encrypts credentials, and keys of limits that are secret: 32 bytes. Default: FILE.key, which is
        /// created; in Redis none, and then such keys are not stored.
        #[schemars(with = "Option<hints::File>")]
        key_file: RawText,
        /// The only headers that are stored, besides Content-Type, Content-Encoding, Host and Idempotency-Key. Default: all, without
        /// credentials.
        #[schemars(with = "Option<Vec<hints::Header>>")]
        headers: Vec<At<RawText>>,
    }
}
