//! `recover --set-addr` without a new cluster. Records new addresses of nodes in the data directory
//! of a stopped daemon. The epoch, the log and the keys stay the same. One new address of another
//! node is enough, because the daemon then receives all other addresses by gossip.

use super::admin::AdminError;
use super::incomplete_init;
use super::layout::{Layout, NodeConfig};
use super::recover::{NodePlacement, RecoverError};
use crate::agent::PeerBook;
use remoor_cluster::gossip::cache;
use remoor_host::disk::DiskError;
use std::net::SocketAddr;
use std::path::Path;

/// Records the address of each named node. Returns the name of this node, and each name with its
/// new gossip address. Nothing is recorded if a name is unknown. Blocks.
pub fn record_addresses(
    dir: &Path,
    places: &[(String, NodePlacement)],
) -> Result<(String, Vec<(String, SocketAddr)>), RecoverError> {
    let none = |why| RecoverError::NoNode { dir: dir.to_owned(), why };
    if !dir.join("identity.json").exists() {
        return Err(none("it has no identity.json"));
    }
    let data = incomplete_init::open(dir)?;
    let identity = data.identity()?.ok_or_else(|| none("it has no identity.json"))?;
    let layout = Layout(dir.to_owned());
    let mut config = NodeConfig::load(dir).map_err(RecoverError::NodeFile)?;
    let book = PeerBook::load(layout.peers())?;
    let mut addresses = cache::load(&layout.addresses()).unwrap_or_default();
    let mut recorded = Vec::new();
    for (name, place) in places {
        let gossip: SocketAddr = if *name == identity.name.as_str() {
            config.advertise = place.ip;
            (config.api_port, config.gossip_port) = place.ports.unwrap_or((config.api_port, config.gossip_port));
            config.gossip()
        } else {
            let peer = book.peers.iter().chain(&book.managers).find(|peer| peer.name.as_str() == name);
            let peer = peer.ok_or_else(|| RecoverError::NoSuchNode(name.clone()))?;
            let before = peer.gossip_addr.parse::<SocketAddr>().map_or(config.gossip_port, |addr| addr.port());
            let gossip = (place.ip, place.ports.map_or(before, |(_, gossip)| gossip)).into();
            let known = addresses.entry(peer.name.clone()).or_default();
            known.retain(|addr| *addr != gossip);
            known.insert(0, gossip);
            known.truncate(cache::ADDRS_MAX);
            gossip
        };
        recorded.push((name.clone(), gossip));
    }
    config.check().map_err(AdminError::Address)?;
    let saved = cache::save(&layout.addresses(), &addresses);
    saved.map_err(|e| DiskError::io("writing", &layout.addresses())(std::io::Error::other(e)))?;
    config.save(dir)?;
    Ok((identity.name.to_string(), recorded))
}
