//! `grpc.health.v1`.

/// Asks for the health of a service.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HealthCheckRequest {
    /// The name of the service; empty for the server as a whole.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The health of a service.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HealthCheckResponse {
    /// Whether it is served.
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// Whether a service is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// Never sent.
    Unknown = 0,
    /// It is served.
    Serving = 1,
    /// It is not served now.
    NotServing = 2,
    /// There is no such service; used by `Watch` only.
    ServiceUnknown = 3,
}

impl HealthCheckResponse {
    /// The answer for a service.
    pub fn of(status: ServingStatus) -> Self {
        Self { status: status as i32 }
    }
}
