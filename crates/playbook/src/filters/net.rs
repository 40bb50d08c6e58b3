//! `ipaddr` and related filters of Ansible's collection ansible.utils, limited to the queries that
//! playbooks use.

use super::{Args, Filter, FilterResult, failure, filter_with_difference, list};
use crate::lang::python;
use minijinja::value::ValueKind;
use minijinja::{Error, State, Value};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const DIFFERS: &str = "supports only these queries: address, network, netmask, prefix, broadcast, subnet, net, size, host, \
    host/prefix, network/prefix, address/prefix, private, public, loopback, multicast, link-local, version, int, revdns, \
    a number, a network";

pub const FILTERS: &[Filter] = &[
    filter_with_difference("ipaddr", &["query"], |_, v, a| query_each(&v, &a, None), DIFFERS),
    filter_with_difference("ipv4", &["query"], |_, v, a| query_each(&v, &a, Some(4)), DIFFERS),
    filter_with_difference("ipv6", &["query"], |_, v, a| query_each(&v, &a, Some(6)), DIFFERS),
    super::filter("ipwrap", &["query"], ipwrap),
];

/// An IP address with an optional prefix length.
#[derive(Clone, Copy, PartialEq)]
struct IpNetwork {
    address: IpAddr,
    prefix: Option<u32>,
}

impl IpNetwork {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits = bits(address);
        let prefix = match prefix {
            None => None,
            Some(p) => Some(match (p.parse::<u32>(), p.parse::<Ipv4Addr>()) {
                (Ok(n), _) => n,
                (_, Ok(mask)) if bits == 32 && u32::from(mask).leading_ones() == u32::from(mask).count_ones() => {
                    u32::from(mask).count_ones()
                }
                _ => return None,
            }),
        };
        prefix.is_none_or(|p| p <= bits).then_some(Self { address, prefix })
    }

    fn length(self) -> u32 {
        self.prefix.unwrap_or(bits(self.address))
    }

    /// The first and last address of the network, as numbers.
    fn range(self) -> (u128, u128) {
        let free = bits(self.address) - self.length();
        let host = if free == 128 { u128::MAX } else { (1u128 << free) - 1 };
        let own = number(self.address);
        (own & !host, own | host)
    }

    fn address_at(self, n: u128) -> IpAddr {
        match self.address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(n).unwrap_or(u32::MAX))),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(n)),
        }
    }

    fn is_network(self) -> bool {
        self.prefix.is_some() && number(self.address) == self.range().0 && self.length() < bits(self.address)
    }

    fn contains(self, other: IpAddr) -> bool {
        let (first, last) = self.range();
        bits(self.address) == bits(other) && (first..=last).contains(&number(other))
    }
}

fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

fn query_each(v: &Value, a: &Args, version: Option<u8>) -> FilterResult {
    let query = match a.get("query").filter(|q| !q.is_none()) {
        Some(query) => python::text(query)?,
        None => String::new(),
    };
    if matches!(v.kind(), ValueKind::Seq | ValueKind::Iterable) {
        let mut out = Vec::new();
        for item in list("ipaddr", v)? {
            let found = query_one(&item, &query, version)?;
            if found.is_true() {
                out.push(found);
            }
        }
        return Ok(out.into());
    }
    query_one(v, &query, version)
}

fn query_one(v: &Value, query: &str, version: Option<u8>) -> FilterResult {
    let none = || Ok(Value::from(false));
    let text = match v.kind() {
        ValueKind::String => v.as_str().unwrap_or_default().to_owned(),
        _ => return none(),
    };
    let Some(net) = IpNetwork::parse(&text).filter(|n| version.is_none_or(|v| (v == 4) == n.address.is_ipv4())) else {
        check_query(query)?;
        return none();
    };
    answer_query(net, query)
}

const QUERIES: [&str; 21] = [
    "",
    "address",
    "ip",
    "network",
    "netmask",
    "prefix",
    "broadcast",
    "subnet",
    "net",
    "size",
    "host",
    "host/prefix",
    "network/prefix",
    "address/prefix",
    "private",
    "public",
    "loopback",
    "multicast",
    "link-local",
    "version",
    "int",
];

fn check_query(query: &str) -> Result<(), Error> {
    if QUERIES.contains(&query)
        || query == "revdns"
        || query.parse::<i64>().is_ok()
        || IpNetwork::parse(query).is_some()
    {
        return Ok(());
    }
    Err(failure(format!("ipaddr: the query `{query}` is not supported; {DIFFERS}")))
}

