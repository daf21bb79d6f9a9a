//! Lists of addresses: which clients routes admit or refuse, and which are exempt from limits.
//!
//! A list is stored as sorted, disjoint ranges: a million lines are searched in twenty steps, and lines that overlap or
//! are adjacent cost nothing.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use sluicegate_base::file_watch::{Mistakes, Source, Unusable, Watched};
use sluicegate_config::{Access, Exempt, Reference, parse_network};

/// The most lines of a list.
const MOST: usize = 10_000_000;

/// A list of addresses and networks. Immutable; a changed file makes another.
#[derive(Clone, Debug, Default)]
pub struct AddressList {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
    entries: usize,
    source: Option<Source>,
}

/// Sorted, disjoint ranges. The first addresses are in an array of their own, because the search reads only them.
#[derive(Clone, Debug, Default)]
struct Ranges<T> {
    firsts: Vec<T>,
    lasts: Vec<T>,
}

impl AddressList {
    /// The list of these networks.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Self {
        let (mut v4, mut v6, mut entries) = (Vec::new(), Vec::new(), 0);
        for network in networks {
            entries += 1;
            match network {
                IpNet::V4(v4s) => v4.push((v4s.network().into(), v4s.broadcast().into())),
                IpNet::V6(v6s) => v6.push((v6s.network().into(), v6s.broadcast().into())),
            }
        }
        let v4 = Ranges::of(v4, |last: u32| last.checked_add(1));
        let v6 = Ranges::of(v6, |last: u128| last.checked_add(1));
        Self { v4, v6, entries, source: None }
    }

    /// Whether an address is on it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.contains(address.into()),
            IpAddr::V6(address) => self.v6.contains(address.into()),
        }
    }

    /// Whether every address of IPv4 or of IPv6 is on it.
    pub fn has_everybody(&self) -> bool {
        self.v4.covers(0, u32::MAX) || self.v6.covers(0, u128::MAX)
    }

    /// The number of addresses and networks in the list as written.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }
}

impl<T: Copy + Ord> Ranges<T> {
    /// These ranges, with overlapping and adjacent ones merged. `next` returns the following number.
    fn of(mut ranges: Vec<(T, T)>, next: impl Fn(T) -> Option<T>) -> Self {
        ranges.sort_unstable();
        let (mut firsts, mut lasts) = (Vec::new(), Vec::<T>::new());
        for (first, last) in ranges {
            match lasts.last_mut() {
                Some(end) if next(*end).is_none_or(|next| first <= next) => *end = last.max(*end),
                _ => {
                    firsts.push(first);
                    lasts.push(last);
                }
            }
        }
        firsts.shrink_to_fit();
        lasts.shrink_to_fit();
        Self { firsts, lasts }
    }

    fn covers(&self, first: T, last: T) -> bool {
        self.firsts.first() == Some(&first) && self.lasts.first() == Some(&last)
    }

    fn contains(&self, number: T) -> bool {
        let behind = self.firsts.partition_point(|first| *first <= number);
        behind.checked_sub(1).is_some_and(|at| number <= self.lasts[at])
    }
}

/// Whether a route admits a client.
pub fn admits(access: &Access, lists: &[Arc<AddressList>], client: IpAddr) -> bool {
    let is_on = |list: &Reference| lists[list.index].contains(client);
    !access.deny.iter().any(is_on) && (access.allow.is_empty() || access.allow.iter().any(is_on))
}

/// Whether the address of a client makes it exempt from a limit.
pub fn is_exempt(exempt: &Exempt, lists: &[Arc<AddressList>], client: IpAddr) -> bool {
    exempt.networks.iter().any(|network| network.contains(&client))
        || exempt.lists.iter().any(|list| lists[list.index].contains(client))
}

