//! Several gateways with one store.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::load::{Load, admitted};
use super::prometheus::Family;
use super::{Gateway, Setup, in_parallel, patience, until, within};

/// Gateways with the same file. They are killed when this is dropped.
pub struct Fleet(Vec<Gateway>);

impl Fleet {
    /// Starts `count` gateways in parallel and waits until each has the store and knows all the others.
    #[track_caller]
    pub fn start(count: usize, yaml: &str) -> Self {
        let fleet = Self::cold(count, yaml);
        fleet.up();
        fleet
    }

    /// Starts `count` gateways without waiting for the store.
    #[track_caller]
    pub fn cold(count: usize, yaml: &str) -> Self {
        Self::of((0..count).map(|_| Setup::default()).collect(), yaml)
    }

    /// Starts these gateways.
    #[track_caller]
    pub fn of(setups: Vec<Setup>, yaml: &str) -> Self {
        let setups: Vec<_> = setups.into_iter().map(|setup| std::sync::Mutex::new(Some(setup))).collect();
        Self(in_parallel(setups.len(), |index| setups[index].lock().unwrap().take().unwrap().start(yaml)))
    }

    /// Waits until one gateway has the store.
    #[track_caller]
    pub fn up_of(gateway: &Gateway) {
        until("the gateway has the store", || has_store(gateway).then_some(()));
    }

    /// Waits until each gateway has the store and knows all the others.
    #[track_caller]
    pub fn up(&self) {
        until("every gateway has the store and knows the others", || {
            self.iter().all(|gateway| knows(gateway, self.len())).then_some(())
        });
    }

    /// Asserts that all gateways have the store again within this time.
    #[track_caller]
    pub fn up_within(&self, limit: Duration) {
        let up = within(limit, || self.iter().all(has_store).then_some(()));
        assert!(
            up.is_some(),
            "a gateway is without the store after {limit:?}: {:?}",
            self.statuses_of_store()
        );
    }

    /// Waits until every gateway has noticed that the store is away.
    #[track_caller]
    pub fn down(&self) {
        until("every gateway knows that the store is away", || (!self.iter().any(has_store)).then_some(()));
    }

    fn statuses_of_store(&self) -> Vec<serde_json::Value> {
        self.iter().map(|gateway| gateway.admin_get("/status").json()["store"].clone()).collect()
    }

    /// The sum of a metric over all gateways.
    #[track_caller]
    pub fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> f64 {
        self.iter().map(|gateway| gateway.metric(metric, labels)).sum()
    }

    /// Decisions of a limit on all gateways together.
    #[track_caller]
    pub fn decisions(&self, limit: &str, outcome: &str) -> f64 {
        self.sum("sluicegate_limit_decisions_total", &[("limit", limit), ("outcome", outcome)])
    }

    /// How many requests were decided without the store.
    #[track_caller]
    pub fn fallbacks(&self) -> f64 {
        let family = |gateway: &Gateway| gateway.metrics().families.remove("sluicegate_store_fallback_total");
        let sum = |family: Family| family.samples.iter().map(|sample| sample.value).sum::<f64>();
        self.iter().filter_map(family).map(sum).sum()
    }

    /// Asserts that exactly `limit` requests for a new key pass. The first gateway alone takes more than its share,
    /// which it could not have if each gateway counted for itself.
    ///
    /// On a machine so busy that the store does not answer within its timeout, gateways count by themselves meanwhile.
    /// Then nothing can be said of this key, and others are tried for a minute.
    #[track_caller]
    pub fn exactly(&self, limit: usize, target: &str, key: &str) {
        let (most, mut number) = (limit * 7 / 10, 0);
        let tried = within(patience(60), || {
            number += 1;
            let name = if number == 1 { key.to_owned() } else { format!("{key}-{number}") };
            let load = |gateways: &[Gateway]| Load::on(gateways, 64).target(target).keys(&[name.as_str()]);
            let before = self.fallbacks();
            let passed = (admitted(&load(&self[..1]).send(most)), admitted(&load(self).send(limit * 3)));
            if self.fallbacks() == before {
                return Some((name, passed));
            }
            println!("{name}: the store answered too late; another key is tried");
            self.settle(target);
            None
        });
        let Some((name, passed)) = tried else { panic!("{key}: the store answers too late all the time") };
        assert_eq!(passed.0, most, "{name}: one gateway has what it asks for");
        assert_eq!(passed.1, limit - most, "{name}: all have the rest");
        assert_eq!(self.sum("sluicegate_store_disagreements_total", &[]), 0.0, "scripts decide as the core");
    }

    /// Waits until no worker decides without the store. Each finds out by itself that it is there again, or elsewhere.
    #[track_caller]
    pub fn settle(&self, target: &str) {
        let mut round = 0;
        let settled = within(patience(60), || {
            round += 1; // a key that is refused is remembered, and the store is not asked for it
            let keys: Vec<String> = (0..128).map(|number| format!("settling-{round}-{number}")).collect();
            let before = self.fallbacks();
            Load::on(self, 64)
                .target(target)
                .keys(&keys.iter().map(String::as_str).collect::<Vec<_>>())
                .send(128);
            (self.fallbacks() == before && self.iter().all(has_store)).then_some(())
        });
        assert!(settled.is_some(), "some worker decides without the store: {:?}", self.statuses_of_store());
    }

    /// One request for this key on each gateway in turn: the statuses.
    #[track_caller]
    pub fn in_turn(&self, count: usize, key: &str) -> Vec<u16> {
        let mut clients: Vec<_> = self.iter().map(Gateway::client).collect();
        let all = clients.len();
        (0..count).map(|at| clients[at % all].ask("GET", "/", &[("x-api-key", key)]).status).collect()
    }
}

/// Whether a gateway has its store.
pub fn has_store(gateway: &Gateway) -> bool {
    gateway.metric("sluicegate_store_up", &[]) == 1.0
}

/// Whether a gateway has its store and knows of this number of gateways, itself included.
pub fn knows(gateway: &Gateway, gateways: usize) -> bool {
    let store = &gateway.admin_get("/status").json()["store"];
    store["up"] == true && store["gateways"] == gateways
}

/// The configuration of limits, and of one route with them that answers without an upstream.
pub fn route(limits: &str, text: &str) -> String {
    format!(
        "limits:\n{text}\nroutes:\n  - name: all\n    match: {{path: /*}}\n    \
         respond: {{status: 200, body: \"here\\n\"}}\n    limits: [{limits}]\n"
    )
}

/// The configuration of one limit `l` by API key on all requests.
pub fn limit(text: &str) -> String {
    route("l", &format!("  l: {{key: api_key, {text}}}"))
}

impl Deref for Fleet {
    type Target = Vec<Gateway>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Fleet {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
