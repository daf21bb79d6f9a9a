//! The names of a configuration that log lines and spans have.

use std::sync::Arc;

use sluicegate_config::{Config, PathPattern};

/// The names of the routes, limits, upstreams and listeners of a configuration, in the order of the file. Requests that end long
/// after a reload are logged with the names of the configuration that they were served under, and keep nothing else of it.
#[derive(PartialEq, Eq)]
pub struct Names {
    limits: Vec<String>,
    routes: Vec<String>,
    /// The patterns of the paths of each route.
    paths: Vec<Vec<PathPattern>>,
    upstreams: Vec<String>,
    listeners: Vec<String>,
}

impl Names {
    /// The names of a configuration; those of the configuration `before` if they are the same.
    pub fn next(config: &Config, before: Option<&Arc<Self>>) -> Arc<Self> {
        let names = Self {
            limits: config.limits.iter().map(|limit| limit.name.clone()).collect(),
            routes: config.routes.iter().map(|route| route.name.clone()).collect(),
            paths: config.routes.iter().map(|route| route.matches.paths.patterns.clone()).collect(),
            upstreams: config.upstreams.iter().map(|upstream| upstream.name.clone()).collect(),
            listeners: config.listeners.iter().map(|listener| listener.name.clone()).collect(),
        };
        let same = before.filter(|before| ***before == names);
        same.map_or_else(|| Arc::new(names), Arc::clone)
    }

    /// The name of a limit.
    pub fn limit(&self, index: usize) -> &str {
        &self.limits[index]
    }

    /// The name of a route.
    pub fn route(&self, index: usize) -> &str {
        &self.routes[index]
    }

    /// The patterns of the paths of a route.
    pub fn paths(&self, index: usize) -> &[PathPattern] {
        &self.paths[index]
    }

    /// The name of an upstream.
    pub fn upstream(&self, index: usize) -> &str {
        &self.upstreams[index]
    }

    /// The name of a listener, if the configuration has it: a connection may be older.
    pub fn listener(&self, index: usize) -> Option<&str> {
        self.listeners.get(index).map(String::as_str)
    }
}
