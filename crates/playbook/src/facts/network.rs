//! Facts about interfaces, addresses, default routes and DNS.

use super::FactsRoot;
use super::address::InterfaceAddress;
use serde_json::{Map, Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of reported interfaces.
const REPORTED_MAX: usize = 500;

pub fn gather_network(root: &FactsRoot, addresses: &[InterfaceAddress], out: &mut Map<String, Value>) {
    let names: Vec<String> = root
        .names("/sys/class/net")
        .into_iter()
        .filter(|n| root.exists(&format!("/sys/class/net/{n}/mtu")))
        .take(REPORTED_MAX)
        .collect();
    for name in &names {
        // Characters that a variable name cannot contain become `_`, as in Ansible.
        out.insert(name.replace(['-', ':', '.'], "_"), interface(root, name, addresses));
    }
    let shown = |a: &InterfaceAddress| a.address.to_string();
    let v4 = addresses.iter().filter(|a| a.address.is_ipv4() && !a.address.is_loopback());
    out.insert("all_ipv4_addresses".into(), json!(v4.map(shown).collect::<Vec<_>>()));
    let v6 = addresses.iter().filter(|a| a.address.is_ipv6() && !a.address.is_loopback());
    out.insert("all_ipv6_addresses".into(), json!(v6.map(shown).collect::<Vec<_>>()));
    out.insert("interfaces".into(), json!(names));
    out.insert("default_ipv4".into(), Value::Object(default_v4(root, addresses).unwrap_or_default()));
    out.insert("default_ipv6".into(), Value::Object(default_v6(root, addresses).unwrap_or_default()));
    out.insert("dns".into(), dns(&root.read("/etc/resolv.conf")));
}

fn kind(root: &FactsRoot, name: &str) -> &'static str {
    let base = format!("/sys/class/net/{name}");
    match root.read_word(&format!("{base}/type")).as_deref() {
        _ if root.exists(&format!("{base}/bridge")) => "bridge",
        _ if root.exists(&format!("{base}/bonding")) => "bonding",
        Some("1") => "ether",
        Some("32") => "infiniband",
        Some("512") => "ppp",
        Some("772") => "loopback",
        Some("65534") => "tunnel",
        _ => "unknown",
    }
}

fn number(root: &FactsRoot, name: &str, file: &str) -> Option<i64> {
    root.read_word(&format!("/sys/class/net/{name}/{file}"))?.parse().ok()
}

/// The MAC address of an interface; an all-zero address counts as none.
fn mac_address(root: &FactsRoot, name: &str) -> Option<String> {
    root.read_word(&format!("/sys/class/net/{name}/address")).filter(|a| !a.is_empty() && a != "00:00:00:00:00:00")
}

fn mask(prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from(u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0))
}

fn v4(address: &InterfaceAddress, own: Ipv4Addr) -> Value {
    let mask = mask(address.prefix);
    json!({
        "address": own.to_string(), "broadcast": address.broadcast.map(|b| b.to_string()).unwrap_or_default(),
        "netmask": mask.to_string(), "network": Ipv4Addr::from(u32::from(own) & u32::from(mask)).to_string(),
        "prefix": address.prefix.to_string(),
    })
}

fn scope_name(scope: u8) -> &'static str {
    match scope {
        0 => "global",
        200 => "site",
        253 => "link",
        254 => "host",
        _ => "unknown",
    }
}

fn interface(root: &FactsRoot, name: &str, addresses: &[InterfaceAddress]) -> Value {
    let base = format!("/sys/class/net/{name}");
    let flags = root.read_word(&format!("{base}/flags"));
    let flags = flags.and_then(|f| u32::from_str_radix(f.trim_start_matches("0x"), 16).ok()).unwrap_or(0);
    let state = root.read_word(&format!("{base}/operstate"));
    let mut fact = json!({
        "device": name, "type": kind(root, name), "promisc": flags & 0x100 != 0,
        "active": state.is_some_and(|s| s != "down"),
    });
    fact["mtu"] = json!(number(root, name, "mtu"));
    if let Some(address) = mac_address(root, name) {
        fact["macaddress"] = json!(address);
    }
    if let Some(speed) = number(root, name, "speed") {
        fact["speed"] = json!(speed);
    }
    for (list, file) in [("interfaces", "brif"), ("slaves", "bonding/slaves")] {
        let names = match file {
            "brif" => root.names(&format!("{base}/brif")),
            _ => root
                .read_word(&format!("{base}/{file}"))
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
        };
        if !names.is_empty() {
            fact[list] = json!(names);
        }
    }
    let (mut more, mut long) = (Vec::new(), Vec::new());
    for address in addresses.iter().filter(|a| a.interface == name) {
        match address.address {
            IpAddr::V4(own) if fact.get("ipv4").is_none() && !address.secondary => fact["ipv4"] = v4(address, own),
            IpAddr::V4(own) => more.push(v4(address, own)),
            IpAddr::V6(own) => long.push(
                json!({"address": own.to_string(), "prefix": address.prefix.to_string(), "scope": scope_name(address.scope)}),
            ),
        }
    }
    for (name, list) in [("ipv4_secondaries", more), ("ipv6", long)] {
        if !list.is_empty() {
            fact[name] = json!(list);
        }
    }
    fact
}