fn answer_query(net: IpNetwork, query: &str) -> FilterResult {
    check_query(query)?;
    let IpNetwork { address, prefix } = net;
    let (first, last) = net.range();
    let (length, whole) = (net.length(), net.length() == bits(address));
    let shown = || prefix.map_or_else(|| address.to_string(), |p| format!("{address}/{p}"));
    let if_so = |yes: bool| Ok(if yes { Value::from(shown()) } else { Value::from(false) });
    // As in Ansible's collection ansible.utils, the address of a network is not the address of a
    // host.
    let is_host = !net.is_network() || length + 1 >= bits(address);
    let text = match query {
        "" => shown(),
        "address" | "ip" if is_host => address.to_string(),
        "network" => net.address_at(first).to_string(),
        "netmask" => {
            let ones = if length == 0 { 0 } else { u128::MAX << (128 - length) };
            let mask = if address.is_ipv4() { ones >> 96 } else { ones };
            net.address_at(mask).to_string()
        }
        "prefix" => return Ok(length.into()),
        "broadcast" if address.is_ipv4() && length < 31 => net.address_at(last).to_string(),
        "broadcast" => return Ok(Value::from("")),
        "subnet" => format!("{}/{length}", net.address_at(first)),
        "net" if net.is_network() => shown(),
        "net" => return Ok(Value::from(())),
        "size" => return Ok((last - first).checked_add(1).map_or_else(|| Value::from(0), Value::from)),
        "host" | "host/prefix" if is_host && !whole => shown(),
        "host" | "host/prefix" if whole => format!("{address}/{length}"),
        "address/prefix" if is_host => format!("{address}/{length}"),
        "network/prefix" => format!("{}/{length}", net.address_at(first)),
        "private" => return if_so(is_private(address)),
        "public" => {
            return if_so(
                !is_private(address) && !address.is_loopback() && !address.is_multicast() && !link_local(address),
            );
        }
        "loopback" => return if_so(address.is_loopback()),
        "multicast" => return if_so(address.is_multicast()),
        "link-local" => return if_so(link_local(address)),
        "version" => return Ok(if address.is_ipv4() { 4 } else { 6 }.into()),
        "int" => return Ok(number(address).into()),
        "revdns" => revdns(address),
        other => match (other.parse::<i64>(), IpNetwork::parse(other)) {
            (Ok(n), _) if !whole => {
                let from = if n < 0 {
                    last.checked_sub(u128::from(n.unsigned_abs()) - 1)
                } else {
                    first.checked_add(n.unsigned_abs().into())
                };
                match from.filter(|n| (first..=last).contains(n)) {
                    Some(n) => format!("{}/{length}", net.address_at(n)),
                    None => return Ok(Value::from(false)),
                }
            }
            (Err(_), Some(outer)) => {
                return Ok(if outer.contains(address) { Value::from(shown()) } else { Value::from(()) });
            }
            _ => return Ok(Value::from(false)),
        },
    };
    Ok(text.into())
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private(),
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

fn link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn revdns(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa.")
        }
        IpAddr::V6(v6) => {
            let digits = v6.octets().iter().rev().map(|b| format!("{:x}.{:x}.", b & 15, b >> 4)).collect::<String>();
            format!("{digits}ip6.arpa.")
        }
    }
}

/// Puts brackets around IPv6 addresses; returns everything else unchanged.
fn ipwrap(_: &mut State, v: Value, a: Args) -> FilterResult {
    if a.get("query").is_some_and(|q| !q.is_none() && q.as_str() != Some("")) {
        return Err(failure("ipwrap: a query is not supported"));
    }
    let wrap = |v: &Value| -> FilterResult {
        let Some(text) = v.as_str() else { return Ok(v.clone()) };
        Ok(match IpNetwork::parse(text) {
            Some(IpNetwork { address: IpAddr::V6(v6), prefix: None }) => format!("[{v6}]").into(),
            Some(IpNetwork { address: IpAddr::V6(v6), prefix: Some(p) }) => format!("[{v6}]/{p}").into(),
            _ => v.clone(),
        })
    };
    match v.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            list("ipwrap", &v)?.iter().map(wrap).collect::<Result<Vec<_>, _>>().map(Value::from)
        }
        _ => wrap(&v),
    }
}
