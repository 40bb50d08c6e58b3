//! A thousand nodes join one manager over TLS. As in `remoor join`, each node has its own key and
//! certificate, and the manager dials it back. No agent starts. A manager accepts twenty joins from
//! one address and then one a second, so each node uses its own address.

use crate::COMMAND;
use crate::figures::Figure;
use crate::local::{net, one_manager};
use anyhow::{Context, Result};
use remoor_cluster::rpc::dial_back;
use remoor_cluster::rpc::identity::NodeKey;
use remoor_cluster::rpc::join::{JoinRequest, join};
use remoor_cluster::rpc::token::{Secret, Token};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;

const NODES: u32 = 1_000;

pub fn measure_thousandth_join(runtime: &Runtime) -> Result<Figure> {
    let (dir, at) = (tempfile::tempdir()?, net()(1));
    let _manager = one_manager(dir.path(), at);
    let token = Token::parse(std::fs::read_to_string(dir.path().join("worker"))?.trim())?;
    let (mut first, mut last) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        let relay = TcpListener::bind("127.0.0.1:0").await?;
        let through = relay.local_addr()?.to_string();
        let relaying = tokio::spawn(relay_from_everywhere(relay, (at, 7947).into()));
        // The manager itself is the first of the nodes.
        for number in 1..NODES {
            let key = NodeKey::generate()?;
            let request = request(number, &key)?;
            let advertised: SocketAddr = request.advertise.parse()?;
            let _answering = dial_back::start_answering(advertised, &request.advertise, key.signing_key()).await?;
            let begun = Instant::now();
            join(&through, &token, request).await.with_context(|| format!("node {number}"))?;
            let took = begun.elapsed();
            match number {
                1..=10 => first.push(took),
                _ if number >= NODES - 10 => last.push(took),
                _ => {}
            }
        }
        relaying.abort();
        anyhow::Ok(())
    })?;
    let thousandth = last[last.len() - 1];
    let ms = |took: &mut Vec<Duration>| {
        took.sort_unstable();
        took[took.len() / 2].as_millis()
    };
    let (early, late) = (ms(&mut first), ms(&mut last));
    println!("joins: median of the first ten {early} ms, of the last ten {late} ms");
    Ok(Figure {
        what: "join of the 1000th node to a manager with 999",
        wanted: "under 1 s",
        found: format!("{} ms (median of the last ten {late} ms, of the first ten {early} ms)", thousandth.as_millis()),
        met: thousandth < Duration::from_secs(1),
        command: COMMAND,
    })
}

fn request(number: u32, key: &NodeKey) -> Result<JoinRequest> {
    // The gossip address is an address of this machine too, because gossip dials missing nodes.
    let address = Ipv4Addr::from(0x7f60_0000 + number);
    Ok(JoinRequest {
        secret: Secret::default(),
        proof: String::new(),
        name: format!("w{number}").as_str().into(),
        advertise: format!("{address}:7947"),
        gossip_addr: format!("{address}:7946"),
        node_public_key: hex::encode(key.public()),
        tls_csr_pem: key.csr_pem()?,
        ssh_host_keys: vec![format!("ssh-ed25519 AAAA{number}")],
        machine_id: format!("{number:032x}"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        want_manager: false,
        drain: false,
        zone: String::new(),
        boot: String::new(),
        now: None,
        cluster: None,
    })
}

/// Forwards each connection to the manager, each time from another source address.
async fn relay_from_everywhere(relay: TcpListener, to: SocketAddr) {
    let mut number = 0;
    while let Ok((mut client, _)) = relay.accept().await {
        number += 1;
        let from = Ipv4Addr::from(0x7f40_0000 + number);
        tokio::spawn(async move {
            let socket = TcpSocket::new_v4()?;
            socket.bind((from, 0).into())?;
            let mut manager = socket.connect(to).await?;
            tokio::io::copy_bidirectional(&mut client, &mut manager).await
        });
    }
}
