//! The lab's own control groups. All processes that the lab started are in them, and the lab
//! signals no other process.
//!
//! The cgroup2 tree decides which processes belong to the lab. On a hybrid machine (version 1 with
//! an additional cgroup2 mount), the processes also enter the same path in systemd's named
//! version-1 tree, because systemd-nspawn reads its own position in that tree.

use super::tool::wait_for;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The paths of this lab's group in the control-group trees of this machine.
#[derive(Debug, Clone)]
pub struct Groups {
    unified: PathBuf,
    named: Option<PathBuf>,
}

impl Groups {
    /// Finds the control-group trees of this machine, and the path of `group` in each. Nothing is
    /// created. The error names the missing tree.
    pub fn find(group: &str) -> Result<Groups, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|e| format!("/proc/self/mounts: {e}"))?;
        let (mut unified, mut named) = (None, None);
        for line in mounts.lines() {
            let mut field = line.split(' ').skip(1);
            let (Some(place), Some(kind), Some(options)) = (field.next(), field.next(), field.next()) else { continue };
            match kind {
                "cgroup2" => unified = Some(Path::new(place).join(group)),
                "cgroup" if options.split(',').any(|o| o == "name=systemd") => {
                    named = Some(Path::new(place).join(group));
                }
                _ => {}
            }
        }
        let unified = unified.ok_or("no cgroup2 tree is mounted, neither alone nor beside version 1")?;
        Ok(Groups { unified, named })
    }

    /// The kind of control groups on this machine, for messages.
    pub fn kind(&self) -> &'static str {
        if self.named.is_some() { "hybrid (cgroup2 beside version 1)" } else { "cgroup2" }
    }

    fn trees(&self) -> impl Iterator<Item = &Path> {
        [Some(self.unified.as_path()), self.named.as_deref()].into_iter().flatten()
    }

    pub fn make(&self, part: &str) -> Result<()> {
        for tree in self.trees() {
            let dir = tree.join(part);
            fs::create_dir_all(&dir).with_context(|| format!("creating the control group {}", dir.display()))?;
        }
        Ok(())
    }

    /// A shell script that moves the shell itself into `part`. With `set -e` the shell ends if the
    /// kernel refuses the move.
    pub fn enter(&self, part: &str) -> String {
        self.trees().map(|tree| format!("echo 0 > '{}/cgroup.procs'\n", tree.join(part).display())).collect()
    }

    /// The ids on this machine of all processes in `part` and below. An empty `part` means the
    /// whole lab.
    pub fn pids(&self, part: &str) -> BTreeSet<i32> {
        let mut pids = BTreeSet::new();
        for tree in self.trees() {
            walk(&tree.join(part), &mut |dir| {
                let listed = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
                pids.extend(listed.lines().filter_map(|pid| pid.parse::<i32>().ok()).filter(|pid| *pid > 1));
            });
        }
        pids
    }

    /// Freezes or thaws every process of `part`. The kernel still answers on the network for frozen
    /// processes, as on a hung machine.
    pub fn freeze(&self, part: &str, on: bool) -> Result<()> {
        let file = self.unified.join(part).join("cgroup.freeze");
        fs::write(&file, if on { "1" } else { "0" }).with_context(|| format!("writing {}", file.display()))
    }

    /// Kills all processes in `part`, and waits until they have ended.
    pub fn kill(&self, part: &str) -> Result<()> {
        wait_for("the lab's processes to end", Duration::from_secs(120), || {
            let left = self.pids(part);
            for pid in left.iter().filter_map(|pid| Pid::from_raw(*pid)) {
                let _ = kill_process(pid, Signal::KILL);
            }
            left.is_empty().then_some(())
        })
    }

    /// Removes the empty groups of `part`.
    pub fn remove(&self, part: &str) {
        for tree in self.trees() {
            let mut dirs = Vec::new();
            walk(&tree.join(part), &mut |dir| dirs.push(dir.to_owned()));
            for dir in dirs.iter().rev() {
                // The kernel releases a group a moment after the end of its last process.
                let _ = wait_for("an empty group", Duration::from_secs(2), || match fs::remove_dir(dir) {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => None,
                    _ => Some(()),
                });
            }
        }
    }
}

/// Calls `see` for `dir` and everything below it, parents first.
fn walk(dir: &Path, see: &mut impl FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    see(dir);
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), see);
        }
    }
}
