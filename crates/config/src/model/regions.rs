//! Several regions that divide the shared limits among them.

use serde::{Serialize, Serializer};
use sluicegate_limiter::{Division, Quota};

use crate::model::cost::Cost;
use crate::model::limit::LimitConfig;
use crate::model::store::RedisConfig;

/// A whole, in the unit of parts.
pub const WHOLE: u32 = 1_000_000;

/// The regions, and the one that the gateway is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionsConfig {
    /// The region of the gateway.
    pub name: String,
    /// What each region always has of each shared limit, in millionths; together at most [`WHOLE`].
    #[serde(serialize_with = "floors")]
    pub floors: Vec<(String, u32)>,
    /// The store that lends the rest.
    pub home: Option<RedisConfig>,
}

impl RegionsConfig {
    /// What the gateway's region always has, in millionths.
    pub fn floor(&self) -> u32 {
        self.floors.iter().find(|(name, _)| *name == self.name).map_or(0, |(_, floor)| *floor)
    }

    /// What all regions always have.
    fn floors(&self) -> u32 {
        self.floors.iter().map(|(_, floor)| floor).sum()
    }

    /// What is lent, in millionths.
    pub fn pool(&self) -> u32 {
        if self.home.is_some() { WHOLE - self.floors() } else { 0 }
    }

    /// How a limit is divided while the region has this part of its rate.
    pub fn division(&self, rate: u32) -> Division {
        let size = match self.home {
            // What is not lent is divided like the floors, so that nothing is left over.
            Some(_) => u64::from(self.floor()) * u64::from(WHOLE) / u64::from(self.floors().max(1)),
            None => self.floor().into(),
        };
        Division { rate, size: size as u32 } // at most a whole
    }
}

impl LimitConfig {
    /// Whether the part of a region can change: only the rate of buckets is lent.
    pub fn is_lent(&self) -> bool {
        self.shared && matches!(self.quota, Quota::TokenBucket(..) | Quota::LeakyBucket(..))
    }

    /// Checks that each region can admit requests with its part of a quota of this limit.
    ///
    /// # Errors
    /// Why the quota cannot be divided.
    pub(crate) fn check_parts(&self, quota: &Quota) -> Result<(), String> {
        let Some((region, division)) = self.smallest_region.as_deref() else { return Ok(()) };
        let cost = match self.cost {
            Cost::Constant(cost) => cost,
            _ => 1,
        };
        match division.of(quota) {
            Some(part) if !part.fits_store() => Err(format!(
                "too slow to be divided: in region {region} the whole burst takes more than 199 years to come back"
            )),
            Some(part) if part.capacity() >= cost => Ok(()),
            _ => Err(format!("too small to be divided: region {region} could never admit a request")),
        }
    }

    /// What the gateway's region enforces of a quota of this limit, which [`with_numbers`](Self::with_numbers) or the
    /// validation of the file has found large enough to be divided.
    pub fn of_region(&self, quota: Quota) -> Quota {
        let part = self.division.filter(|_| self.shared).map(|division| division.of(&quota));
        debug_assert_ne!(part, Some(None), "nobody has checked whether {quota:?} can be divided");
        part.flatten().unwrap_or(quota)
    }

    /// The limit with the numbers that the gateway's region enforces while it has this part.
    #[must_use]
    pub fn in_region(&self, division: Option<Division>) -> Self {
        let mut limit = Self { division, ..self.clone() };
        if division.is_some() && self.shared {
            limit.quota = limit.of_region(self.quota);
            limit.plans =
                self.plans.iter().map(|(name, quota)| (name.clone(), limit.of_region(*quota))).collect();
            limit.candidate = self.candidate.map(|quota| limit.of_region(quota));
        }
        limit
    }
}

fn floors<S: Serializer>(floors: &[(String, u32)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(floors.iter().map(|(name, floor)| (name, format!("{}%", f64::from(*floor) / 1e4))))
}
