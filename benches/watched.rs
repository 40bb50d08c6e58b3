//! The cost at rest of an agent that watches many files. `benches/files.rs` starts a separate
//! process for it, which contains only the agent's watcher and digest pass. The measurement takes
//! one interval between two digest passes.

use remoor_host::files::trim_memory;
use remoor_host::files::{Cache, Servers, digest_with_servers, directories, watch};
use remoor_model::NodeManifest;
use std::fs;
use std::io;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The default interval between two digest passes of the agent.
const INTERVAL: Duration = Duration::from_secs(60);
/// Time after a digest pass until the agent returns freed memory to the system.
const SETTLE: Duration = Duration::from_secs(2);
/// The first argument of the watching process. The other arguments are the folder and the number of
/// entries that its digest must have.
const WATCH: &str = "--watched";
/// Number of the kernel's time units in `/proc` per second.
const TICKS_A_SECOND: f64 = 100.0;

/// The result of the measurement, as the watching process prints it.
pub struct Cost {
    /// Processor time, in percent of one core.
    pub percent: f64,
    /// Resident memory at the end of the interval, in MB.
    pub rest: f64,
    /// Maximum resident memory during the interval, in MB.
    pub most: f64,
}

/// Runs this program again as a process that watches `dir` and everything below it.
pub fn measure(dir: &str, entries: usize) -> Option<Cost> {
    let this = std::env::current_exe().ok()?;
    let output = Command::new(this).args([WATCH, dir, &entries.to_string()]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    Some(Cost { percent: numbers.next()?, rest: numbers.next()?, most: numbers.next()? })
}

/// Runs the measurement and returns true if this process is the watching process. Otherwise returns
/// false.
pub fn is_watcher(manifest: impl Fn(&str) -> NodeManifest) -> bool {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, first, dir, entries, ..] = &arguments[..] else { return false };
    if first != WATCH {
        return false;
    }
    if let Err(error) = run_watcher(&manifest(dir), entries.parse().unwrap_or_default()) {
        println!("{error}");
    }
    true
}

fn run_watcher(manifest: &NodeManifest, entries: usize) -> io::Result<()> {
    let mut watcher = watch(directories(manifest, &Servers::now()), drop).map_err(io::Error::other)?;
    let mut cache = Cache::default();
    // The digest pass runs in a thread, as in the agent, so that the stack is freed after it.
    let mut pass = || {
        let servers = Servers::now();
        watcher.set(directories(manifest, &servers));
        let look = || digest_with_servers(manifest, &[7; 32], &mut cache, &servers);
        let digest = thread::scope(|scope| scope.spawn(look).join());
        let service = digest.ok().and_then(|mut digest| digest.services.remove("bench")).unwrap_or_default();
        assert_eq!((service.entries.len(), service.unreadable.len()), (entries, 0));
        drop(service);
        thread::sleep(SETTLE);
        trim_memory();
    };
    pass();
    let (began, before) = (Instant::now(), ticks()?);
    fs::write("/proc/self/clear_refs", "5")?; // resets the peak
    thread::sleep(INTERVAL / 2);
    pass();
    thread::sleep(INTERVAL.saturating_sub(began.elapsed()));
    let seconds = (ticks()? - before) / TICKS_A_SECOND;
    let percent = seconds / began.elapsed().as_secs_f64() * 100.0;
    println!("{percent:.3} {:.2} {:.2}", status_mb("VmRSS:")?, status_mb("VmHWM:")?);
    Ok(())
}

/// Processor time of this process, including its ended threads.
fn ticks() -> io::Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the process is in brackets and may contain blanks.
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    Ok(after.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum())
}

fn status_mb(key: &str) -> io::Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>().map_or(f64::NAN, |kb| kb / 1024.0))
}
