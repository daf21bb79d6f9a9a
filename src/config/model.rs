//! gateway.yaml as it is meant: every reference resolved, every value checked. Nothing after this file fails.

use std::path::PathBuf;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use ipnet::IpNet;
use sluicegate_limiter::{
    Ban, Concurrency, FixedWindow, LeakyBucket, Rate, SlidingLog, SlidingWindow, Span, Time, TokenBucket,
};

use super::client::ClientConfig;
use super::cors::CorsConfig;
use super::cost::Cost;
use super::drain::DrainConfig;
use super::h2::H2Config;
use super::jwt::JwtConfig;
use super::listener::{AdminConfig, ClientIpConfig, ListenerConfig};
use super::lists::ListConfig;
use super::log::{AccessLogConfig, TraceConfig};
use super::route::RouteConfig;
use super::store::RedisConfig;
use super::upstream::UpstreamConfig;
use crate::auth::Consumers;
use crate::key::KeySpec;
use crate::shape::HeaderChange;

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses that serve clients, at least one.
    pub listeners: Vec<ListenerConfig>,
    /// The address for operators.
    pub admin: Option<AdminConfig>,
    /// Who the client is.
    pub client_ip: ClientIpConfig,
    /// API keys.
    pub api_key: ApiKeyConfig,
    /// How user tokens are verified; without it there are none.
    pub jwt: Option<JwtConfig>,
    /// Where shared counters live; without it all counters are local.
    pub store: Option<RedisConfig>,
    /// The lists of addresses, in the order of the file.
    pub lists: Vec<ListConfig>,
    /// The plans that consumers can be on, because a limit names them; none if no limit has numbers for any.
    pub plans: Vec<String>,
    /// The limits, in the order of the file.
    pub limits: Vec<LimitConfig>,
    /// The upstreams, in the order of the file.
    pub upstreams: Vec<UpstreamConfig>,
    /// The routes, in the order of the file.
    pub routes: Vec<RouteConfig>,
    /// Which pages of other origins may read answers to requests that no route takes.
    pub cors: Option<Arc<CorsConfig>>,
    /// Headers of answers to requests that no route takes.
    pub answer_headers: Vec<HeaderChange>,
    /// Where a line of each request goes; without it, nowhere.
    pub access_log: Option<AccessLogConfig>,
    /// How requests find their place in a trace.
    pub trace: TraceConfig,
    /// Serving threads; `None` is one per core.
    pub workers: Option<usize>,
    /// How long clients may take, and how much they may send.
    pub client: ClientConfig,
    /// The longest request head in bytes.
    pub max_head: usize,
    /// What a connection of HTTP/2 may send; it keeps what it began with.
    pub h2: Arc<H2Config>,
    /// How it goes down.
    pub drain: DrainConfig,
}

/// API keys: where they are, and whose.
#[derive(Clone, Debug)]
pub struct ApiKeyConfig {
    /// Where a request has its key.
    pub source: ApiKeySource,
    /// The known keys; without them any key is as good as another.
    pub consumers: Option<ConsumersConfig>,
}

/// The known API keys.
#[derive(Clone, Debug)]
pub struct ConsumersConfig {
    /// The file that they stand in.
    pub file: PathBuf,
    /// Whether a request without one is answered 401.
    pub required: bool,
    /// Whether the upstream is told whose key it was.
    pub forward: bool,
    /// What the file holds.
    pub known: Arc<Consumers>,
}

/// Where the API key is.
#[derive(Clone, Debug)]
pub enum ApiKeySource {
    /// In this header.
    Header(HeaderName),
    /// In this query parameter.
    Query(String),
}

/// A limit.
#[derive(Clone, Debug)]
pub struct LimitConfig {
    /// Its name.
    pub name: String,
    /// What is counted apart.
    pub key: KeySpec,
    /// How it is counted.
    pub quota: Quota,
    /// The time zone in which its days, weeks and months begin, where the file names one.
    pub zone: Option<String>,
    /// How it is counted for those on a plan, by the plan's name.
    pub plans: Vec<(String, Quota)>,
    /// Another quota that is counted beside it and never enforced.
    pub candidate: Option<Quota>,
    /// The requests that it concerns; `None` for all.
    pub when: Option<When>,
    /// What a request spends.
    pub cost: Cost,
    /// Whether refusals lead to a ban.
    pub ban: Option<Ban>,
    /// Whether it refuses.
    pub mode: Mode,
    /// Whom it leaves alone.
    pub exempt: Exempt,
    /// What becomes of a request without the key.
    pub on_missing: OnMissing,
    /// Whether it is counted in the store, together with other gateways.
    pub shared: bool,
    /// Whether requests carry their key in full: a shared limit names it to the store, and a replay writes it.
    pub whole_key: bool,
    /// What becomes of a shared limit's requests while the store fails.
    pub on_store_failure: OnStoreFailure,
    /// Live counters it may hold.
    pub max_keys: usize,
}

