//! Bans: after how many refusals, and for how long.

use sluicegate_limiter::{Ban, MAX_BAN_AFTER, MAX_PERIOD, MIN_PERIOD, Span};

use super::checks::{in_range, missing, value};
use crate::Part;
use crate::language::values;
use crate::model::limit::{LimitConfig, Mode};
use crate::raw::{RawBanFields, RawLimit};
use crate::read::at::At;
use crate::read::is_wrong;
use crate::read::report::{Mistake, Report};

/// The ban of a limit. `None` if it is wrong, which is reported.
pub(super) fn ban(raw: &RawLimit, report: &mut Report) -> Option<Option<Ban>> {
    let Some(ban) = &raw.ban else {
        return (!is_wrong!(raw, ban)).then_some(None);
    };
    let RawBanFields { at, wrong, after, within, span } = &ban.value.0;
    let count = after.as_ref().map_or(Some(1), |after| in_range(after, 1..=MAX_BAN_AFTER, "after", report));
    let lasts = span.as_ref().and_then(|text| self::span(text, "a ban", report));
    if span.is_none() {
        missing(*at, "a ban", ("for", "15min"), wrong, report);
    }
    let sight = match within {
        Some(text) => self::span(text, "`within`", report),
        None if count.is_some_and(|count| count > 1) => {
            missing(*at, "a ban after several refusals", ("within", "1min"), wrong, report);
            None
        }
        None => Some(Span::ZERO), // of one refusal nothing has to be remembered
    };
    let numbers = wrong.iter().all(|field| !["after", "within", "for"].contains(field));
    Some(Some(Ban::new(count?, sight?, lasts?)?)).filter(|_| numbers)
}

fn span(text: &At<String>, what: &str, report: &mut Report) -> Option<Span> {
    value(text, report, |text| match values::span(text)? {
        span if (MIN_PERIOD..=MAX_PERIOD).contains(&span) => Ok(span),
        _ => Err(Mistake::new(format!("{what} is between 1ms and 366 days long, not {text}"))),
    })
}

/// Warns of a ban that affects all clients.
pub(super) fn warnings(name: &At<String>, limit: &LimitConfig, report: &mut Report) {
    let of_all = limit.key.parts().all(|part| matches!(part, Part::Global));
    if limit.ban.is_some() && of_all && limit.mode == Mode::Enforce {
        report.warning(
            name.problem(format!("a ban of `{}` refuses everybody", name.value))
                .help("all clients share its one key; ban on a limit with `key: ip` or a verified key"),
        );
    }
}
