//! The capacity of this machine, read from /proc and never changed: memory, inotify instances, and
//! stalls.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Memory in bytes that is available without swapping.
pub fn memory_available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Maximum number of inotify instances of one user. None: the kernel does not report it.
pub fn inotify_limit() -> Option<usize> {
    fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").ok()?.trim().parse().ok()
}

/// Number of inotify instances of root that /proc lists. Instances that several processes share are
/// counted several times.
pub fn inotify_used() -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_root = processes.filter(|p| p.metadata().is_ok_and(|meta| meta.uid() == 0));
    let files = of_root.flat_map(|p| fs::read_dir(p.path().join("fd")).into_iter().flatten().flatten());
    files.filter(|f| fs::read_link(f.path()).is_ok_and(|to| to.to_string_lossy().contains("inotify"))).count()
}

/// Records how long this machine stalled. If a test fails during a stall, the failure may have
/// nothing to do with the program.
#[derive(Debug)]
pub struct Stalls {
    longest_ms: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl Stalls {
    pub fn watch() -> Stalls {
        let stalls = Stalls { longest_ms: Arc::default(), ended: Arc::default() };
        let (longest, ended) = (stalls.longest_ms.clone(), stalls.ended.clone());
        std::thread::spawn(move || {
            const TICK: Duration = Duration::from_millis(100);
            while !ended.load(Ordering::Relaxed) {
                let begun = Instant::now();
                std::thread::sleep(TICK);
                longest.fetch_max(begun.elapsed().saturating_sub(TICK).as_millis() as u64, Ordering::Relaxed);
            }
        });
        stalls
    }

    /// The longest stall since the start or the previous call.
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.longest_ms.swap(0, Ordering::Relaxed))
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

#[test]
fn this_machine_reports_its_capacity() {
    assert!(memory_available() > 1 << 20);
    assert!(inotify_limit() > Some(0));
}