/// An algorithm with its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quota {
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket, Rate, u64),
    /// See [`LeakyBucket`].
    LeakyBucket(LeakyBucket, Rate, u64),
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow, Rate),
    /// See [`SlidingLog`].
    SlidingLog(SlidingLog, Rate),
    /// See [`SlidingWindow`].
    SlidingWindow(SlidingWindow, Rate),
    /// See [`Concurrency`].
    Concurrency(Concurrency, u64),
}

/// Whether a limit refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It refuses.
    Enforce,
    /// It counts and reports what it would have refused.
    Shadow,
    /// It does nothing.
    Off,
}

/// Whom a limit leaves alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exempt {
    /// Clients at these addresses.
    pub networks: Vec<IpNet>,
    /// Clients on these lists: indices into [`Config::lists`].
    pub lists: Vec<usize>,
    /// Keys of these values; a composite key is its values joined by commas.
    pub values: Vec<String>,
    /// Consumers of these names.
    pub consumers: Vec<String>,
    /// Those on these plans.
    pub plans: Vec<String>,
}

/// The requests that a limit concerns: all that is given fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// One of these methods; empty for any.
    pub methods: Vec<Method>,
    /// These headers with these values, or with any.
    pub headers: Vec<(HeaderName, Option<HeaderValue>)>,
    /// A key of one of these values; empty for any.
    pub keys: Vec<String>,
}

/// What becomes of a request without the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// All such requests share one bucket.
    Shared,
    /// The limit does not count it.
    Skip,
    /// It is answered 401.
    Deny,
}

/// What becomes of a shared limit's requests while the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// They are counted in the process.
    #[default]
    Local,
    /// The limit admits them.
    Open,
    /// They are answered 503.
    Closed,
}

