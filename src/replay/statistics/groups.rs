//! What routes, plans and consumers would feel.

use std::collections::BTreeMap;

/// The most names of a kind; the requests of further ones are counted under this name.
const MOST: usize = 1_000;
const OTHER: &str = "(others)";

/// The requests of one route, plan or consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// All of them.
    pub requests: u64,
    /// Those that were refused.
    pub refused: u64,
}

/// Requests by route, plan and consumer.
#[derive(Debug, Default)]
pub struct Groups {
    /// By route.
    pub routes: BTreeMap<Box<str>, Group>,
    /// By plan, of those that have one.
    pub plans: BTreeMap<Box<str>, Group>,
    /// By consumer, of those that are known.
    pub consumers: BTreeMap<Box<str>, Group>,
}

impl Groups {
    /// Counts a request.
    pub fn add(&mut self, route: &str, (plan, consumer): (Option<&str>, Option<&str>), refused: bool) {
        add(&mut self.routes, route, refused);
        plan.into_iter().for_each(|plan| add(&mut self.plans, plan, refused));
        consumer.into_iter().for_each(|consumer| add(&mut self.consumers, consumer, refused));
    }
}

fn add(groups: &mut BTreeMap<Box<str>, Group>, name: &str, refused: bool) {
    let name = if groups.len() < MOST || groups.contains_key(name) { name } else { OTHER };
    if !groups.contains_key(name) {
        groups.insert(name.into(), Group::default());
    }
    let Some(group) = groups.get_mut(name) else { return };
    group.requests += 1;
    group.refused += u64::from(refused);
}
