//! `telemetry` as it is written.

#[cfg(feature = "schema")]
use crate::raw::hints;
use crate::raw::scalars::RawText;
use crate::raw::scalars::{RawCount, RawSecret};
use crate::read::at::At;
use crate::read::{Named, mapping};

mapping! {
    /// Traces and metrics that the gateway sends by itself.
    "telemetry"
    struct RawTelemetry {
        /// To a collector of OpenTelemetry, as OTLP/JSON over HTTP.
        #[schemars(required)]
        otlp: RawOtlp,
    }
}

mapping! {
    /// A collector of OpenTelemetry.
    "telemetry.otlp"
    struct RawOtlp {
        /// The collector: http://127.0.0.1:4318. `/v1/traces` and `/v1/metrics` are added to its path.
        #[schemars(required)]
        url: RawText,
        /// The authorities that sign its certificate: a PEM file. Default: those of the system.
        ca: RawText,
        /// Headers of each request to it, such as {Authorization: {file: otlp.token}}. Default: none.
        headers: Named<At<RawSecret>>,
        /// Whether a span is sent for each request of a sampled trace. Default: true.
        traces: bool,
        /// Whether metrics are sent. Default: true.
        metrics: bool,
        /// How often metrics are sent. Default: 60s.
        #[schemars(with = "Option<hints::Duration>")]
        interval: RawText,
        /// How long an answer may take. Default: 10s.
        #[schemars(with = "Option<hints::Duration>")]
        timeout: RawText,
        /// The name of the gateway there. Default: sluicegate.
        service_name: RawText,
        /// The number of spans that may wait; further ones are dropped and counted. Default: 2048.
        #[schemars(extend("minimum" = 64, "maximum" = 1_000_000))]
        queue: RawCount,
    }
}
