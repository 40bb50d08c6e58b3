//! Receives notifications from the kernel about changed links, addresses and routes. It reports
//! only that something changed.

use futures_util::StreamExt;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use std::sync::Arc;
use tokio::sync::Notify;

const GROUPS: [MulticastGroup; 5] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

/// Notifies `bell` at each change. Returns only if netlink fails, with the reason.
pub async fn listen(bell: Arc<Notify>) -> std::io::Error {
    let (connection, _handle, mut messages) = match new_multicast_connection(&GROUPS) {
        Ok(parts) => parts,
        Err(error) => return error,
    };
    tokio::select! {
        () = connection => {}
        () = async {
            while messages.next().await.is_some() {
                bell.notify_one();
            }
        } => {}
    }
    std::io::Error::other("the netlink socket was closed")
}
