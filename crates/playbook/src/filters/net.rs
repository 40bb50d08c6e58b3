//! `ipaddr` and related filters of Ansible's collection ansible.utils, which check an address or
//! network and select a part of it.

use super::ip_network::{IpNetwork, WrittenNetwork, bits, number, show};
use super::{Args, Filter, FilterResult, failure, filter, list};
use minijinja::value::ValueKind;
use minijinja::{State, Value};
use std::net::{IpAddr, Ipv4Addr};

pub const FILTERS: &[Filter] = &[
    filter("ipaddr", &["query"], |_, v, a| query_each(&v, &a, None)),
    filter("ipv4", &["query"], |_, v, a| query_each(&v, &a, Some(4))),
    filter("ipv6", &["query"], |_, v, a| query_each(&v, &a, Some(6))),
    filter("ipwrap", &["query"], ipwrap),
];

const NOT_A_NETWORK: &str = "Not a network address";

fn query_each(v: &Value, a: &Args, version: Option<u8>) -> FilterResult {
    let query = a.text("query")?.unwrap_or_default();
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

/// The answer of a query about one value; false if it is no address of this version.
fn query_one(v: &Value, query: &str, version: Option<u8>) -> FilterResult {
    let Some(written) = WrittenNetwork::read(v, version) else { return Ok(false.into()) };
    if let Some(answer) = select_part(&written, query) {
        return Ok(answer);
    }
    if let Some(answer) = classify(&written, query) {
        return Ok(answer);
    }
    match usable_part(&written, query)? {
        Some(answer) => Ok(answer),
        None => match IpNetwork::parse(query) {
            Some(outer) if outer.contains(written.net) => Ok(written.text.into()),
            Some(_) => Ok(().into()),
            None => answer_number(&written, query),
        },
    }
}

/// A text, or none.
fn text_or_none(text: Option<String>) -> Value {
    text.map_or_else(|| ().into(), Value::from)
}

/// Queries for a part of an address, in several notations. None: it is another query.
fn select_part(written: &WrittenNetwork, query: &str) -> Option<Value> {
    let WrittenNetwork { net, with_prefix, text } = written;
    let (net, free) = (*net, net.host_bits());
    let (address, length) = (show(net.address), net.length);
    let at = |n: u128| show(net.address_at(n));
    let network = || at(net.first());
    let netmask = || at(super::ip_network::ones(bits(net.address)) ^ net.host_mask());
    let hostmask = || at(net.host_mask());
    // A network of IPv4 with two addresses has no broadcast address.
    let no_broadcast = net.address.is_ipv4() && free <= 1;
    let is_of_host = free == 1 || free > 1 && !net.is_first();
    Some(match query {
        "" if *with_prefix => net.to_string().into(),
        "" => address.into(),
        "address" | "ip" => {
            let found = free == 0 || !net.is_first() || no_broadcast || !net.address.is_ipv4();
            text_or_none(found.then_some(address))
        }
        "network" | "network_id" => network().into(),
        "netmask" => netmask().into(),
        "hostmask" | "wildcard" => hostmask().into(),
        "network_netmask" => format!("{} {}", network(), netmask()).into(),
        "network_wildcard" => format!("{} {}", network(), hostmask()).into(),
        "prefix" => length.into(),
        "broadcast" => text_or_none((free > 1).then(|| at(net.last()))),
        "cidr" => net.to_string().into(),
        "subnet" | "network/prefix" => net.truncate().to_string().into(),
        "net" => text_or_none((free > 0 && net.is_first()).then(|| net.to_string())),
        "host" => text_or_none((free == 0 || !net.is_first() || no_broadcast).then(|| net.to_string())),
        "host/prefix" | "address/prefix" | "gateway" | "gw" | "router" | "hostnet" => {
            let own = number(net.address);
            match free > 1 && (own == net.first() || own == net.last()) {
                true => false.into(),
                false => net.to_string().into(),
            }
        }
        "ip/prefix" => text_or_none(is_of_host.then(|| net.to_string())),
        "ip_netmask" => text_or_none(is_of_host.then(|| format!("{address} {}", netmask()))),
        "int" if *with_prefix => format!("{}/{length}", number(net.address)).into(),
        "int" => number(net.address).into(),
        "wrap" => match net.address {
            IpAddr::V4(_) => text.as_str().into(),
            IpAddr::V6(_) if *with_prefix => format!("[{address}]/{length}").into(),
            IpAddr::V6(_) => format!("[{address}]").into(),
        },
        "revdns" => reverse_name(net.address).into(),
        _ => return None,
    })
}

/// Queries for the kind of an address, and whether it is of a kind. None: it is another query.
fn classify(written: &WrittenNetwork, query: &str) -> Option<Value> {
    let WrittenNetwork { net, text, .. } = written;
    let net = *net;
    let if_so = |yes: bool| text_or_none(yes.then(|| text.clone()));
    Some(match query {
        "bool" => true.into(),
        "version" => if net.address.is_ipv4() { 4 } else { 6 }.into(),
        "type" => if net.host_bits() > 0 && net.is_first() { "network" } else { "address" }.into(),
        "private" => if_so(!net.is_global()),
        "public" => if_so(is_public(net)),
        "loopback" | "lo" => if_so(net.address.is_loopback()),
        "multicast" => if_so(net.is_multicast()),
        "unicast" => if_so(!net.is_multicast()),
        "link-local" => if_so(net.is_address_in(&["169.254.0.0/16", "fe80::/10"])),
        "ipv4" => match net.address {
            IpAddr::V4(_) => text.as_str().into(),
            IpAddr::V6(v6) => {
                let embedded = v6.to_ipv4().zip(net.length.checked_sub(96));
                embedded.map_or_else(|| false.into(), |(v4, length)| format!("{v4}/{length}").into())
            }
        },
        "ipv6" => match net.address {
            IpAddr::V4(v4) => format!("{}/{}", v4.to_ipv6_mapped(), net.length + 96).into(),
            IpAddr::V6(_) => text.as_str().into(),
        },
        "6to4" => six_to_four(written),
        _ => return None,
    })
}

fn is_public(net: IpNetwork) -> bool {
    let one = IpNetwork { length: bits(net.address), ..net };
    net.is_global() && !one.is_multicast() && !net.address.is_loopback() && !net.is_mask()
}

/// The network of a public IPv4 address by the protocol 6to4; an IPv6 address of such a network.
fn six_to_four(written: &WrittenNetwork) -> Value {
    let net = written.net;
    let is_network = net.host_bits() > 0 && net.is_first();
    match net.address {
        IpAddr::V4(v4) if !is_network && (!net.is_global() || is_public(net)) => {
            let [a, b, c, d] = v4.octets();
            format!("2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1/48").into()
        }
        IpAddr::V6(_) if net.is_address_in(&["2002::/16"]) && !(written.with_prefix && net.is_first()) => {
            written.text.as_str().into()
        }
        _ => false.into(),
    }
}

/// Queries for the addresses of a network that hosts may have. None: it is another query.
fn usable_part(written: &WrittenNetwork, query: &str) -> Result<Option<Value>, minijinja::Error> {
    let net = written.net;
    let (own, free) = (number(net.address), net.host_bits());
    match query {
        "size" if free == 128 => return Err(failure("ipaddr: the size of this network is too large a number")),
        "size_usable" if free == 128 => return Err(failure("ipaddr: the size of this network is too large a number")),
        "size" => return Ok(Some((net.host_mask() + 1).into())),
        "size_usable" => {
            let usable = net.usable().map_or(0, |(first, last)| last - first + 1);
            return Ok(Some(usable.into()));
        }
        "first_usable" | "last_usable" | "next_usable" | "previous_usable" | "range_usable" | "peer" => {}
        _ => return Ok(None),
    }
    if !written.with_prefix {
        return Err(failure(NOT_A_NETWORK));
    }
    let at = |n: u128| show(net.address_at(n));
    if query == "peer" {
        let other = match (free, own % 4) {
            (1, _) => own ^ 1,
            (2, 0) => return Err(failure("Network address of /30 has no peer")),
            (2, 3) => return Err(failure("Broadcast address of /30 has no peer")),
            (2, _) => own ^ 3,
            _ => return Err(failure("Not a point-to-point network")),
        };
        return Ok(Some(at(other).into()));
    }
    let Some((first, last)) = net.usable() else { return Ok(Some(().into())) };
    let within = |n: Option<u128>| n.filter(|n| (first..=last).contains(n)).map(at);
    Ok(Some(match query {
        "first_usable" => at(first).into(),
        "last_usable" => at(last).into(),
        "range_usable" => format!("{}-{}", at(first), at(last)).into(),
        "next_usable" => text_or_none(within(own.checked_add(1))),
        _ => text_or_none(within(own.checked_sub(1))),
    }))
}

/// The address with this number in the network. A negative number counts from the end.
fn answer_number(written: &WrittenNetwork, query: &str) -> FilterResult {
    let net = written.net;
    if query.trim().parse::<f64>().is_err() {
        return Err(failure(format!("ipaddr: unknown filter type: {query}")));
    }
    if net.host_bits() == 0 {
        return Ok(if written.with_prefix { net.to_string() } else { show(net.address) }.into());
    }
    let found = query.trim().parse::<i128>().ok().and_then(|n| nth_address(net, n));
    Ok(found.map_or_else(|| false.into(), |address| format!("{}/{}", show(address), net.length).into()))
}

/// The address with this number in the network. A negative number counts from the end.
pub fn nth_address(net: IpNetwork, n: i128) -> Option<IpAddr> {
    let found = match n < 0 {
        true => net.last().checked_sub(n.unsigned_abs() - 1),
        false => net.first().checked_add(n.unsigned_abs()),
    };
    found.filter(|n| (net.first()..=net.last()).contains(n)).map(|n| net.address_at(n))
}

fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{}.in-addr.arpa.", Ipv4Addr::from([d, c, b, a]))
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
        if v.as_str().is_none() {
            return Ok(v.clone());
        }
        Ok(WrittenNetwork::read(v, Some(6)).and_then(|written| select_part(&written, "wrap")).unwrap_or(v.clone()))
    };
    match v.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            list("ipwrap", &v)?.iter().map(wrap).collect::<Result<Vec<_>, _>>().map(Value::from)
        }
        _ => wrap(&v),
    }
}
