//! Filters of Ansible's collection ansible.utils that calculate with networks.

use super::ip_network::{IpNetwork, WrittenNetwork, bits, number, ones, show};
use super::net::nth_address;
use super::{Args, Filter, FilterResult, failure, filter, filter_with_difference, list};
use crate::lang::python;
use minijinja::{Error, State, Value};
use std::net::IpAddr;

pub const FILTERS: &[Filter] = &[
    filter("ipsubnet", &["query", "index"], ipsubnet),
    filter("nthhost", &["query"], nthhost),
    filter("next_nth_usable", &["offset"], |_, v, a| nth_usable(&v, offset(&a)?)),
    filter("previous_nth_usable", &["offset"], |_, v, a| nth_usable(&v, offset(&a)?.saturating_neg())),
    filter("ipmath", &["amount"], ipmath),
    filter("network_in_network", &["test"], |_, v, a| Ok(is_within(whole_range(&v), a.need("test")?).into())),
    filter("network_in_usable", &["test"], |_, v, a| Ok(is_within(usable_range_of(&v), a.need("test")?).into())),
    filter("reduce_on_network", &["network"], reduce_on_network),
    filter("cidr_merge", &["action"], cidr_merge),
    filter("ip4_hex", &["delimiter"], ip4_hex),
    filter("ipcut", &["amount"], ipcut),
    filter("ipv6form", &["format"], ipv6form),
    filter_with_difference("usable_range", &[], usable_range, "at most 65536 addresses"),
];

/// Maximum number of addresses of `usable_range`.
const ADDRESSES_MAX: u128 = 1 << 16;

fn invalid_address(value: &Value) -> Error {
    failure(format!("You must pass a valid IP address; {value} is invalid"))
}

/// A number as Python's `int` reads it.
fn whole_number(a: &Args, name: &str) -> Result<i128, Error> {
    let text = a.need_text(name)?;
    let wrong = |_| failure(format!("{}: `{name}` takes a whole number, not `{text}`", a.name));
    text.trim().parse().map_err(wrong)
}

fn offset(a: &Args) -> Result<i128, Error> {
    whole_number(a, "offset")
}

fn single_address(value: &Value) -> Result<IpNetwork, Error> {
    let text = value.as_str().ok_or_else(|| invalid_address(value))?;
    IpNetwork::parse(text).filter(|_| !text.contains('/')).ok_or_else(|| invalid_address(value))
}

/// The network or address that `query` selects below or above a network.
fn ipsubnet(_: &mut State, v: Value, a: Args) -> FilterResult {
    let Some(written) = WrittenNetwork::read(&v, None) else { return Ok(false.into()) };
    let net = written.net.truncate();
    let query = a.text("query")?.unwrap_or_default();
    if query.is_empty() {
        return Ok(net.to_string().into());
    }
    if !query.bytes().all(|b| b.is_ascii_digit()) {
        return place_in_network(net, &query);
    }
    let width = bits(net.address);
    let Some(length) = query.parse::<u32>().ok().filter(|length| *length <= width) else { return Ok(false.into()) };
    let index = a.get("index").filter(|index| !index.is_none()).map(|_| whole_number(&a, "index")).transpose()?;
    if net.host_bits() == 0 {
        return network_above(net, length, index);
    }
    let Some(index) = index else {
        let more = length.checked_sub(net.length);
        let more = more.ok_or_else(|| failure(format!("Requested subnet size of {length} is invalid")))?;
        return match 1_u128.checked_shl(more) {
            Some(count) => Ok(count.to_string().into()),
            None => Err(failure("ipsubnet: the number of subnets is too large")),
        };
    };
    let Some(more) = length.checked_sub(net.length) else {
        let only = IpNetwork { length, ..net };
        return Ok(if index == 0 { only.to_string().into() } else { false.into() });
    };
    let last = ones(more);
    let index = match index < 0 {
        true => last.checked_sub(index.unsigned_abs() - 1),
        false => Some(index.unsigned_abs()).filter(|index| *index <= last),
    };
    let Some(index) = index else { return Ok(false.into()) };
    let step = index.checked_shl(width - length).unwrap_or(0);
    Ok(IpNetwork { address: net.address_at(net.first() + step), length }.to_string().into())
}

/// Of the networks around an address, from the prefix `length` to the smallest one, the one at
/// `index`. A negative index counts from the end.
fn network_above(one: IpNetwork, length: u32, index: Option<i128>) -> FilterResult {
    let width = bits(one.address);
    let index = index.unwrap_or(0);
    if index.saturating_mul(2) > i128::from(width) + 1 || index < i128::from(length) - i128::from(width) {
        return Ok(false.into());
    }
    let chosen = i128::from(if index < 0 { width } else { length }) + index;
    match u32::try_from(chosen).ok().filter(|chosen| (length..width).contains(chosen)) {
        Some(chosen) => Ok(IpNetwork { length: chosen, ..one }.truncate().to_string().into()),
        None => Err(failure(format!("ipsubnet: there is no network {index} above {}", show(one.address)))),
    }
}

