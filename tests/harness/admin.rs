//! The admin API of a gateway, as tests use it.

use super::client::Client;
use super::gateway::{Gateway, TOKEN};
use super::message::Response;
use super::prometheus::Scrape;
use super::until;

impl Gateway {
    /// A request to the admin API.
    #[track_caller]
    pub fn admin(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Response {
        let host = [("host", "localhost")];
        Client::connect(self.admin).ask(method, target, &[&host, headers].concat())
    }

    #[track_caller]
    pub fn admin_get(&self, target: &str) -> Response {
        self.admin("GET", target, &[])
    }

    /// A change through the admin API, with the token.
    #[track_caller]
    pub fn admin_change(&self, method: &str, target: &str) -> Response {
        self.admin(method, target, &[("authorization", &format!("Bearer {TOKEN}"))])
    }

    /// Writes something through the admin API, with the token.
    #[track_caller]
    pub fn admin_put(&self, target: &str, body: &str) -> Response {
        self.admin_write("PUT", target, body)
    }

    #[track_caller]
    pub fn admin_post(&self, target: &str, body: &str) -> Response {
        self.admin_write("POST", target, body)
    }

    #[track_caller]
    fn admin_write(&self, method: &str, target: &str, body: &str) -> Response {
        let (token, length) = (format!("Bearer {TOKEN}"), body.len().to_string());
        let mut client = Client::connect(self.admin);
        let headers = [("host", "localhost"), ("authorization", &*token), ("content-length", &*length)];
        client.request(method, target, &headers).send(body);
        client.response()
    }

    /// The remaining units of a key. The gateway asks the store for them, but not for longer than a second.
    #[track_caller]
    pub fn remaining(&self, limit: &str, key: &str) -> u64 {
        until("the remaining units of a key", || {
            self.admin_get(&format!("/limits/{limit}/keys/{key}")).json()["remaining"].as_u64()
        })
    }

    /// A scrape.
    #[track_caller]
    pub fn metrics(&self) -> Scrape {
        let answer = self.admin_get("/metrics");
        assert_eq!(answer.status, 200);
        Scrape::parse(&answer.text()).unwrap_or_else(|error| panic!("{error} in\n{}", answer.text()))
    }

    /// One value of a scrape; 0 if it is missing.
    #[track_caller]
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.metrics().value(name, labels)
    }

    /// The generation of the configuration in force.
    #[track_caller]
    pub fn generation(&self) -> u64 {
        self.admin_get("/status").json()["generation"].as_u64().unwrap()
    }
}
