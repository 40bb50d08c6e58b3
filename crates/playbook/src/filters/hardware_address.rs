//! `hwaddr`, `macaddr` and `slaac` of Ansible's collection ansible.utils.

use super::ip_network::{WrittenNetwork, show};
use super::{Args, Filter, FilterResult, failure, filter};
use minijinja::value::ValueKind;
use minijinja::{State, Value};

pub const FILTERS: &[Filter] = &[
    filter("hwaddr", &["query", "alias"], |_, v, a| query_address("hwaddr", &v, &a)),
    filter("macaddr", &["query"], |_, v, a| query_address("macaddr", &v, &a)),
    filter("slaac", &["query"], slaac),
];

/// A hardware address of 48 or 64 bits.
struct HardwareAddress {
    number: u64,
    is_long: bool,
}

impl HardwareAddress {
    /// Parses an address: hexadecimal digits without separators, or groups of digits with `:`, `-`
    /// or `.` between them.
    fn parse(text: &str) -> Option<Self> {
        let separator = [':', '-', '.'].into_iter().find(|separator| text.contains(*separator));
        let groups: Vec<&str> = separator.map_or_else(|| vec![text], |separator| text.split(separator).collect());
        if !groups.iter().all(|group| group.bytes().all(|b| b.is_ascii_hexdigit())) {
            return None;
        }
        let shortest = groups.iter().map(|group| group.len()).min()?;
        let longest = groups.iter().map(|group| group.len()).max()?;
        let size = match (groups.len(), separator) {
            (1, _) if (11..=16).contains(&longest) => 0,
            (2, Some(':' | '-')) if shortest >= 5 && longest <= 6 => 24,
            (3 | 4, _) if shortest >= 1 && longest <= 4 => 16,
            (6 | 8, Some(':' | '-')) if shortest >= 1 && longest <= 2 => 8,
            _ => return None,
        };
        let mut number = 0_u64;
        for group in &groups {
            number = number.checked_shl(size).unwrap_or(0) | u64::from_str_radix(group, 16).ok()?;
        }
        let is_long = matches!(groups.len(), 4 | 8) || groups.len() == 1 && longest > 12;
        Some(Self { number, is_long })
    }

    /// Writes the address as groups of `digits` digits.
    fn groups(&self, digits: u32, separator: &str, padded: bool) -> String {
        let width = if padded { digits as usize } else { 1 };
        let count = 12 / digits;
        let group = |at: u32| {
            let n = self.number >> (4 * digits * (count - 1 - at)) & ((1 << (4 * digits)) - 1);
            format!("{n:0width$x}")
        };
        (0..count).map(group).collect::<Vec<_>>().join(separator)
    }

    /// The identifier that an IPv6 address of this interface has.
    fn interface_identifier(&self) -> u64 {
        let long = match self.is_long {
            true => self.number,
            false => self.number >> 24 << 40 | 0xff_fe00_0000 | self.number & 0xff_ffff,
        };
        long ^ 0x0200_0000_0000_0000
    }
}

fn query_address(name: &str, v: &Value, a: &Args) -> FilterResult {
    let query = a.text("query")?.unwrap_or_default();
    let found = v.as_str().and_then(HardwareAddress::parse);
    let Some(address) = found else {
        return match query.as_str() {
            "" | "bool" => Ok(().into()),
            _ => Err(failure(format!("{name}: not a hardware address: {v}"))),
        };
    };
    let text = match query.as_str() {
        "" => return Ok(v.clone()),
        "bool" => return Ok(true.into()),
        "int" => return Ok(address.number.into()),
        _ if address.is_long => return Err(failure(format!("{name}: `{query}` needs an address of 48 bits"))),
        "bare" => address.groups(12, "", true).to_uppercase(),
        "cisco" => address.groups(4, ".", true),
        "eui48" | "win" => address.groups(2, "-", true).to_uppercase(),
        "linux" => address.groups(2, ":", true),
        "pgsql" | "postgresql" | "psql" => address.groups(6, ":", true),
        "unix" => address.groups(2, ":", false),
        other => return Err(failure(format!("{name}: unknown filter type: {other}"))),
    };
    Ok(text.into())
}

/// The address that a host with a hardware address has in an IPv6 network.
fn slaac(_: &mut State, v: Value, a: Args) -> FilterResult {
    let is_list = matches!(v.kind(), ValueKind::Seq | ValueKind::Iterable);
    let network = WrittenNetwork::read(&v, None).filter(|written| !is_list && !written.net.address.is_ipv4());
    let address = a.text("query")?.as_deref().and_then(HardwareAddress::parse);
    let (Some(WrittenNetwork { net, .. }), Some(address)) = (network, address) else { return Ok(false.into()) };
    match net.address_beside(net.first(), address.interface_identifier().into()) {
        Some(address) => Ok(show(address).into()),
        None => Err(failure("slaac: the result is no IPv6 address")),
    }
}
