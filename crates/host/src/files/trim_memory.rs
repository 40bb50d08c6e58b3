//! Returns unused memory to the kernel: pages of the program and its libraries, and free heap. The
//! daemon does this when it is idle, `check --file` once before it begins, and an executor between
//! tasks.
//!
//! The kernel maps the pages of a file in groups of 16 around each touched page. Therefore a start,
//! a join, an examination and a task leave most of the program resident, although few of its pages
//! are needed again soon. These pages are unmodified: they stay in the page cache and are mapped
//! again on the next access, without a read from disk.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// Device and inode of a file, as in `/proc`.
type DeviceInode = (String, u64);

/// The files whose pages may be given back: the program and the libraries that were loaded with it.
/// They stay mapped until the process ends.
pub struct LoadedFiles(BTreeSet<DeviceInode>);

/// A mapping as in `/proc/self/smaps`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    start: usize,
    end: usize,
    /// `r-xp`: readable, writable, executable, private or shared.
    rights: String,
    file: DeviceInode,
    path: String,
    resident_kb: u64,
    /// Pages that differ from the file, in memory or in swap: relocated tables, breakpoints.
    own_kb: u64,
    locked_kb: u64,
}

/// Trims the memory of a process between its steps. Trimming takes some milliseconds, and the pages
/// that the next step needs are mapped again. Therefore memory is trimmed before a step only in two
/// cases: the last trimming was at least a second ago, or the resident memory has grown by half.
/// The growth is measured from the end of the first step after the last trimming.
#[derive(Debug)]
pub struct StepTrim {
    /// Memory is not trimmed while at most this much is resident, in KiB.
    floor_kb: usize,
    last: Option<TrimPass>,
}

/// The time of the last trimming, and the resident memory after it.
#[derive(Debug)]
struct TrimPass {
    at: Instant,
    /// The resident KiB at the end of the first step after this trimming. That step has mapped the
    /// pages that it needs. None: that step has not ended.
    base_kb: Option<usize>,
}

/// The time after the last trimming from which memory is trimmed even if it has grown little.
const TRIM_SPACING: Duration = Duration::from_secs(1);

impl StepTrim {
    /// Trims nothing while at most `floor_kb` KiB are resident.
    pub fn with_floor(floor_kb: usize) -> Self {
        Self { floor_kb, last: None }
    }

    /// Trims memory if this is due. Called before each step. Reading the size of the resident
    /// memory takes microseconds.
    pub fn before_step(&mut self) {
        if self.is_due(resident_kb(), Instant::now()) {
            trim_memory();
        }
    }

    /// Whether memory must be trimmed before the next step. If true, the trimming is recorded.
    fn is_due(&mut self, resident_kb: usize, now: Instant) -> bool {
        let due = match &mut self.last {
            None => true,
            Some(pass) => {
                let base_kb = *pass.base_kb.get_or_insert(resident_kb);
                resident_kb > base_kb + base_kb / 2 || now.saturating_duration_since(pass.at) >= TRIM_SPACING
            }
        };
        let due = due && resident_kb > self.floor_kb;
        if due {
            self.last = Some(TrimPass { at: now, base_kb: None });
        }
        due
    }
}

/// The resident memory of this process in KiB; 0 if it cannot be read.
fn resident_kb() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<usize> = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or_default() * rustix::param::page_size() / 1024
}

/// Trims memory, for a process that begins a different kind of work. A failure is only logged,
/// because then the pages just stay resident.
pub fn trim_memory() {
    if let Err(error) = LoadedFiles::now().and_then(|loaded| loaded.give_back()) {
        tracing::debug!(%error, "the pages of the program stay resident");
    }
}

impl LoadedFiles {
    /// The files that have an executable mapping now.
    pub fn now() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/self/smaps")?;
        let code = mappings(&text).into_iter().filter(|m| m.rights == "r-xp" && m.file.1 != 0 && m.is_path());
        Ok(Self(code.map(|m| m.file).collect()))
    }

    /// Returns unused memory to the kernel once. The result is the KiB that were resident in the
    /// trimmed mappings.
    pub fn give_back(&self) -> io::Result<u64> {
        trim_heap();
        let text = fs::read_to_string("/proc/self/smaps")?;
        let mut kb = 0;
        for mapping in mappings(&text).into_iter().filter(|m| self.may_go(m)) {
            drop_pages(&mapping)?;
            kb += mapping.resident_kb;
        }
        Ok(kb)
    }

    /// Whether the pages of a mapping may be given back: only pages that can be read again
    /// unchanged from the file. The mapping is read-only, private, not locked, and has no modified
    /// page.
    fn may_go(&self, mapping: &Mapping) -> bool {
        matches!(mapping.rights.as_str(), "r--p" | "r-xp")
            && self.0.contains(&mapping.file)
            && mapping.is_path()
            && (mapping.own_kb, mapping.locked_kb) == (0, 0)
            && mapping.resident_kb > 0
    }
}