/// The facts that a default route of IPv4 and a default route of IPv6 have in common.
fn route_facts(root: &FactsRoot, name: &str, gateway: IpAddr) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("interface".into(), json!(name));
    if !gateway.is_unspecified() {
        out.insert("gateway".into(), json!(gateway.to_string()));
    }
    out.insert("type".into(), json!(kind(root, name)));
    out.insert("mtu".into(), json!(number(root, name, "mtu")));
    out.extend(mac_address(root, name).map(|a| ("macaddress".to_owned(), json!(a))));
    out
}

/// The facts of the IPv4 default route with the lowest metric. They include the first address of
/// the route's interface.
fn default_v4(root: &FactsRoot, addresses: &[InterfaceAddress]) -> Option<Map<String, Value>> {
    let table = root.read("/proc/net/route");
    let routes = table.lines().skip(1).map(|l| l.split_whitespace().collect::<Vec<_>>());
    let route = routes
        .filter(|f| f.len() > 7 && f[1] == "00000000" && f[7] == "00000000")
        .min_by_key(|f| f[6].parse::<u32>().unwrap_or(u32::MAX))?;
    let gateway = u32::from_str_radix(route[2], 16).ok()?;
    let name = route[0];
    let mut out = route_facts(root, name, IpAddr::V4(Ipv4Addr::from(gateway.swap_bytes())));
    let own = addresses.iter().filter(|a| a.interface == name && a.address.is_ipv4());
    if let Some(address) = own.min_by_key(|a| a.secondary)
        && let IpAddr::V4(ip) = address.address
        && let Value::Object(fields) = v4(address, ip)
    {
        out.extend(fields);
        out.insert("alias".into(), json!(name));
    }
    Some(out)
}

fn default_v6(root: &FactsRoot, addresses: &[InterfaceAddress]) -> Option<Map<String, Value>> {
    let table = root.read("/proc/net/ipv6_route");
    let routes = table.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    let route = routes
        .filter(|f| f.len() > 9 && f[1] == "00" && f[0].bytes().all(|b| b == b'0') && f[9] != "lo")
        .min_by_key(|f| u32::from_str_radix(f[5], 16).unwrap_or(u32::MAX))?;
    let gateway = u128::from_str_radix(route[4], 16).ok()?;
    let name = route[9];
    let mut out = route_facts(root, name, IpAddr::V6(Ipv6Addr::from(gateway)));
    let mut own = addresses.iter().filter(|a| a.interface == name && a.address.is_ipv6());
    if let Some(address) = own.find(|a| a.scope == 0) {
        out.insert("address".into(), json!(address.address.to_string()));
        out.insert("prefix".into(), json!(address.prefix.to_string()));
        out.insert("scope".into(), json!(scope_name(address.scope)));
    }
    Some(out)
}

/// Parses `resolv.conf`.
fn dns(text: &str) -> Value {
    let mut out = Map::new();
    for line in text.lines().filter(|l| !l.trim_start().starts_with(['#', ';'])) {
        let mut words = line.split_whitespace();
        let Some(key) = words.next() else { continue };
        let rest: Vec<&str> = words.collect();
        match key {
            "nameserver" => match out.get_mut("nameservers") {
                Some(Value::Array(list)) => list.extend(rest.iter().map(|w| json!(w))),
                _ => {
                    out.insert("nameservers".into(), json!(rest));
                }
            },
            "domain" => out.extend(rest.first().map(|d| ("domain".to_owned(), json!(d)))),
            "search" | "sortlist" => {
                out.insert(key.into(), json!(rest));
            }
            "options" => {
                let pairs = rest.iter().map(|option| match option.split_once(':') {
                    Some((name, value)) => (name.to_owned(), json!(value)),
                    None => ((*option).to_owned(), json!(true)),
                });
                out.insert("options".into(), Value::Object(pairs.collect()));
            }
            _ => {}
        }
    }
    Value::Object(out)
}
