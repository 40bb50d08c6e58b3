//! The addresses of this machine, from one netlink request to the kernel. No tool is run and
//! nothing is sent to the network.

use rustix::net::netdevice::index_to_name;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One address of one network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// Name of the network interface that has the address.
    pub interface: String,
    pub address: IpAddr,
    pub broadcast: Option<Ipv4Addr>,
    /// Length of the network prefix in bits.
    pub prefix: u8,
    /// The kernel's scope number: 0 global, 253 link, 254 host.
    pub scope: u8,
    /// Whether the kernel marks the address as an additional one of the same network.
    pub secondary: bool,
}

const HEADER: usize = 16;
const NLMSG_DONE: u16 = 3;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
/// The netlink flags of the request: NLM_F_REQUEST and NLM_F_DUMP.
const DUMP: u16 = 0x301;
const IFA_F_SECONDARY: u8 = 1;
/// Maximum number of messages read, far more than a machine has addresses.
const ANSWERS_MAX: usize = 256;

/// All addresses of all interfaces.
pub fn list_addresses() -> Result<Vec<InterfaceAddress>, rustix::io::Errno> {
    // Protocol 0 (None) is NETLINK_ROUTE.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Recv,
        Some(std::time::Duration::from_secs(2)),
    )?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    let mut request = Vec::new();
    request.extend(24u32.to_ne_bytes());
    request.extend(RTM_GETADDR.to_ne_bytes());
    request.extend(DUMP.to_ne_bytes());
    request.extend([0; 16]);
    rustix::net::sendto(&socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut listed = Vec::new();
    let mut buffer = vec![0u8; 64 << 10];
    for _ in 0..ANSWERS_MAX {
        let (_, len) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        if len == 0 || parse_datagram(&buffer[..len.min(buffer.len())], &mut listed) {
            break;
        }
    }
    // The kernel answers for the network namespace of the socket. The directory /sys may belong to
    // another namespace, in which the numbers belong to other interfaces.
    let mut names = BTreeMap::new();
    listed.retain_mut(|(index, address)| {
        let name = names.entry(*index).or_insert_with(|| index_to_name(&socket, *index).ok());
        name.as_ref().map(|name| address.interface.clone_from(name)).is_some()
    });
    Ok(listed.into_iter().map(|(_, address)| address).collect())
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Parses one netlink datagram to addresses, each with the index of its interface. Returns true if
/// the datagram ends the answer of the kernel.
fn parse_datagram(mut bytes: &[u8], out: &mut Vec<(u32, InterfaceAddress)>) -> bool {
    while let (Some(len), Some(kind)) = (read_u32(bytes, 0), read_u16(bytes, 4)) {
        let len = len as usize;
        if kind == NLMSG_DONE || len < HEADER || len > bytes.len() {
            return true;
        }
        if kind == RTM_NEWADDR {
            out.extend(parse_address(&bytes[HEADER..len]));
        }
        bytes = bytes.get((len + 3) & !3..).unwrap_or_default();
    }
    false
}

fn parse_ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?))),
        16 => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))),
        _ => None,
    }
}

fn parse_address(message: &[u8]) -> Option<(u32, InterfaceAddress)> {
    let (prefix, flags, scope) = (*message.get(1)?, *message.get(2)?, *message.get(3)?);
    let index = read_u32(message, 4)?;
    let (mut own, mut local, mut broadcast) = (None, None, None);
    let mut rest = message.get(8..)?;
    while let (Some(len), Some(kind)) = (read_u16(rest, 0), read_u16(rest, 2)) {
        let len = len as usize;
        let Some(body) = rest.get(4..len) else { break };
        match kind {
            1 => own = parse_ip(body),
            2 => local = parse_ip(body),
            4 => broadcast = parse_ip(body),
            _ => {}
        }
        rest = rest.get((len + 3) & !3..).unwrap_or_default();
    }
    // On a point-to-point link, IFA_ADDRESS is the address of the other end and IFA_LOCAL the
    // address of this machine.
    let address = local.or(own)?;
    let broadcast = if let Some(IpAddr::V4(b)) = broadcast { Some(b) } else { None };
    let secondary = address.is_ipv4() && flags & IFA_F_SECONDARY != 0;
    Some((index, InterfaceAddress { interface: String::new(), address, broadcast, prefix, scope, secondary }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_listed_and_truncated_messages_are_ignored() {
        let all = list_addresses().unwrap();
        let lo = all.iter().find(|a| a.address == IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("127.0.0.1");
        assert_eq!((lo.interface.as_str(), lo.prefix, lo.scope, lo.secondary), ("lo", 8, 254, false));
        for cut in [0, 3, 15, 16, 20] {
            let mut bytes = vec![0u8; cut];
            if let Some(start) = bytes.get_mut(..4) {
                start.copy_from_slice(&200u32.to_ne_bytes());
            }
            let mut out = Vec::new();
            parse_datagram(&bytes, &mut out);
            assert_eq!(out, []);
        }
    }
}
