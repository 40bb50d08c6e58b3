//! IP addresses and networks, read by the rules of the Python library that Ansible's collection
//! ansible.utils uses.

use minijinja::Value;
use minijinja::value::ValueKind;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP address with the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpNetwork {
    pub address: IpAddr,
    pub length: u32,
}

/// An address or network, as the value of a filter gives it.
pub struct WrittenNetwork {
    pub net: IpNetwork,
    /// Whether the value has a prefix.
    pub with_prefix: bool,
    pub text: String,
}

/// Networks that are not global, by the registries of special-purpose addresses.
const SPECIAL: [&str; 23] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "240.0.0.0/4",
    "::/128",
    "::1/128",
    "::ffff:0:0/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "fc00::/7",
    "fe80::/10",
];
/// Global networks inside of `SPECIAL`.
const GLOBAL: [&str; 8] = [
    "192.0.0.9/32",
    "192.0.0.10/32",
    "2001:1::1/128",
    "2001:1::2/128",
    "2001:3::/32",
    "2001:4:112::/48",
    "2001:20::/28",
    "2001:30::/28",
];

impl IpNetwork {
    /// Parses `ADDRESS` or `ADDRESS/PREFIX`. The prefix is a length, a netmask or its inverse.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().ok()?;
        let length = match prefix {
            None => bits(address),
            Some(prefix) => match prefix.parse() {
                Ok(length) => length,
                Err(_) => mask_length(prefix.parse().ok()?, bits(address))?,
            },
        };
        (length <= bits(address)).then_some(Self { address, length })
    }

    /// The address with this number. None: it is too large.
    pub fn from_number(number: u128, is_ipv4: bool, length: u32) -> Option<Self> {
        let address = match is_ipv4 {
            true => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).ok()?)),
            false => IpAddr::V6(Ipv6Addr::from(number)),
        };
        (length <= bits(address)).then_some(Self { address, length })
    }

    /// The number of bits that are not part of the prefix.
    pub fn host_bits(self) -> u32 {
        bits(self.address) - self.length
    }

    /// The network's bits of a host as ones.
    pub fn host_mask(self) -> u128 {
        ones(self.host_bits())
    }

    pub fn first(self) -> u128 {
        number(self.address) & !self.host_mask()
    }

    pub fn last(self) -> u128 {
        number(self.address) | self.host_mask()
    }

    /// The first and the last address of a host. None: the network has only one address.
    pub fn usable(self) -> Option<(u128, u128)> {
        match self.host_bits() {
            0 => None,
            1 => Some((self.first(), self.last())),
            _ => Some((self.first() + 1, self.last() - 1)),
        }
    }

    /// Whether the address is the first of its network.
    pub fn is_first(self) -> bool {
        number(self.address) == self.first()
    }

    /// The network without the bits of a host.
    pub fn truncate(self) -> Self {
        Self { address: self.address_at(self.first()), ..self }
    }

    /// The address with this number in the family of this network.
    pub fn address_at(self, n: u128) -> IpAddr {
        match self.address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(n).unwrap_or(u32::MAX))),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(n)),
        }
    }

    /// The address that is `offset` away from `from`. None: there is no such address.
    pub fn address_beside(self, from: u128, offset: i128) -> Option<IpAddr> {
        let n = from.checked_add_signed(offset)?;
        (n <= ones(bits(self.address))).then(|| self.address_at(n))
    }

    /// Whether all addresses of `other` are in this network.
    pub fn contains(self, other: Self) -> bool {
        self.address.is_ipv4() == other.address.is_ipv4()
            && self.first() <= other.first()
            && other.last() <= self.last()
    }

    /// Whether the address is in one of the networks.
    pub fn is_address_in(self, networks: &[&str]) -> bool {
        let own = Self { length: bits(self.address), ..self };
        networks.iter().filter_map(|network| Self::parse(network)).any(|network| network.contains(own))
    }

    /// Whether the address is global by the registries of special-purpose addresses.
    pub fn is_global(self) -> bool {
        self.is_address_in(&GLOBAL) || !self.is_address_in(&SPECIAL)
    }

    pub fn is_multicast(self) -> bool {
        ["224.0.0.0/4", "ff00::/8"].into_iter().filter_map(Self::parse).any(|network| network.contains(self))
    }

    /// Whether the address has the form of a netmask or of its inverse.
    pub fn is_mask(self) -> bool {
        mask_length(self.address, bits(self.address)).is_some()
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", show(self.address), self.length)
    }
}

impl WrittenNetwork {
    /// Reads the value of a filter: a text, or the number of an address. `version` is 4 or 6, if
    /// only addresses of this version count.
    pub fn read(value: &Value, version: Option<u8>) -> Option<Self> {
        let text = match value.kind() {
            ValueKind::String => value.as_str()?.to_owned(),
            ValueKind::Number if value.is_integer() => value.to_string(),
            _ => return None,
        };
        if text.is_empty() || text == "0" && value.as_str().is_none() {
            return None;
        }
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let found = if is_digits(&text) {
            let n = text.parse().ok()?;
            let ipv4 = IpNetwork::from_number(n, true, 32).filter(|_| version != Some(6));
            let net = ipv4.or_else(|| IpNetwork::from_number(n, false, 128))?;
            Self { net, with_prefix: false, text: net.to_string() }
        } else if let Some(net) = IpNetwork::parse(&text) {
            Self { net, with_prefix: text.contains('/'), text }
        } else {
            // The number of an address, with a prefix.
            let (n, length) = text.split_once('/').filter(|(n, length)| is_digits(n) && is_digits(length))?;
            let (n, length) = (n.parse().ok()?, length.parse().ok()?);
            let ipv4 = IpNetwork::from_number(n, true, length);
            let net = ipv4.or_else(|| IpNetwork::from_number(n, false, length))?;
            Self { net, with_prefix: true, text: net.to_string() }
        };
        version.is_none_or(|version| (version == 4) == found.net.address.is_ipv4()).then_some(found)
    }
}

/// The number of bits of an address.
pub fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// A number whose last `count` bits are ones.
pub fn ones(count: u32) -> u128 {
    1_u128.checked_shl(count).map_or(u128::MAX, |power| power - 1)
}

/// The length of the prefix that a netmask or its inverse means, for addresses of `width` bits.
fn mask_length(mask: IpAddr, width: u32) -> Option<u32> {
    if bits(mask) != width {
        return None;
    }
    let (n, all) = (number(mask), ones(width));
    // Only zeros follow the last one of a netmask, and only ones follow the last zero of its
    // inverse.
    if (n ^ all) & (n ^ all).wrapping_add(1) == 0 {
        Some(n.count_ones())
    } else if n & (n + 1) == 0 {
        Some(width - n.count_ones())
    } else {
        None
    }
}

/// The text of an address. As in the C library, the last four bytes of an IPv6 address are decimal
/// if all other bytes are zero.
pub fn show(address: IpAddr) -> String {
    match address {
        IpAddr::V6(v6) if (1 << 16..1 << 32).contains(&u128::from(v6)) => {
            format!("::{}", Ipv4Addr::from(u128::from(v6) as u32))
        }
        other => other.to_string(),
    }
}
