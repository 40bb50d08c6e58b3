//! The processes of this machine as a tree: the host of each process, and its sockets. Each host
//! has a process that adopts orphans, so no process that a host starts leaves the tree of its host.

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

const END_LIMIT: Duration = Duration::from_secs(10);

/// The parent of each process, at one moment.
pub struct Tree(BTreeMap<i32, i32>);

impl Tree {
    pub fn read() -> Tree {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Tree(pids.filter_map(|pid| Some((pid, parent(pid)?))).collect())
    }

    /// All descendants of `root`, without `root` itself.
    pub fn descendants(&self, root: i32) -> Vec<i32> {
        self.0.keys().copied().filter(|pid| *pid != root && self.ancestry(*pid).any(|one| one == root)).collect()
    }

    /// The process, its parent, the parent's parent and so on.
    fn ancestry(&self, pid: i32) -> impl Iterator<Item = i32> {
        // A process id may be reused while the tree is read. The limit is needed because a cycle is
        // then possible.
        std::iter::successors(Some(pid), |pid| self.0.get(pid).copied()).take(64)
    }
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    words.nth(1)?.parse().ok()
}

/// Kills all descendants of the calling process, including new ones, and waits for their ends.
pub fn end_all_below_me() -> Result<()> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let limit = Instant::now() + END_LIMIT;
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let left = Tree::read().descendants(me);
        if left.is_empty() {
            return Ok(());
        }
        for pid in left.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            let _gone_already = kill_process(pid, Signal::KILL);
        }
        if Instant::now() > limit {
            bail!("processes that can't be ended: {left:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The addresses of the TCP sockets of these processes, of both connecting and accepting sockets.
pub fn sockets(pids: &[i32]) -> BTreeSet<SocketAddrV4> {
    let files = pids.iter().flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten());
    let links = files.filter_map(|file| fs::read_link(file.path()).ok()?.to_str().map(str::to_owned));
    let inode = |link: String| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok();
    let held: BTreeSet<u64> = links.filter_map(inode).collect();
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let rows = table.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let ours = rows.filter(|row| row.get(9).and_then(|i| i.parse().ok()).is_some_and(|inode| held.contains(&inode)));
    ours.filter_map(|row| address(row.get(1)?)).collect()
}

/// Parses an address in the form of the kernel. The IP address is in the machine's byte order.
fn address(hex: &str) -> Option<SocketAddrV4> {
    let (ip, port) = hex.split_once(':')?;
    let ip = u32::from_str_radix(ip, 16).ok()?.to_ne_bytes();
    Some(SocketAddrV4::new(ip.into(), u16::from_str_radix(port, 16).ok()?))
}