/// The place of a network among the networks of its size in the network `query`, counted from 1.
fn place_in_network(net: IpNetwork, query: &str) -> FilterResult {
    let wrong = || failure(format!("You must pass a valid subnet or IP address; {query} is invalid"));
    let outer = WrittenNetwork::read(&Value::from(query), None).ok_or_else(wrong)?.net;
    if outer.length > net.length || !outer.contains(net) {
        return Err(failure(format!("{net} is not in the subnet {}", outer.truncate())));
    }
    let place = (net.first() - outer.first()).checked_shr(net.host_bits()).unwrap_or(0);
    // The place of the last address of `::/0` is the first number that needs 129 bits.
    let counted =
        place.checked_add(1).map_or_else(|| "340282366920938463463374607431768211456".to_owned(), |n| n.to_string());
    Ok(counted.into())
}

fn nthhost(_: &mut State, v: Value, a: Args) -> FilterResult {
    let Some(written) = WrittenNetwork::read(&v, None) else { return Ok(false.into()) };
    let query = a.text("query")?.unwrap_or_default();
    let Ok(n) = query.trim().parse::<i128>() else { return Ok(false.into()) };
    match nth_address(written.net, n) {
        Some(address) => Ok(show(address).into()),
        None if n >= 0 => Ok(false.into()),
        None => Err(failure(format!("nthhost: {} has no address {n}", written.net))),
    }
}

/// The address of a host that is `offset` away in the same network.
fn nth_usable(v: &Value, offset: i128) -> FilterResult {
    let Some(WrittenNetwork { net, .. }) = WrittenNetwork::read(v, None) else { return Ok(false.into()) };
    let Some((first, last)) = net.usable() else { return Ok(().into()) };
    let found = number(net.address).checked_add_signed(offset).filter(|n| (first..=last).contains(n));
    Ok(found.map_or_else(|| ().into(), |n| show(net.address_at(n)).into()))
}

fn ipmath(_: &mut State, v: Value, a: Args) -> FilterResult {
    let net = v.as_str().and_then(IpNetwork::parse).ok_or_else(|| invalid_address(&v))?;
    match net.address_beside(number(net.address), whole_number(&a, "amount")?) {
        Some(address) => Ok(show(address).into()),
        None => Err(failure("result outside valid IP address boundary!")),
    }
}

/// The first and last number of a network. As in Ansible, a value that is no network counts as 0,
/// and the only address of a network of IPv4 with two addresses is the first.
fn whole_range(v: &Value) -> (u128, u128) {
    let Some(WrittenNetwork { net, .. }) = WrittenNetwork::read(v, None) else { return (0, 0) };
    (net.first(), if net.host_bits() == 1 { net.first() } else { net.last() })
}

/// The first and last number of the hosts of a network.
fn usable_range_of(v: &Value) -> (u128, u128) {
    let Some(WrittenNetwork { net, .. }) = WrittenNetwork::read(v, None) else { return (0, 0) };
    net.usable().unwrap_or((net.first(), net.first()))
}

fn is_within((first, last): (u128, u128), test: &Value) -> bool {
    let (low, high) = whole_range(test);
    (first..=last).contains(&low) && (first..=last).contains(&high)
}

fn reduce_on_network(_: &mut State, v: Value, a: Args) -> FilterResult {
    let range = whole_range(a.need("network")?);
    let kept = list("reduce_on_network", &v)?.into_iter().filter(|address| is_within(range, address));
    Ok(kept.collect::<Vec<_>>().into())
}

fn cidr_merge(_: &mut State, v: Value, a: Args) -> FilterResult {
    let action = a.text("action")?.unwrap_or_else(|| "merge".into());
    let mut nets = Vec::new();
    for item in list("cidr_merge", &v)? {
        let net = item.as_str().and_then(IpNetwork::parse);
        nets.push(net.ok_or_else(|| failure(format!("cidr_merge: invalid IPNetwork {item}")))?);
    }
    match action.as_str() {
        "merge" => Ok(merge(&nets).into_iter().map(|net| Value::from(net.to_string())).collect::<Vec<_>>().into()),
        "span" => match nets[..] {
            [] => Ok(().into()),
            [one] => Ok(one.to_string().into()),
            _ => span(nets),
        },
        other => Err(failure(format!("cidr_merge: invalid action '{other}'"))),
    }
}

/// The smallest list of networks with the same addresses, in order.
fn merge(nets: &[IpNetwork]) -> Vec<IpNetwork> {
    let mut out = Vec::new();
    for is_ipv4 in [true, false] {
        let own = nets.iter().filter(|net| net.address.is_ipv4() == is_ipv4);
        let mut ranges: Vec<(u128, u128)> = own.map(|net| (net.first(), net.last())).collect();
        ranges.sort_unstable();
        let mut joined: Vec<(u128, u128)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        let width = if is_ipv4 { 32 } else { 128 };
        for (mut first, last) in joined {
            // The largest network that begins at `first` and ends at `last` or before.
            loop {
                let begins = |free: &u32| first & ones(*free) == 0 && ones(*free) <= last - first;
                let free = (0..=width).rev().find(begins).unwrap_or(0);
                out.extend(IpNetwork::from_number(first, is_ipv4, width - free));
                match first.checked_add(ones(free)).and_then(|end| end.checked_add(1)) {
                    Some(next) if next <= last => first = next,
                    _ => break,
                }
            }
        }
    }
    out
}

