//! A long way to a host: what comes is handed on a while later, in both directions. In userspace, since few kernels of virtual
//! machines can delay (netem). It lasts as long as the bench.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Pieces on their way; more wait with the sender.
const PIECES: usize = 1024;
const PIECE: usize = 64 * 1024;

/// Takes connections at `here` to `there`, each way taking `one_way`.
pub fn start(here: SocketAddr, there: SocketAddr, one_way: Duration) -> Result<()> {
    let listener = TcpListener::bind(here).with_context(|| format!("relay at {here}"))?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A connection that breaks is the tool's to tell.
            thread::spawn(move || carry(client, there, one_way));
        }
    });
    Ok(())
}

fn carry(client: TcpStream, there: SocketAddr, one_way: Duration) -> std::io::Result<()> {
    // The round trip of the handshake, for which the loopback takes no time.
    thread::sleep(2 * one_way);
    let server = TcpStream::connect(there)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || pass(from, to, one_way));
    pass(server, client, one_way);
    Ok(())
}

fn pass(mut from: TcpStream, mut to: TcpStream, one_way: Duration) {
    let (queue, under_way) = mpsc::sync_channel::<(Instant, Vec<u8>)>(PIECES);
    thread::spawn(move || {
        for (due, piece) in under_way {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            // An empty one is the end.
            if piece.is_empty() || to.write_all(&piece).is_err() {
                break;
            }
        }
        let _closed_already = to.shutdown(Shutdown::Write);
    });
    let mut buffer = vec![0; PIECE];
    loop {
        let read = from.read(&mut buffer).unwrap_or(0);
        if queue.send((Instant::now() + one_way, buffer[..read].to_vec())).is_err() || read == 0 {
            return;
        }
    }
}
