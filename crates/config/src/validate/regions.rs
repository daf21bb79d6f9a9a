//! Validates `regions`.

use super::checks::{between, check_name, missing, value};
use super::share::share;
use super::store;
use std::sync::Arc;
use std::time::Duration;

use crate::model::limit::LimitConfig;
use crate::model::regions::{RegionsConfig, WHOLE};
use crate::model::store::RedisConfig;
use crate::raw::regions::RawRegions;
use crate::raw::store::{RawHomeRedis, RawRedis};
use crate::read::at::{At, Folder};
use crate::read::is_wrong;
use crate::read::report::{Mistake, Place, Problem, Report};

/// The most regions.
const MOST: usize = 64;
/// No request waits for the home store, which is far away.
const HOME_TIMEOUT: Duration = Duration::from_secs(1);
const EXAMPLE: &str = "{frankfurt: 50%, sydney: 30%}";

pub(super) fn regions(
    At { at, value: raw }: &At<RawRegions>,
    has_store: bool,
    folder: Folder<'_>,
    report: &mut Report,
) -> Option<RegionsConfig> {
    if !has_store {
        let problem = Problem::new(*at, "`regions` divides the limits in the store, and there is no `store`");
        report.error(problem.help("add the store of this region, or remove `regions`"));
    }
    let home = raw.home.as_ref().map(|home| {
        let Some(At { at, value: redis }) = &home.value.redis else {
            missing(
                home.at,
                "`regions.home`",
                ("redis", "{url: redis://10.0.0.5}"),
                &home.value.wrong,
                report,
            );
            return None;
        };
        let config = store::redis(&At { at: *at, value: as_store(redis) }, folder, report)?;
        let bounds = [(Duration::from_millis(10), "10ms"), (Duration::from_secs(5), "5s")];
        let timeout = redis
            .timeout
            .as_ref()
            .map_or(Some(HOME_TIMEOUT), |text| between(text, "timeout", bounds[0], bounds[1], report));
        Some(RedisConfig { timeout: timeout?, ..config })
    });
    let own = raw.name.as_ref();
    if own.is_none() {
        missing(*at, "`regions`", ("name", "${REGION}"), &raw.wrong, report);
    }
    let Some(written) = &raw.floors else {
        missing(*at, "`regions`", ("floors", EXAMPLE), &raw.wrong, report);
        return None;
    };
    let mut floors = Vec::new();
    for (region, floor) in &written.value.0 {
        check_name(region, "region", report);
        let floor = floor.as_ref().and_then(|text| value(text, report, floor_of));
        floors.extend(floor.map(|floor| (region.value.clone(), floor)));
    }
    if floors.len() < written.value.0.len() {
        return None; // reported
    }
    if floors.is_empty() || floors.len() > MOST {
        let problem = Problem::new(written.at, format!("`floors` names 1 to {MOST} regions"));
        report.error(problem.help(format!("such as {EXAMPLE}")));
        return None;
    }
    let sum: u64 = floors.iter().map(|(_, floor)| u64::from(*floor)).sum();
    if sum > WHOLE.into() {
        let problem = Problem::new(written.at, format!("together the floors are {}%", sum as f64 / 1e4));
        report.error(problem.help("100% at most: more would admit more than the limits say"));
        return None;
    }
    if sum < WHOLE.into() && raw.home.is_none() && !is_wrong!(raw, home) {
        let left = f64::from(WHOLE - sum as u32) / 1e4;
        let problem = Problem::new(written.at, format!("no region has the other {left}% of each limit"));
        report.warning(problem.help("name `home`, a store that lends them, or raise the floors"));
    }
    let own = own?;
    if !floors.iter().any(|(region, _)| *region == own.value) {
        let problem = own.problem(format!("`floors` has no region `{}`", own.value));
        report.error(problem.help(format!("add it: {{{}: 30%}}", own.value)));
        return None;
    }
    let home = match home {
        None => None,
        Some(home) => Some(home?),
    };
    Some(RegionsConfig { name: own.value.clone(), floors, home })
}

/// The same as the store of a configuration, but for the timeout, which means something else there.
fn as_store(home: &RawHomeRedis) -> RawRedis {
    let home = home.clone();
    RawRedis {
        wrong: home.wrong,
        url: home.url,
        cluster: home.cluster,
        sentinel: home.sentinel,
        username: home.username,
        password: home.password,
        database: home.database,
        tls: home.tls,
        prefix: home.prefix,
        ..RawRedis::empty(home.at)
    }
}

/// Divides the limits.
pub(super) fn divide(config: &RegionsConfig, at: Place, limits: &mut [LimitConfig], report: &mut Report) {
    let own = config.division(config.floor());
    // What fits the region with the smallest floor fits all.
    let Some((region, floor)) = config.floors.iter().min_by_key(|(_, floor)| *floor) else { return };
    let of_smallest = RegionsConfig { name: region.clone(), ..config.clone() }.division(*floor);
    let smallest = Arc::new((region.clone(), of_smallest));
    for limit in limits.iter_mut().filter(|limit| limit.shared) {
        limit.division = Some(own);
        limit.smallest_region = Some(Arc::clone(&smallest));
        let mut quotas = std::iter::once(&limit.quota)
            .chain(limit.plans.iter().map(|(_, quota)| quota))
            .chain(&limit.candidate);
        if let Err(why) = quotas.try_for_each(|quota| limit.check_parts(quota)) {
            let problem = Problem::new(at, format!("limit {} is {why}", limit.name));
            report.error(problem.help(
                "raise the limit or the floor, change its burst or period, or count it in each gateway: `scope: local`",
            ));
        }
    }
}

/// `50%`.
fn floor_of(text: &str) -> Result<u32, Mistake> {
    match share(text)?.as_millionths() {
        0 => Err(Mistake::new("a region needs a part that it always has").help("such as 10%")),
        floor => Ok(floor),
    }
}