impl Mapping {
    fn is_path(&self) -> bool {
        self.path.starts_with('/')
    }
}

/// Parses smaps as in proc_pid_smaps(5). A mapping without one of the numbers is omitted.
fn mappings(smaps: &str) -> Vec<Mapping> {
    let mut blocks: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in smaps.lines() {
        // A mapping's first line begins with its addresses, without a colon. The lines
        // `Key:   12 kB` of the mapping follow it.
        let first = line.split(' ').next().unwrap_or_default();
        match blocks.last_mut() {
            Some((_, values)) if first.ends_with(':') => values.push(line),
            _ => blocks.push((line, Vec::new())),
        }
    }
    blocks.iter().filter_map(|(head, values)| mapping(head, values)).collect()
}

fn mapping(head: &str, values: &[&str]) -> Option<Mapping> {
    let mut fields = head.splitn(6, ' ');
    let mut field = || fields.next();
    let (start, end) = field()?.split_once('-')?;
    let (rights, _offset, device, inode) = (field()?, field()?, field()?, field()?);
    let kb = |key: &str| -> Option<u64> {
        let value = values.iter().find_map(|v| v.strip_prefix(key)?.strip_prefix(':'))?;
        value.trim().strip_suffix(" kB")?.parse().ok()
    };
    let address = |hex: &str| usize::from_str_radix(hex, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    (start < end).then_some(Mapping {
        start,
        end,
        rights: rights.to_owned(),
        file: (device.to_owned(), inode.parse().ok()?),
        path: fields.next().unwrap_or_default().trim_start().to_owned(),
        resident_kb: kb("Rss")?,
        own_kb: kb("Anonymous")? + kb("Swap")?,
        locked_kb: kb("Locked")?,
    })
}

/// Removes the pages of a mapping from this process.
#[allow(unsafe_code, reason = "madvise; the only call, its condition is documented here")]
fn drop_pages(mapping: &Mapping) -> io::Result<()> {
    let start = std::ptr::with_exposed_provenance_mut(mapping.start);
    // SAFETY: the caller checked `may_go`. The mapping is read-only and private, maps the program
    // or a library that was loaded with it, and has no page that differs from the file. So every
    // thread reads the same bytes on the next access. Nothing unmaps the program or such a library
    // while the process lives, and nothing makes them writable after the loader has relocated them.
    // So the conditions still hold, although the mapping was read a moment ago. The file itself
    // does not change: the kernel refuses writes to a running program, and package managers replace
    // libraries by renaming.
    unsafe { rustix::mm::madvise(start, mapping.end - mapping.start, rustix::mm::Advice::LinuxDontNeed) }?;
    Ok(())
}

/// Returns free heap to the kernel, also from between used blocks.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "malloc_trim has no safe name")]
fn trim_heap() {
    unsafe extern "C" {
        fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    // SAFETY: the signature is that of malloc_trim(3). It takes no pointer, locks each arena, and
    // touches only free memory.
    unsafe { malloc_trim(0) };
}

/// Allocators other than glibc's keep little free memory.
#[cfg(not(target_env = "gnu"))]
fn trim_heap() {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::sync::Mutex;

    const SMAPS: &str = "\
55d0c0000000-55d0c0300000 r--p 00000000 fe:00 77                         /usr/local/bin/remoor
Size:               3072 kB
Rss:                2048 kB
Anonymous:             0 kB
Swap:                  0 kB
Locked:                0 kB
VmFlags: rd mr mw me sd
55d0c0300000-55d0c0b00000 r-xp 00300000 fe:00 77                         /usr/local/bin/remoor (deleted)
Rss:                4096 kB
Anonymous:             0 kB
Swap:                  0 kB
Locked:                0 kB
";

    /// `may_go` of each mapping in SMAPS after `from` was replaced by `to`.
    fn may_go_after(from: &str, to: &str) -> Vec<bool> {
        assert!(SMAPS.contains(from), "{from}");
        let loaded = LoadedFiles([("fe:00".to_owned(), 77)].into());
        mappings(&SMAPS.replace(from, to)).iter().map(|m| loaded.may_go(m)).collect()
    }

    #[test]
    fn only_clean_pages_of_the_program_are_dropped() {
        assert_eq!(may_go_after("fe:00", "fe:00"), [true, true], "also where a newer program took the name");
        for (from, to) in [
            ("r-xp", "rwxp"),
            ("r-xp", "r-xs"),
            ("r-xp", "---p"),
            ("77                         /usr/local/bin/remoor (d", "78                         /usr/lib/x (d"),
            ("00300000 fe:00", "00300000 fe:01"),
            ("/usr/local/bin/remoor (", "[heap] ("),
            ("4096 kB\nAnonymous:             0", "4096 kB\nAnonymous:             4"),
            ("4096 kB\nAnonymous:             0 kB\nSwap:                  0", "4096 kB\nAnonymous: 0 kB\nSwap: 4"),
            ("Rss:                4096 kB", "Rss:                0 kB"),
        ] {
            assert_eq!(may_go_after(from, to), [true, false], "{from} -> {to}");
        }
        assert_eq!(may_go_after("Locked:                0 kB", "Locked:                8 kB"), [false, false]);
    }

    #[test]
    fn incomplete_mappings_are_omitted() {
        for (from, to) in [
            ("55d0c0300000-55d0c0b00000", "55d0c0300000-55d0c0300000"),
            ("55d0c0300000-55d0c0b00000", "55d0c0300000 55d0c0b00000"),
            ("55d0c0300000-55d0c0b00000", "55d0c0300000-55d0c0b0000g"),
            ("Rss:                4096 kB\n", ""),
            ("Rss:                4096 kB", "Rss:                4096 MB"),
            ("4096 kB\nAnonymous:             0 kB\n", "4096 kB\n"),
        ] {
            assert_eq!(may_go_after(from, to), [true], "{from} -> {to}");
        }
        assert!(mappings("").is_empty());
        assert!(mappings("Rss: 4 kB\n\n77").is_empty());
    }

    /// Part of the test program, in pages that are mapped from its file.
    static TABLE: [u8; 1 << 20] = [7; 1 << 20];

    fn around_table() -> Mapping {
        let text = fs::read_to_string("/proc/self/smaps").expect("smaps");
        let at = TABLE.as_ptr().addr();
        mappings(&text).into_iter().find(|m| (m.start..m.end).contains(&at)).expect("the table is mapped")
    }

    /// Each test that trims this process holds this lock, so that no other test trims `TABLE`
    /// between its steps.
    static TRIMMING: Mutex<()> = Mutex::new(());

    fn sum() -> u64 {
        black_box(&TABLE).iter().map(|b| u64::from(*b)).sum()
    }

    #[test]
    fn trimming_reduces_resident_memory_and_keeps_the_content() {
        let _trimming = TRIMMING.lock().unwrap_or_else(|p| p.into_inner());
        let loaded = LoadedFiles::now().expect("smaps");
        let show: &dyn Fn() -> String = &|| format!("{:?}", black_box(Some(Duration::from_millis(5))));
        let shown = show();
        // Other tests touch other pages between the two measurements. So `TABLE` is larger than the
        // memory that they can map meanwhile.
        let shrunk = (0..20).any(|_| {
            assert_eq!(sum(), 7 << 20);
            let before = around_table();
            assert!(loaded.may_go(&before) && before.resident_kb >= 1024, "{before:?}");
            assert!(loaded.give_back().expect("a pass") >= 1024);
            around_table().resident_kb + 512 < before.resident_kb
        });
        assert!(shrunk, "the pages of the table are still resident");
        assert_eq!((sum(), show()), (7 << 20, shown));
    }

    #[test]
    fn steps_are_followed_by_a_pass_when_memory_has_grown_by_half_or_once_a_second() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut trim = StepTrim::with_floor(1000);
        assert!(!trim.is_due(1000, start), "little is resident");
        assert!(trim.is_due(1001, start), "the first pass");
        assert!(!trim.is_due(2000, at(100)), "the step needs this much");
        assert!(!trim.is_due(3000, at(200)));
        assert!(trim.is_due(3001, at(300)), "grown by half");
        assert!(!trim.is_due(2000, at(400)) && !trim.is_due(2000, at(1299)));
        assert!(trim.is_due(2000, at(1300)), "a second later");
        assert!(!trim.is_due(900, at(9000)) && trim.is_due(1001, at(9001)));
    }

    #[test]
    fn many_equal_steps_cause_few_passes() {
        let start = Instant::now();
        let mut trim = StepTrim::with_floor(1000);
        // 2,000 KiB are resident before every step, because each step maps the trimmed pages again.
        let passes = (0..2_000).filter(|ms| trim.is_due(2_000, start + Duration::from_millis(*ms))).count();
        assert_eq!(passes, 2, "2,000 steps in two seconds");
    }

    #[test]
    fn memory_is_trimmed_only_above_the_limit() {
        let _trimming = TRIMMING.lock().unwrap_or_else(|p| p.into_inner());
        let kept = |kb| {
            assert_eq!(sum(), 7 << 20);
            let before = around_table();
            StepTrim::with_floor(kb).before_step();
            around_table().resident_kb + 512 >= before.resident_kb
        };
        // Other tests touch pages meanwhile, so it is enough if one of 20 tries succeeds.
        assert!((0..20).any(|_| kept(usize::MAX)), "no process is so large");
        assert!((0..20).any(|_| !kept(1)), "more than a KiB is resident");
    }
}