impl Watched for AddressList {
    /// An address or a network a line; `#` begins a comment. A text of nothing at all is no list: a file that was cut off
    /// or not written yet must not let everybody in, or nobody.
    fn parse(text: &str, file: &str) -> Result<Self, Unusable> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut mistakes = Mistakes::default();
        let mut networks = Vec::new();
        if text.trim().is_empty() {
            mistakes
                .add(1, "the file is empty; if nobody is to be on the list, say so in a comment: # nobody");
        }
        for (number, line) in (1_u32..).zip(text.lines()) {
            let entry = line.split('#').next().unwrap_or_default().trim();
            if entry.is_empty() {
                continue;
            }
            match parse_network(entry) {
                Ok(_) if networks.len() == MOST => {
                    mistakes.add(number, "a list holds at most 10,000,000 networks");
                    break;
                }
                Ok(network) => networks.push(network),
                Err(message) => mistakes.add(number, message),
            }
        }
        mistakes.or(Self::new(networks), file)
    }

    fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }

    fn read_from(self, source: Source) -> Self {
        Self { source: Some(source), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Networks of few addresses near each other, so that they overlap, adjoin and repeat, also at the ends.
    fn network() -> impl Strategy<Value = IpNet> {
        let v4 = (any::<bool>(), 0..64_u32, 0..=32_u8).prop_map(|(high, low, prefix)| {
            let address = if high { u32::MAX - low } else { 0x0a00_0000 + low };
            let prefix = if prefix % 3 == 0 { prefix } else { 27 + prefix % 6 };
            IpNet::new(Ipv4Addr::from(address).into(), prefix).unwrap().trunc()
        });
        let v6 = (any::<bool>(), 0..64_u128, 0..=128_u8).prop_map(|(high, low, prefix)| {
            let address = if high { u128::MAX - low } else { low };
            let prefix = if prefix % 7 == 0 { prefix } else { 123 + prefix % 6 };
            IpNet::new(Ipv6Addr::from(address).into(), prefix).unwrap().trunc()
        });
        prop_oneof![v4, v6]
    }

    proptest! {
        /// The same as looking at every line.
        #[test]
        fn a_list_covers_what_its_lines_cover(networks in vec(network(), 0..12)) {
            let list = AddressList::new(networks.clone());
            let v4 = (0..80).flat_map(|n| [0x0a00_0000 + n, 0x0a00_0000_u32.wrapping_sub(n), u32::MAX - n]);
            let v6 = (0..80).flat_map(|n| [n, u128::MAX - n]);
            let v4 = v4.map(|number| IpAddr::from(Ipv4Addr::from(number)));
            let v6 = v6.map(|number| IpAddr::from(Ipv6Addr::from(number)));
            for address in v4.chain(v6) {
                let wanted = networks.iter().any(|network| network.contains(&address));
                prop_assert_eq!(list.contains(address), wanted, "{}", address);
            }
        }
    }

    /// The same of many ranges.
    #[test]
    fn a_long_list_covers_what_its_lines_cover() {
        for count in [1, 2, 63, 64, 65, 1_000] {
            let networks: Vec<IpNet> = (0..count as u32)
                .map(|n| IpNet::new(Ipv4Addr::from(0x0a00_0000 + 16 * n).into(), 29 + (n % 4) as u8).unwrap())
                .collect();
            let list = AddressList::new(networks.iter().rev().copied());
            for number in 0x09ff_fff0..0x0a00_0020 + 16 * count as u32 {
                let address = IpAddr::from(Ipv4Addr::from(number));
                let wanted = networks.iter().any(|network| network.contains(&address));
                assert_eq!(list.contains(address), wanted, "{address} of {count}");
            }
        }
    }

    #[test]
    fn a_file_is_read_as_people_write_it() {
        let text = "\u{feff}# ours\r\n10.0.0.0/8\r\n\r\n  192.0.2.1   # the office\n2001:db8::/32\n::ffff:198.51.100.0/120\n10.1.2.3/16";
        let list = AddressList::parse(text, "l.txt").unwrap();
        assert_eq!(list.len(), 5);
        for (address, wanted) in [
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("192.0.2.1", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.2.2", false),
            ("2001:db8::5", true),
            ("198.51.100.7", true),
        ] {
            assert_eq!(list.contains(address.parse().unwrap()), wanted, "{address}");
        }
        let nobody = AddressList::parse("# nobody yet\n", "l.txt").unwrap();
        assert!(!list.has_everybody() && !nobody.has_everybody());
        for halves in ["0.0.0.0/1\n128.0.0.0/1", "::/0"] {
            assert!(AddressList::parse(halves, "l.txt").unwrap().has_everybody());
        }
        assert!(nobody.is_empty() && !nobody.contains("10.0.0.1".parse().unwrap()));
        for cut_off in ["", "\n", " \r\n\t\n", "\u{feff}"] {
            assert!(AddressList::parse(cut_off, "l.txt").is_err(), "{cut_off:?}");
        }
    }

    #[test]
    fn every_mistake_is_told_with_its_line() {
        let unusable = AddressList::parse("10.0.0.0/8\n10.0.0/8\n\nexample.com # no\n", "l.txt").unwrap_err();
        assert_eq!(unusable.message, "l.txt has 2 mistakes");
        let place = |at: usize| unusable.details[at].split(' ').next().unwrap().to_owned();
        assert_eq!([place(0), place(1)], ["l.txt:2:", "l.txt:4:"]);
    }
}
