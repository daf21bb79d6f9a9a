//! The state of a listener for new connections: TLS, PROXY headers, and the limits of open connections.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate_auth::client_address::trusts;
use sluicegate_auth::lists::AddressList;
use sluicegate_base::tls::{ListenerFiles, ServerTls};
use sluicegate_config::{ClientIpConfig, ListenerConfig};
use sluicegate_route::keys::mask;

/// The default for open connections of one client address: a tenth of the default of a listener. One client cannot occupy
/// a listener, and a large network behind one address is still served.
pub const PER_ADDRESS: u64 = 1_000;
/// Shards of the counters of addresses, with a lock each.
const SHARDS: usize = 16;

/// The state of a listener for new connections. Immutable; a reload makes another.
pub struct ListenerState {
    /// The TLS configuration; `None` without TLS.
    pub tls: Option<Arc<ServerTls>>,
    /// Whether connections begin with a PROXY header.
    pub proxy_protocol: bool,
    /// The most open connections.
    pub most: i64,
    id: String,
    per_address: u32,
    /// Whether loopback addresses are not limited: they are local proxies and tunnels, or the operator.
    exempts_loopback: bool,
    addresses: Arc<Addresses>,
}

/// The open connections of each address.
#[derive(Default)]
struct Addresses {
    shards: [Mutex<HashMap<IpAddr, u32>>; SHARDS],
    hasher: RandomState,
}

/// Counts a connection of an address until it is dropped.
pub struct AddressGuard {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

/// Counts one until it is dropped.
pub struct CountGuard(Arc<AtomicI64>);

impl ListenerState {
    /// The states of all listeners of a configuration. `files` are their loaded files. Counters and TLS session caches of
    /// `before` are kept.
    pub fn all(
        listeners: &[ListenerConfig],
        files: &[Option<ListenerFiles>],
        before: Option<&[Arc<Self>]>,
    ) -> Vec<Arc<Self>> {
        let before = |id: &str| before?.iter().find(|state| state.id == id);
        let state =
            |(listener, files): (&ListenerConfig, &Option<ListenerFiles>)| {
                let id = listener.id();
                let old = before(&id);
                let per_address = listener.max_connections_per_ip;
                Arc::new(Self {
                    tls: listener.tls.as_ref().zip(files.as_ref()).map(|(tls, files)| {
                        ServerTls::next(tls, files, old.and_then(|old| old.tls.as_ref()))
                    }),
                    proxy_protocol: listener.proxy_protocol,
                    most: i64::try_from(listener.max_connections).unwrap_or(i64::MAX),
                    per_address: u32::try_from(per_address.unwrap_or(PER_ADDRESS)).unwrap_or(u32::MAX),
                    exempts_loopback: per_address.is_none(),
                    addresses: old.map(|old| Arc::clone(&old.addresses)).unwrap_or_default(),
                    id,
                })
            };
        listeners.iter().zip(files).map(state).collect()
    }

    /// Counts a connection from `address`. `None` if the address is exempt: trusted proxies are, because their clients share it.
    ///
    /// # Errors
    /// If the address is at its connection limit.
    pub fn acquire(
        &self,
        address: IpAddr,
        client_ip: &ClientIpConfig,
        lists: &[Arc<AddressList>],
    ) -> Result<Option<AddressGuard>, Full> {
        let address = address.to_canonical();
        let is_exempt = self.exempts_loopback && address.is_loopback();
        if is_exempt || trusts(client_ip, lists, address) {
            return Ok(None);
        }
        let address = mask(address, client_ip.ipv6_prefix);
        let mut shard = self.addresses.shard(address);
        let open = shard.entry(address).or_default();
        if *open >= self.per_address {
            return Err(Full);
        }
        *open += 1;
        drop(shard);
        Ok(Some(AddressGuard { addresses: Arc::clone(&self.addresses), address }))
    }
}

/// The address is at its connection limit.
#[derive(Clone, Copy, Debug)]
pub struct Full;

impl Addresses {
    fn shard(&self, address: IpAddr) -> std::sync::MutexGuard<'_, HashMap<IpAddr, u32>> {
        let index = self.hasher.hash_one(address) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressGuard {
    fn drop(&mut self) {
        let mut shard = self.addresses.shard(self.address);
        if let Some(open) = shard.get_mut(&self.address) {
            *open -= 1;
            if *open == 0 {
                shard.remove(&self.address);
            }
        }
    }
}

impl CountGuard {
    /// Counts one more; `None` if there are `max` already.
    pub fn one(counter: &Arc<AtomicI64>, max: i64) -> Option<Self> {
        let counted = Self(Arc::clone(counter));
        (counter.fetch_add(1, Ordering::Relaxed) < max).then_some(counted) // above the limit, the drop uncounts it
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_config::{Config, parse_without_files};

    fn config(listener: &str, client_ip: &str) -> Config {
        let text = format!(
            "listen: [{{address: \"127.0.0.1:8080\"{listener}}}]\n{client_ip}\nroutes: [{{respond: {{status: 200}}}}]\n"
        );
        parse_without_files(&text).unwrap_or_else(|report| panic!("{report}"))
    }

    #[test]
    fn connections_of_an_address_are_limited() {
        let config = config(", max_connections_per_ip: 2", "client_ip: {trusted_proxies: [10.0.0.0/8]}");
        let listener_states = ListenerState::all(&config.listeners, &[None], None);
        let acquire = |text: &str| listener_states[0].acquire(text.parse().unwrap(), &config.client_ip, &[]);
        let first = acquire("2001:db8::1").unwrap();
        let _second = acquire("2001:db8::2:0:0:1").unwrap();
        assert!(acquire("2001:db8::3").is_err(), "one network is one client");
        assert!(acquire("2001:db8:0:1::1").is_ok());
        assert!(acquire("::ffff:10.0.0.1").unwrap().is_none(), "a trusted proxy needs none");
        drop(first);
        let again = ListenerState::all(&config.listeners, &[None], Some(&listener_states));
        let third = again[0].acquire("2001:db8::3".parse().unwrap(), &config.client_ip, &[]).unwrap();
        assert!(acquire("2001:db8::4").is_err(), "a reload goes on counting");
        drop(third);
        assert!(acquire("127.0.0.1").unwrap().is_some(), "a configured limit applies to all addresses");
    }

    #[test]
    fn loopback_addresses_are_exempt_from_the_default_limit() {
        let config = config("", "");
        let state = &ListenerState::all(&config.listeners, &[None], None)[0];
        assert!(state.acquire("::1".parse().unwrap(), &config.client_ip, &[]).unwrap().is_none());
        let places: Vec<_> = (0..PER_ADDRESS)
            .map(|_| state.acquire("192.0.2.1".parse().unwrap(), &config.client_ip, &[]))
            .collect();
        assert!(places.iter().all(|place| matches!(place, Ok(Some(_)))));
        assert!(state.acquire("192.0.2.1".parse().unwrap(), &config.client_ip, &[]).is_err());
        drop(places);
        assert!(state.addresses.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }

    #[test]
    fn a_connection_above_the_limit_is_not_counted() {
        let open = Arc::new(AtomicI64::new(0));
        let one = CountGuard::one(&open, 1);
        assert!(one.is_some() && CountGuard::one(&open, 1).is_none());
        assert_eq!(open.load(Ordering::Relaxed), 1);
        drop(one);
        assert_eq!(open.load(Ordering::Relaxed), 0);
    }
}
