//! `interface`: network interfaces with addresses and MTU, as the kernel lists them by rtnetlink.

use super::{ProbeAnswers, ProbeContext, failed_error, unknown_error};
use futures_util::TryStreamExt;
use rtnetlink::Handle;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::LinkAttribute;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    mtu: Option<u32>,
    /// Addresses such as `192.0.2.7/24`, in the kernel's order.
    addrs: Vec<String>,
}

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let interfaces = match ask.world.interfaces() {
        Ok(interfaces) => interfaces,
        Err(why) => return ProbeAnswers::from([("exists", Err(unknown_error(why)))]),
    };
    let Some(interface) = interfaces.get(&ask.check.name) else {
        return ProbeAnswers::from([("exists", Ok(false.into()))]);
    };
    ProbeAnswers::from([
        ("exists", Ok(true.into())),
        ("addrs", Ok(interface.addrs.clone().into())),
        ("mtu", interface.mtu.map(Into::into).ok_or_else(|| failed_error("the interface has no MTU"))),
    ])
}

/// All interfaces by name. Blocks for at most `limit`.
pub(super) fn list(limit: Duration) -> Result<BTreeMap<String, Interface>, String> {
    // The query runs on a separate thread, because the caller's thread may already belong to a
    // runtime.
    let asked = thread::Builder::new().name("rtnetlink".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection().map_err(|e| e.to_string())?;
            tokio::spawn(connection);
            match tokio::time::timeout(limit, dump(&handle)).await {
                Ok(found) => found.map_err(|e| e.to_string()),
                Err(_) => Err(format!("no answer within {} ms", limit.as_millis())),
            }
        })
    });
    let thread = asked.map_err(|e| e.to_string())?;
    thread
        .join()
        .unwrap_or_else(|_| Err("the query to the kernel panicked".to_owned()))
        .map_err(|e| format!("rtnetlink: {e}"))
}

async fn dump(handle: &Handle) -> Result<BTreeMap<String, Interface>, rtnetlink::Error> {
    let mut named: BTreeMap<u32, (String, Interface)> = BTreeMap::new();
    let mut links = handle.link().get().execute();
    while let Some(link) = links.try_next().await? {
        let mut interface = Interface::default();
        let mut name = None;
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::IfName(text) => name = Some(text),
                LinkAttribute::Mtu(mtu) => interface.mtu = Some(mtu),
                _ => {}
            }
        }
        named.extend(name.map(|name| (link.header.index, (name, interface))));
    }
    let mut addresses = handle.address().get().execute();
    while let Some(address) = addresses.try_next().await? {
        let Some((_, interface)) = named.get_mut(&address.header.index) else { continue };
        let ip = own_address(&address.attributes);
        interface.addrs.extend(ip.map(|ip| format!("{ip}/{}", address.header.prefix_len)));
    }
    Ok(named.into_values().collect())
}

/// The interface's own address. On a point-to-point link, `Address` is the address of the other
/// end.
fn own_address(attributes: &[AddressAttribute]) -> Option<IpAddr> {
    let local = attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    local.or_else(|| {
        attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(ip) => Some(*ip),
            _ => None,
        })
    })
}
