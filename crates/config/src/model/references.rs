//! What the limits, routes and templates of a configuration refer to, collected.

use http::HeaderName;

use crate::language::key_part::Part;
use crate::language::template::Variable;
use crate::model::Config;
use crate::model::identity_rate::RateSource;
use crate::model::key_spec::KeySpec;
use crate::model::listener::ForwardedHeader;
use crate::model::route::{Action, RouteConfig};
use crate::model::upstream::UpstreamConfig;

impl Config {
    /// The claims that keys and rates of limits and templates ask for.
    pub fn claims(&self) -> Vec<String> {
        let hashed = self.routes.iter().filter_map(|route| self.hash_key(route));
        let parts = self.limits.iter().map(|limit| &limit.key).chain(hashed).flat_map(KeySpec::parts);
        let of_keys = parts.filter_map(|part| match part {
            Part::Claim(name) => Some(name.clone()),
            _ => None,
        });
        let variables = self.routes.iter().flat_map(RouteConfig::variables);
        let of_templates = variables.filter_map(|variable| match variable {
            Variable::Claim(name) => Some(name.clone()),
            _ => None,
        });
        let rates = self.limits.iter().filter_map(|limit| limit.identity_rate.as_ref());
        let of_rates = rates.filter_map(|rate| match &rate.source {
            RateSource::Claim(name) => Some(name.clone()),
            RateSource::Metadata(_) | RateSource::Check => None,
        });
        let mut claims: Vec<String> = of_keys.chain(of_templates).chain(of_rates).collect();
        claims.sort();
        claims.dedup();
        claims
    }

    /// The headers that routes, limits and credentials are made of.
    pub fn reserved_headers(&self) -> Vec<HeaderName> {
        let keys = self
            .limits
            .iter()
            .flat_map(|limit| std::iter::once(&limit.key).chain(limit.fair.as_ref().map(|fair| &fair.by)));
        let parts =
            keys.chain(self.upstreams.iter().filter_map(UpstreamConfig::hashed_by)).flat_map(KeySpec::parts);
        let of_keys = parts.filter_map(Part::header);
        let of_costs = self.limits.iter().filter_map(|limit| limit.cost.request_header());
        let of_conditions = self.limits.iter().flat_map(|limit| &limit.when).flat_map(|when| &when.headers);
        let of_routes = self.routes.iter().flat_map(|route| &route.matches.headers);
        let mut names: Vec<HeaderName> = of_keys.chain(of_costs).cloned().collect();
        names.extend(of_conditions.chain(of_routes).map(|(name, _)| name.clone()));
        names.extend(self.api_key.source.header.clone());
        names.extend(self.token_headers().cloned());
        names.extend(self.priorities.header.clone());
        if let Some(check) = &self.check {
            names.extend(check.headers.iter().cloned());
            names.extend(check.cache.iter().flat_map(|cache| &cache.key).cloned());
        }
        if let ForwardedHeader::Single(name) = &self.client_ip.header {
            names.push(name.clone());
        }
        names.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        names.dedup();
        names
    }

    /// The headers that tokens come in.
    pub fn token_headers(&self) -> impl Iterator<Item = &HeaderName> {
        let of_jwt = self.jwt.iter().map(|jwt| &jwt.header);
        of_jwt.chain(self.introspection.iter().map(|introspection| &introspection.header))
    }

    /// The key by which requests of a route are spread over the servers of its upstream, if they are spread by a key.
    pub fn hash_key(&self, route: &RouteConfig) -> Option<&KeySpec> {
        match &route.action {
            Action::Forward { upstream, .. } => self.upstreams[upstream.index].hashed_by(),
            Action::Usage | Action::Respond { .. } | Action::Redirect { .. } => None,
        }
    }
}