/// The smallest network that contains the first of the networks and the last, in their order.
fn span(mut nets: Vec<IpNetwork>) -> FilterResult {
    nets.sort_by_key(|net| (!net.address.is_ipv4(), net.first(), net.length));
    let (Some(low), Some(high)) = (nets.first(), nets.last()) else { return Ok(().into()) };
    if low.address.is_ipv4() != high.address.is_ipv4() {
        return Err(failure("cidr_merge: IP sequence cannot contain both IPv4 and IPv6!"));
    }
    let reaches = |length: &u32| IpNetwork { length: *length, ..*high }.first() <= low.first();
    let length = (0..=high.length).rev().find(reaches).unwrap_or(0);
    Ok(IpNetwork { length, ..*high }.truncate().to_string().into())
}

fn ip4_hex(_: &mut State, v: Value, a: Args) -> FilterResult {
    let IpAddr::V4(v4) = single_address(&v)?.address else { return Err(invalid_address(&v)) };
    let bytes = v4.octets().map(|byte| format!("{byte:02x}"));
    Ok(bytes.join(&a.text("delimiter")?.unwrap_or_default()).into())
}

/// The first bits of an address; with a negative amount the last ones. Groups of bits are written
/// as in an address.
fn ipcut(_: &mut State, v: Value, a: Args) -> FilterResult {
    let address = single_address(&v)?.address;
    let (width, amount) = (bits(address) as usize, whole_number(&a, "amount")?);
    let digits = format!("{:0width$b}", number(address));
    let count = usize::try_from(amount.unsigned_abs()).unwrap_or(width).min(width);
    let part = if amount < 0 { &digits[width - count..] } else { &digits[..count] };
    let size = if address.is_ipv4() { 8 } else { 16 };
    let groups = part.as_bytes().chunks(size).map(|group| {
        let n = group.iter().fold(0_u32, |n, digit| n * 2 + u32::from(*digit == b'1'));
        if address.is_ipv4() { n.to_string() } else { format!("{n:x}") }
    });
    Ok(groups.collect::<Vec<_>>().join(if address.is_ipv4() { "." } else { ":" }).into())
}

fn ipv6form(_: &mut State, v: Value, a: Args) -> FilterResult {
    let address = single_address(&v)?.address;
    let IpAddr::V6(v6) = address else { return Ok(show(address).into()) };
    let groups = |width: usize| v6.segments().map(|group| format!("{group:0width$x}")).join(":");
    match a.need_text("format")?.as_str() {
        "expand" => Ok(groups(4).into()),
        "compress" => Ok(show(address).into()),
        "x509" => Ok(groups(1).into()),
        other => Err(failure(format!("You must pass valid format; {other} is not a valid format"))),
    }
}

fn usable_range(_: &mut State, v: Value, _: Args) -> FilterResult {
    let text = python::text(&v)?;
    let net = IpNetwork::parse(&text).ok_or_else(|| invalid_address(&v))?;
    if !net.is_first() {
        return Err(failure(format!("Error while using plugin 'usable_range': {net} has host bits set")));
    }
    if net.host_mask() >= ADDRESSES_MAX {
        return Err(failure(format!("usable_range: {net} has more than {ADDRESSES_MAX} addresses")));
    }
    let all: Vec<Value> = (net.first()..=net.last()).map(|n| show(net.address_at(n)).into()).collect();
    let count = Value::from(all.len());
    Ok(Value::from_pairs([("usable_ips", Value::from(all)), ("number_of_ips", count)]))
}

#[cfg(test)]
mod tests {
    use crate::template::expr::render_text;
    use crate::vars::scope::ExprScope;
    use std::collections::BTreeSet;

    /// Debug builds end on an overflow. Python's numbers have no limit.
    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let scope = ExprScope::new(Vec::new(), BTreeSet::new());
        let least = i128::MIN;
        for (text, expected) in [
            (format!("'10.0.0.9/24' | ansible.utils.previous_nth_usable('{least}')"), "None"),
            (format!("'10.0.0.9/24' | ansible.utils.next_nth_usable('{least}')"), "None"),
            (format!("'10.0.0.9' | ansible.utils.ipsubnet(16, '{least}')"), "False"),
            (format!("'10.0.0.9' | ansible.utils.ipsubnet(16, '{}')", i128::MAX), "False"),
            (format!("'10.0.0.9/24' | ansible.utils.ipsubnet(26, '{least}')"), "False"),
            (
                "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff' | ansible.utils.ipsubnet('::/0')".to_owned(),
                "340282366920938463463374607431768211456",
            ),
        ] {
            assert_eq!(render_text(&scope, &format!("{{{{ {text} }}}}")).unwrap(), expected, "{text}");
        }
    }
}
