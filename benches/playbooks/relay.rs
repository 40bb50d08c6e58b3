//! A slow link to a host: forwards data in both directions after a delay. It works in userspace,
//! because few kernels of virtual machines support delays (netem). It runs until the bench ends.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of blocks of data on their way. If the queue is full, the sender waits.
const PIECES: usize = 1024;
const PIECE: usize = 64 * 1024;

/// Forwards connections from `here` to `there` with a delay of `one_way` in each direction.
pub fn start(here: SocketAddr, there: SocketAddr, one_way: Duration) -> Result<()> {
    let listener = TcpListener::bind(here).with_context(|| format!("relay at {here}"))?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // An error of the connection is ignored here, because the tool reports a broken
            // connection.
            thread::spawn(move || carry(client, there, one_way));
        }
    });
    Ok(())
}

fn carry(client: TcpStream, there: SocketAddr, one_way: Duration) -> std::io::Result<()> {
    // Simulates the round trip of a TCP handshake, because a handshake on the loopback takes no
    // time.
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
            // An empty block marks the end of the data.
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