impl Quota {
    /// The word for it in the file.
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::TokenBucket(..) => "token_bucket",
            Self::LeakyBucket(..) => "leaky_bucket",
            Self::FixedWindow(..) => "fixed_window",
            Self::SlidingLog(..) => "sliding_log",
            Self::SlidingWindow(..) => "sliding_window",
            Self::Concurrency(..) => "concurrency",
        }
    }

    /// The rate's count, or the bucket's size where that is larger.
    pub fn shown(&self) -> u64 {
        self.capacity().max(self.rate().map_or(0, |rate| rate.count()))
    }

    /// The time that goes with what is [`shown`](Self::shown) at `now`: the period of the rate, the one of the calendar, or what
    /// it takes to fill a bucket that is larger than the rate's count. Concurrency has none.
    pub fn window(&self, now: Time) -> Option<Span> {
        let rate = self.rate()?;
        if let Self::FixedWindow(window, _) = self {
            return Some(window.length(now));
        }
        let fills = u128::from(self.shown()) * u128::from(rate.period().as_nanos());
        let window = fills.div_ceil(u128::from(rate.count()));
        Some(Span::from_nanos(u64::try_from(window).unwrap_or(u64::MAX)))
    }

    /// What RateLimit-Policy says is allowed in the [`window`](Self::window). That is in whole seconds there, so what fits
    /// into less than one is told per second. No key ever has more left than this.
    pub fn policy(&self) -> u64 {
        let second = u128::from(Span::SECOND.as_nanos());
        match (self.rate(), self.window(Time::EPOCH)) {
            (Some(rate), Some(window)) if window < Span::SECOND && self.shown() == rate.count() => {
                let per_second = u128::from(rate.count()) * second / u128::from(rate.period().as_nanos());
                u64::try_from(per_second).unwrap_or(u64::MAX)
            }
            _ => self.shown(),
        }
    }

    /// Whether it counts requests in flight.
    pub const fn is_concurrency(&self) -> bool {
        matches!(self, Self::Concurrency(..))
    }

    /// The rate; concurrency has none.
    pub const fn rate(&self) -> Option<Rate> {
        match self {
            Self::TokenBucket(_, rate, _)
            | Self::LeakyBucket(_, rate, _)
            | Self::FixedWindow(_, rate)
            | Self::SlidingLog(_, rate)
            | Self::SlidingWindow(_, rate) => Some(*rate),
            Self::Concurrency(..) => None,
        }
    }

    /// The time after which nothing of what was admitted counts any more, rounded up; concurrency has none.
    pub fn drain(&self) -> Option<Span> {
        let nanos = match self {
            Self::TokenBucket(_, rate, burst) | Self::LeakyBucket(_, rate, burst) => {
                let whole = u128::from(*burst) * u128::from(rate.period().as_nanos());
                whole.div_ceil(u128::from(rate.count()))
            }
            Self::FixedWindow(window, rate) => {
                window.calendar().map_or(rate.period(), |calendar| calendar.longest()).as_nanos().into()
            }
            Self::SlidingLog(_, rate) => rate.period().as_nanos().into(),
            Self::SlidingWindow(_, rate) => 2 * u128::from(rate.period().as_nanos()),
            Self::Concurrency(..) => return None,
        };
        Some(Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// The most that one request can ever spend at once.
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::TokenBucket(_, _, burst) | Self::LeakyBucket(_, _, burst) => *burst,
            Self::FixedWindow(_, rate) | Self::SlidingLog(_, rate) | Self::SlidingWindow(_, rate) => {
                rate.count()
            }
            Self::Concurrency(_, max) => *max,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluicegate_limiter::{Algorithm, MAX_COUNT};

    use super::*;

    /// The most that a key can have left, which is what one has left that was never seen.
    fn most(algorithm: &impl Algorithm) -> u64 {
        algorithm.standing(&Default::default(), Time::from_nanos(1_795_000_000_000_000_000)).remaining
    }

    proptest! {
        /// RateLimit never says that more is left than RateLimit-Policy allows.
        #[test]
        fn nobody_has_more_left_than_the_policy_says(
            (count, places, burst) in (1..=MAX_COUNT, 1..=1_000_000_u64, 1..=MAX_COUNT),
            millis in prop_oneof![1..=2_000_u64, 1..=366 * 86_400_000_u64],
            (delay, slices) in (prop::option::of(0..=100_000_u64), 1..=60_u32),
        ) {
            let period = Span::from_millis(millis);
            let (rate, few) = (Rate::new(count, period).unwrap(), Rate::new(places, period).unwrap());
            let token = TokenBucket::new(rate, burst).unwrap();
            let leaky = LeakyBucket::new(rate, burst, delay.map(Span::from_millis)).unwrap();
            let fixed = FixedWindow::new(rate);
            let log = SlidingLog::new(few, false).unwrap();
            let sliding = SlidingWindow::new(rate, slices).unwrap();
            let places = Concurrency::new(burst).unwrap();
            for (quota, most) in [
                (Quota::TokenBucket(token, rate, burst), most(&token)),
                (Quota::LeakyBucket(leaky, rate, burst), most(&leaky)),
                (Quota::FixedWindow(fixed, rate), most(&fixed)),
                (Quota::SlidingLog(log, few), most(&log)),
                (Quota::SlidingWindow(sliding, rate), most(&sliding)),
                (Quota::Concurrency(places, burst), most(&places)),
            ] {
                prop_assert!(most <= quota.shown() && quota.shown() <= quota.policy(), "{quota:?}");
            }
        }
    }

    /// A bucket that is larger than the rate's count is told with the time that fills it, anything else as the rate.
    #[test]
    fn a_policy_is_the_rate_or_the_larger_bucket() {
        for (count, millis, burst, policy, seconds) in [
            (2, 1_000, 12, 12, 6),
            (3, 1_000, 7, 7, 3),
            (10, 60_000, 25, 25, 150),
            (10, 60_000, 10, 10, 60),
            (10, 60_000, 4, 10, 60),
            (10, 500, 4, 20, 1),
            (10, 500, 12, 12, 1),
            (10, 500, 50, 50, 3),
        ] {
            let rate = Rate::new(count, Span::from_millis(millis)).unwrap();
            let quota = Quota::TokenBucket(TokenBucket::new(rate, burst).unwrap(), rate, burst);
            let told = (quota.policy(), quota.window(Time::EPOCH).unwrap().ceil_secs());
            assert_eq!(told, (policy, seconds), "{count} in {millis} ms, burst {burst}");
        }
    }
}
