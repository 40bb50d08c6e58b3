//! `addr`: whether a TCP connection can be made. UDP has no connections, so for UDP the answer is
//! whether a route exists.

use super::resolve::resolve;
use super::{ProbeAnswer, ProbeAnswers, ProbeContext, ProbeError, failed_error, unknown_error};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const DEFAULT_MS: u64 = 500;

/// Err: the reason why the address, or the local address, is not valid.
pub(super) fn validate(name: &str, local: Option<&str>) -> Result<(), String> {
    let (network, address) = split(name);
    if !matches!(network, "tcp" | "udp") || !is_host_and_port(address) {
        return Err(format!("`{name}` is not an address; write tcp://HOST:PORT or udp://HOST:PORT"));
    }
    match local {
        Some(local) if local.parse::<IpAddr>().is_err() => {
            Err(format!("`local-address: {local}` is not an IP address"))
        }
        _ => Ok(()),
    }
}

/// Splits off the scheme. As in goss, the default is TCP.
fn split(name: &str) -> (&str, &str) {
    name.split_once("://").unwrap_or(("tcp", name))
}

/// Whether `address` is `HOST:PORT` with a numeric port.
pub(super) fn is_host_and_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let (network, address) = split(&ask.check.name);
    if validate(&ask.check.name, None).is_err() {
        // Only a plain goss file can contain such an address.
        return ProbeAnswers::from([("reachable", Ok(false.into()))]);
    }
    let local = ask.argument("local-address").and_then(|local| local.parse().ok());
    let reachable = match reachable(network, address, local, ask.timeout(DEFAULT_MS)) {
        Err(ProbeError::Unknown(_)) if ask.check.as_goss => Ok(false.into()),
        answer => answer,
    };
    ProbeAnswers::from([("reachable", reachable)])
}

fn reachable(network: &str, address: &str, local: Option<IpAddr>, timeout: Duration) -> ProbeAnswer {
    let deadline = Instant::now() + timeout;
    let resolved = resolve(address, timeout)?;
    if resolved.is_empty() {
        return Err(unknown_error("there is no such name"));
    }
    for address in resolved {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let open = match (network, local) {
            ("udp", _) => has_route(address, local)?,
            (_, None) => TcpStream::connect_timeout(&address, left).is_ok(),
            (_, Some(local)) => connect_from(address, local, left)?,
        };
        if open {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

/// Whether the kernel has a route to the address. No datagram is sent, because its answer, or a
/// missing answer, would not be reliable.
fn has_route(address: SocketAddr, local: Option<IpAddr>) -> Result<bool, ProbeError> {
    let any = if address.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = local.unwrap_or(any);
    if from.is_ipv4() != address.is_ipv4() {
        return Ok(false);
    }
    let socket = UdpSocket::bind((from, 0)).map_err(|e| not_local(from, &e))?;
    Ok(socket.connect(address).is_ok())
}

/// Connects from a given local address, which `TcpStream::connect_timeout` does not support.
fn connect_from(address: SocketAddr, local: IpAddr, timeout: Duration) -> Result<bool, ProbeError> {
    if local.is_ipv4() != address.is_ipv4() {
        return Ok(false);
    }
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(unknown_error)?;
    bind(&socket, &SocketAddr::new(local, 0)).map_err(|e| not_local(local, &e))?;
    match connect(&socket, &address) {
        Ok(()) => return Ok(true),
        Err(Errno::INPROGRESS) => {}
        Err(_) => return Ok(false),
    }
    let wait = Timespec::try_from(timeout).map_err(unknown_error)?;
    let mut polled = [PollFd::new(&socket, PollFlags::OUT)];
    let ready = poll(&mut polled, Some(&wait)).map_err(unknown_error)?;
    Ok(ready > 0 && sockopt::socket_error(&socket).map_err(unknown_error)?.is_ok())
}

fn not_local(local: IpAddr, error: &dyn std::fmt::Display) -> ProbeError {
    failed_error(format!("local-address {local}: {error}"))
}
