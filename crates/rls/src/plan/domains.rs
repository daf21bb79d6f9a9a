//! The domains of all files, and the plan of a request.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::descriptors::{Amount, Domain, Rule, counter_key};
use crate::wire::decode;
use crate::wire::ratelimit::{RateLimitDescriptor, RateLimitRequest, Unit};
use crate::wire::status::Status;

/// The domains of all files.
#[derive(Clone, Debug, Default)]
pub struct Domains {
    domains: Vec<Domain>,
    /// The index of each domain and of its first rule.
    names: HashMap<String, (usize, usize)>,
    rules: Vec<Rule>,
}

/// What has to be decided for a request.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    pub(super) request: &'a RateLimitRequest,
    pub(super) domains: &'a Domains,
    /// Whether a file has the domain. Without one no limit applies.
    pub known_domain: bool,
    /// What becomes of each descriptor, in their order.
    pub descriptors: Vec<Planned>,
    /// What has to be decided. All of it belongs to one request.
    pub asks: Vec<Ask>,
}

/// What becomes of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// No limit applies to it.
    NoMatch,
    /// Its limit was replaced by that of another descriptor.
    Replaced,
    /// It has a limit without an end.
    Unlimited,
    /// It is decided: an index of [`Plan::asks`].
    Asked(usize),
}

/// A limit that has to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The index of its descriptor.
    pub descriptor: usize,
    /// The limit.
    pub limit: AskedLimit,
    /// What the limit counts apart: a text that is the same for the same entries.
    pub key: String,
    /// What is to be counted.
    pub hits: Hits,
}

/// The limit of an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedLimit {
    /// One of the files: an index of [`Domains::rules`], and never an unlimited one.
    Rule(usize),
    /// One that the request carries.
    Override {
        /// Hits per unit.
        requests_per_unit: u32,
        /// Never [`Unit::Unknown`].
        unit: Unit,
    },
}

/// What a request counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hits {
    /// How many. 0 counts nothing, and is refused only if the count is above the limit already.
    pub count: u64,
    /// Whether they are given back.
    pub negative: bool,
}

impl Domains {
    /// Brings the domains of all files together.
    ///
    /// # Errors
    /// Two have the same name: it is returned.
    pub fn new(domains: Vec<Domain>) -> Result<Self, String> {
        let (mut names, mut rules) = (HashMap::new(), Vec::new());
        for (index, domain) in domains.iter().enumerate() {
            if names.insert(domain.name().to_owned(), (index, rules.len())).is_some() {
                return Err(domain.name().to_owned());
            }
            rules.extend_from_slice(domain.rules());
        }
        Ok(Self { domains, names, rules })
    }

    /// The rules of all domains, in the order of the files. The path of a rule is its name over reloads.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The domain with a name.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.names.get(name).map(|(index, _)| &self.domains[*index])
    }

    /// The limits that apply to a request.
    ///
    /// # Errors
    /// The request exceeds a bound of [`decode`], or carries a limit with a unit that does not exist.
    pub fn plan<'a>(&'a self, request: &'a RateLimitRequest) -> Result<Plan<'a>, Status> {
        decode::check(request)?;
        let count = request.descriptors.len();
        let mut plan = Plan {
            request,
            domains: self,
            known_domain: false,
            descriptors: vec![Planned::NoMatch; count],
            asks: Vec::with_capacity(count),
        };
        let Some((domain, first)) = self.names.get(&request.domain) else { return Ok(plan) };
        plan.known_domain = true;
        let mut replaced: Vec<&str> = Vec::new();
        for index in 0..count {
            plan.descriptors[index] = match self.ask(&self.domains[*domain], *first, request, index)? {
                None => Planned::NoMatch,
                Some(ask) => {
                    let rule = ask.rule().map(|rule| &self.rules[rule]);
                    replaced.extend(rule.iter().flat_map(|rule| &rule.replaces).map(String::as_str));
                    match rule.map(|rule| rule.amount) {
                        Some(Amount::Unlimited) => Planned::Unlimited,
                        _ => {
                            plan.asks.push(ask);
                            Planned::Asked(plan.asks.len() - 1)
                        }
                    }
                }
            };
        }
        if !replaced.is_empty() {
            plan.replace(&replaced);
        }
        Ok(plan)
    }

    /// What a descriptor asks, also of an unlimited limit.
    fn ask(
        &self,
        domain: &Domain,
        first: usize,
        request: &RateLimitRequest,
        index: usize,
    ) -> Result<Option<Ask>, Status> {
        let descriptor = &request.descriptors[index];
        let entries: Vec<(Cow<'_, str>, Cow<'_, str>)> =
            descriptor.entries.iter().map(|entry| (entry.key(), entry.value())).collect();
        let (limit, key) = match &descriptor.limit {
            Some(limit) => {
                let unit = Unit::try_from(limit.unit).unwrap_or(Unit::Unknown);
                if unit == Unit::Unknown {
                    let text =
                        format!("the limit of a descriptor has the unit {}, which is none", limit.unit);
                    return Err(Status::invalid(text));
                }
                let limit = AskedLimit::Override { requests_per_unit: limit.requests_per_unit, unit };
                let entries = entries.iter().map(|(key, value)| (&**key, &**value));
                (limit, counter_key(domain.name(), entries))
            }
            None => match domain.find(&entries) {
                Some(found) => (AskedLimit::Rule(first + found.rule), found.key),
                None => return Ok(None),
            },
        };
        Ok(Some(Ask { descriptor: index, limit, key, hits: Hits::of(request, descriptor) }))
    }
}

impl Plan<'_> {
    /// Removes the limits with these names.
    fn replace(&mut self, names: &[&str]) {
        let rules = &self.domains.rules;
        let asks = std::mem::take(&mut self.asks);
        for ask in asks {
            let name = ask.rule().map_or("", |rule| rules[rule].name.as_str());
            let descriptor = ask.descriptor;
            self.descriptors[descriptor] = if !name.is_empty() && names.contains(&name) {
                Planned::Replaced
            } else {
                self.asks.push(ask);
                Planned::Asked(self.asks.len() - 1)
            };
        }
    }
}

impl Ask {
    /// The rule that is asked; none for a limit that the request carries.
    pub fn rule(&self) -> Option<usize> {
        match self.limit {
            AskedLimit::Rule(rule) => Some(rule),
            AskedLimit::Override { .. } => None,
        }
    }
}

impl Hits {
    /// The hits of a descriptor: its own, else those of the request, where 0 means 1.
    fn of(request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> Self {
        let count = match descriptor.hits_addend {
            Some(own) => own.value,
            None => u64::from(request.hits_addend.max(1)),
        };
        Self { count, negative: descriptor.is_negative_hits }
    }
}
