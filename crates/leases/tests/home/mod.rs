//! What the script `shares.lua` does in the home store, for one limit. The simulation uses it; another test compares both.

use std::collections::{BTreeMap, HashMap};

pub(crate) const WHOLE: u32 = 1_000_000;
const SMALL: u32 = 10_000;
const WANTS: u64 = 30_000;
const GAP: u64 = 5_000;

#[derive(Clone, Debug)]
struct Known {
    ends: u64,
    question: u64,
    applied: u32,
    reply: u32,
    demand: u64,
    wanted: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Home {
    last: u64,
    learn: u64,
    granted: HashMap<String, u32>,
    gateways: BTreeMap<(String, String), Known>,
}

/// What a gateway says.
#[derive(Clone, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) region: &'a str,
    pub(crate) gateway: &'a str,
    pub(crate) question: u64,
    pub(crate) applied: u32,
    pub(crate) demand: u64,
    pub(crate) refused: u64,
}

impl Home {
    /// Times are in milliseconds.
    pub(crate) fn lend(
        &mut self,
        now: u64,
        life: u64,
        floors: &[(String, u32)],
        asked: &Asked<'_>,
    ) -> Option<u32> {
        let name = (asked.region.to_owned(), asked.gateway.to_owned());
        let own = self.gateways.remove(&name);
        self.gateways.retain(|_, known| known.ends >= now);
        if let Some(own) = own.as_ref().filter(|own| own.question >= asked.question) {
            self.gateways.insert(name, own.clone());
            return None;
        }
        if self.last == 0 || now < self.last || now - self.last > GAP {
            self.learn = now + life;
        }
        let mut me = Known {
            ends: now + life,
            question: asked.question,
            applied: asked.applied,
            reply: 0,
            demand: asked.demand,
            wanted: if asked.refused > 0 { now } else { own.map_or(0, |own| own.wanted) },
        };
        let floor_of =
            |region: &str| floors.iter().find(|(name, _)| name == region).map_or(0, |(_, floor)| *floor);
        let mut booked: BTreeMap<&str, u32> =
            floors.iter().map(|(name, floor)| (name.as_str(), *floor)).collect();
        let mut demand: BTreeMap<&str, u64> = BTreeMap::new();
        let mut wants: BTreeMap<&str, bool> = BTreeMap::new();
        let mine = std::iter::once((asked.region, &me));
        for (region, known) in
            self.gateways.iter().map(|((region, _), known)| (region.as_str(), known)).chain(mine)
        {
            let part = booked.entry(region).or_default();
            *part = (*part).max(known.applied).max(known.reply);
            *demand.entry(region).or_default() += known.demand;
            if known.wanted > 0 && now - known.wanted.min(now) < WANTS {
                wants.insert(region, true);
            }
        }
        let others: u32 =
            booked.iter().filter(|(region, _)| **region != asked.region).map(|(_, part)| part).sum();
        let weigh = |region: &str| demand.get(region).copied().unwrap_or(0).max(1);
        let weight: u64 = wants.keys().map(|region| weigh(region)).sum();
        let floor = floor_of(asked.region);
        if now < self.learn {
            me.reply = asked.applied.max(floor);
        } else {
            let pool = WHOLE - floors.iter().map(|(_, floor)| floor).sum::<u32>();
            let granted = self.granted.get(asked.region).copied().unwrap_or(booked[asked.region]);
            let mut current = granted.min(WHOLE.saturating_sub(others)).max(floor);
            let mut target = current;
            if weight > 0 {
                target = floor;
                if wants.contains_key(asked.region) {
                    target += (f64::from(pool) * weigh(asked.region) as f64 / weight as f64).floor() as u32;
                }
            }
            if target < current && (current - target >= SMALL || target == floor) {
                current = target.max(floor);
            } else if target > current {
                let most = target.min(WHOLE.saturating_sub(others));
                if most.saturating_sub(current) >= SMALL {
                    current = most;
                }
            }
            me.reply = current;
            self.granted.insert(asked.region.to_owned(), current);
        }
        self.last = now;
        let reply = me.reply;
        self.gateways.insert(name, me);
        Some(reply)
    }
}
