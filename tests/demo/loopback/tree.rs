//! The processes of this machine as a tree: who belongs to which host, and whose socket that is. Each host has a process
//! that adopts whatever is orphaned below it, so nothing that a host starts leaves its tree.

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

const END_LIMIT: Duration = Duration::from_secs(10);

/// Parent by process, at one moment.
pub struct Tree(BTreeMap<i32, i32>);

impl Tree {
    pub fn read() -> Tree {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Tree(pids.filter_map(|pid| Some((pid, parent(pid)?))).collect())
    }

    /// All that descend from `root`, itself left out.
    pub fn below(&self, root: i32) -> Vec<i32> {
        self.0.keys().copied().filter(|pid| *pid != root && self.ancestry(*pid).any(|one| one == root)).collect()
    }

    /// The process, its parent and so on.
    fn ancestry(&self, pid: i32) -> impl Iterator<Item = i32> {
        // A pid may be used anew while the tree is read, so a circle is possible.
        std::iter::successors(Some(pid), |pid| self.0.get(pid).copied()).take(64)
    }
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    words.nth(1)?.parse().ok()
}

/// Kills everything below the calling process, also what starts meanwhile, and takes leave of it.
pub fn end_all_below_me() -> Result<()> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let limit = Instant::now() + END_LIMIT;
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let left = Tree::read().below(own);
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

/// Below which of `roots` the process is that holds the connecting end of a connection `from` -> `to`. None: none of them,
/// or it is gone.
pub fn owner(from: SocketAddrV4, to: SocketAddrV4, roots: &[(String, i32)]) -> Option<String> {
    let socket = format!("socket:[{}]", inode(&fs::read_to_string("/proc/net/tcp").ok()?, from, to)?);
    let tree = Tree::read();
    let holds = |pid: &i32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|link| link.to_str() == Some(&socket))
    };
    roots.iter().find(|(_, root)| tree.below(*root).iter().any(holds)).map(|(host, _)| host.clone())
}

fn inode(table: &str, local: SocketAddrV4, remote: SocketAddrV4) -> Option<u64> {
    let (local, remote) = (hex(local), hex(remote));
    let rows = table.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let mut found = rows.filter(|row| row.get(1) == Some(&local.as_str()) && row.get(2) == Some(&remote.as_str()));
    found.next()?.get(9)?.parse().ok()
}

/// As the kernel prints it: the address in the machine's own byte order.
fn hex(addr: SocketAddrV4) -> String {
    format!("{:08X}:{:04X}", u32::from_ne_bytes(addr.ip().octets()), addr.port())
}
